"""Which dead letters a redrive moves back to their queues."""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from topics.engine.topics.topic import Topic
from topics.model.dead_letter_meta import origin_of
from topics.model.records.match import TagMatch
from topics.model.records.page import column
from topics.model.steps import Steps

# Dead letters that one request moves.
MAX_REDRIVE_RECORDS = 10_000
RECORDS_PER_STEP = 100

# Whether the caller may touch a queue of this name.
MayTouch = Callable[[str], bool]
_decode_text = msgspec.json.Decoder(str).decode


class WantedLetters(Struct, frozen=True):
    """Which dead letters: those that meet all conditions given."""

    queue: str | None = None
    seqs: frozenset[int] | None = None
    match: TagMatch | None = None


class DeadLetters(Struct):
    """Dead letters that were found: by queue, their seqs."""

    by_queue: dict[str, list[int]]
    skipped: int = 0
    remaining: int = 0


def find_dead_letters(
    topics: Mapping[str, Topic], topic: Topic, wanted: WantedLetters, may_touch: MayTouch
) -> Steps[DeadLetters]:
    """The wanted dead letters of the topic's first partition whose queue exists and may be written to."""
    partition = topic.partitions[0]
    letters = DeadLetters({})
    found = 0
    seq = partition.next_live(1)
    examined = 0
    while seq is not None:
        page = partition.find(seq)
        assert page is not None
        metas = column(page.metas, page.count)
        tags = column(page.tags, page.count)
        while seq is not None and seq <= page.last_seq:
            examined += 1
            position = seq - page.first_seq
            if _is_wanted(wanted, seq, tags[position]):
                queue = origin_of(metas[position])
                target = None if queue is None else topics.get(queue)
                if wanted.queue is not None and queue != wanted.queue:
                    pass
                elif (
                    queue is None
                    or target is None
                    or target.config.type != "queue"
                    or target is topic
                    or not may_touch(queue)
                ):
                    letters.skipped += 1
                elif found < MAX_REDRIVE_RECORDS:
                    found += 1
                    letters.by_queue.setdefault(queue, []).append(seq)
                else:
                    letters.remaining += 1
            seq = partition.next_live(seq + 1)
            if not examined % RECORDS_PER_STEP:
                yield
        yield
    return letters


def _is_wanted(wanted: WantedLetters, seq: int, tag: bytes) -> bool:
    if wanted.seqs is not None and seq not in wanted.seqs:
        return False
    return wanted.match is None or (bool(tag) and wanted.match.matches(_decode_text(tag)))
