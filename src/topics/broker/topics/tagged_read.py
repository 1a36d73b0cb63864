"""Reads by tag: the records after a cursor whose tag matches, found by the tag index, in steps."""

from topics.broker.core import Core
from topics.broker.topics.read import Answer, ReadRequest, begin_read
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reading import Read, plan_read
from topics.engine.partitions.render import render_records
from topics.engine.partitions.segment import Segment
from topics.model.records.match import TagMatch
from topics.model.steps import Steps


def read_tagged(core: Core, wanted: ReadRequest, match: TagMatch) -> Steps[Answer]:
    """The same as `read` for records whose tag matches. Raises NotFound, and CorruptStorage for a damaged record."""
    cursor = begin_read(core, wanted)
    topic, partition, from_seq, recreated = cursor.topic, cursor.partition, cursor.from_seq, cursor.recreated
    tombstone = plan_read(partition, from_seq, 1, 1, to_seq=wanted.to_seq, recreated=recreated).tombstone
    last = partition.head_seq if wanted.to_seq is None else min(partition.head_seq, wanted.to_seq)
    first = max(1 if recreated else from_seq + 1, partition.earliest_seq)
    found = yield from _collect(partition, first, last, wanted, match)
    found.tombstone = tombstone
    found.next_from_seq = max(found.next_from_seq, from_seq)
    answer = Answer(topic, found, partition.head_seq, partition.earliest_seq)
    if wanted.to_seq is not None:
        answer.coverage = (from_seq, partition.live_between(from_seq + 1, found.next_from_seq))
    return answer


def _collect(partition: Partition, first: int, last: int, wanted: ReadRequest, match: TagMatch) -> Steps[Read]:
    texts: list[bytes] = []
    size = 0
    for segment in list(partition.segments):
        if segment.last_seq < first:
            continue
        if segment.first_seq > last:
            break
        chosen = yield from segment.tagged(match, last + 1)
        position = chosen.find(1, max(0, first - segment.first_seq))
        while position >= 0:
            yield
            page_texts, position = _page(segment, chosen, position, wanted)
            for seq, text in page_texts:
                if len(texts) == wanted.limit or (texts and size + len(text) > wanted.budget):
                    return Read(b",".join(texts), len(texts), seq - 1, seq - first, None)
                texts.append(text)
                size += len(text)
    return Read(b",".join(texts), len(texts), last, max(0, last - first + 1), None)


def _page(
    segment: Segment, chosen: bytearray, position: int, wanted: ReadRequest
) -> tuple[list[tuple[int, bytes]], int]:
    """The chosen live records of the page at this position, and the next chosen position behind the page; -1 for none."""
    page = segment.page_at(segment.first_seq + position)
    behind = page.last_seq + 1 - segment.first_seq
    positions = []
    while 0 <= position < behind:
        seq = segment.first_seq + position
        if segment.is_live(seq):
            positions.append(seq - page.first_seq)
        position = chosen.find(1, position + 1)
    texts = render_records(page, positions, wanted.view)
    return [(page.first_seq + each, text) for each, text in zip(positions, texts, strict=True)], position
