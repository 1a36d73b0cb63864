"""Origins: where recovery finds the records that routers have copied.

A copy is not logged; the fact that it was made names the records of the source it was made of. Live, those are there
when the copy is decided. In replay they may already be gone from the source's log: a delete that was still waiting for
its sync comes before the copy in the log although it became true after it. So while facts are replayed, the pages of
every source are kept here as well, whatever happens to them in the log, together with those that the snapshot holds.
What had been sealed when the snapshot was taken is read from its segment, which is kept as long as a snapshot names it.

Pages never change, so keeping them costs a reference each; all are let go when recovery is done.
"""

from bisect import bisect_right

from topics.broker.sealed import SealedSegment
from topics.engine.partition import Partition
from topics.engine.segment import HotSegment
from topics.engine.topic import Topic
from topics.model.page import Page


class Origins:
    """Pages of sources, by topic and partition, in the order of their seqs."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, int], tuple[list[int], list[Page]]] = {}

    def keep(self, topic: Topic) -> None:
        """The topic is a source from here on."""
        for partition in topic.partitions:
            if (topic.id, partition.number) not in self._pages:
                pages = [
                    page for segment in partition.segments if isinstance(segment, HotSegment) for page in segment.pages
                ]
                self._pages[topic.id, partition.number] = ([page.first_seq for page in pages], pages)

    def add(self, partition: Partition, page: Page) -> None:
        """The page was appended to a log, which may be a source's."""
        kept = self._pages.get((partition.topic_id, partition.number))
        if kept is not None and (not kept[1] or page.first_seq > kept[1][-1].last_seq):
            kept[0].append(page.first_seq)
            kept[1].append(page)

    def find(self, partition: Partition, seq: int) -> Page | None:
        """The page around a record of a source, gone or not."""
        starts, pages = self._pages.get((partition.topic_id, partition.number), ([], []))
        index = bisect_right(starts, seq) - 1
        if index >= 0 and seq <= pages[index].last_seq:
            return pages[index]
        for segment in (*partition.segments, *partition.dropped):
            if isinstance(segment, SealedSegment) and segment.first_seq <= seq <= segment.last_seq:
                return segment.page_at(seq) if segment.files_exist() else None
        return None

    def clear(self) -> None:
        self._pages.clear()
