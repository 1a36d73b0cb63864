"""The source records of router copies, kept during recovery.

The log does not contain the records of a copy; the fact `Forwarded` names the records of the source. Live, the source has them
when the copy is decided. During replay they may already be deleted from the source: a delete that waited for its sync precedes
the copy in the log although it was applied after it. So recovery keeps the pages of every source here, also if they are deleted
later in the log, together with the pages of the snapshot. Records that were sealed when the snapshot was taken are read from
their segment, which is kept as long as a snapshot names it.

Pages are immutable, so keeping one costs a reference. All are released at the end of recovery.
"""

from bisect import bisect_right

from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.errors import CorruptStorage
from topics.model.records.page import Page


class CopySources:
    """Pages of sources by topic and partition, ordered by seq."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], tuple[list[int], list[Page]]] = {}

    def keep(self, topic: Topic) -> None:
        """Keep the pages of this topic from now on: it is the source of a router."""
        for partition in topic.partitions:
            if (topic.id, partition.number) not in self._pages:
                pages = [
                    page for segment in partition.segments if isinstance(segment, HotSegment) for page in segment.pages
                ]
                self._pages[topic.id, partition.number] = ([page.first_seq for page in pages], pages)

    def add(self, partition: Partition, page: Page) -> None:
        """Keep an appended page if its topic is a source."""
        kept = self._pages.get((partition.topic_id, partition.number))
        if kept is not None and (not kept[1] or page.first_seq > kept[1][-1].last_seq):
            kept[0].append(page.first_seq)
            kept[1].append(page)

    def find(self, partition: Partition, seq: int) -> Page | None:
        """Return the page with a record of a source, also if it is deleted; None if a power cut lost it or its file is damaged."""
        starts, pages = self._pages.get((partition.topic_id, partition.number), ([], []))
        index = bisect_right(starts, seq) - 1
        if index >= 0 and seq <= pages[index].last_seq:
            return pages[index]
        for segment in (*partition.segments, *partition.dropped):
            if segment.sealed and segment.first_seq <= seq <= segment.last_seq:
                try:
                    return segment.page_at(seq)
                except CorruptStorage:
                    return None
        return None

    def clear(self) -> None:
        self._pages.clear()
