"""Marks: how far each source of a table's changes has come, kept with the topic that holds the changes.

A mark moves in the same frame as the records it is about, so it never disagrees with them: after any crash a source may
send again from wherever it likes, and what is there already is known. Of a source only the last position is kept, with the
events at that very position. Marks go with their topic.
"""

import msgspec
from msgspec import Struct

from topics.model.change import Change, Position, is_after
from topics.model.facts import ChangesMarked

# Events at one position that are told apart; sources with more give each event a position of its own.
DIGESTS_MOST = 4096
DIGEST_BYTES = 8
SOURCES_MOST = 1000


class Mark(Struct):
    """The last position of a source and the digests of its events there."""

    position: Position
    digests: dict[bytes, None]


class Sifted(Struct):
    """What of some changes is new, what was there already, and what cannot be compared."""

    fresh: list[Change]
    duplicates: int
    refused: list[tuple[int, str]]
    marks: dict[str, Mark]


class ChangeMarks:
    """The marks of all change topics: by topic, then by source."""

    def __init__(self) -> None:
        self.by_topic: dict[int, dict[str, Mark]] = {}

    def mark(self, fact: ChangesMarked) -> None:
        marks = self.by_topic.setdefault(fact.topic_id, {})
        position = tuple(fact.position)
        digests = dict.fromkeys(
            [fact.digests[at : at + DIGEST_BYTES] for at in range(0, len(fact.digests), DIGEST_BYTES)]
        )
        current = marks.get(fact.source)
        if current is None or is_after(position, current.position) is not False:
            marks[fact.source] = Mark(position, digests)
        elif position == current.position:
            current.digests |= digests

    def forget(self, topic_id: int) -> None:
        self.by_topic.pop(topic_id, None)

    def sift(self, topic_id: int, changes: list[Change]) -> Sifted:
        """Part the changes, in their order, without remembering anything: `marks` are those to be kept with them."""
        known = self.by_topic.get(topic_id, {})
        sifted = Sifted([], 0, [], {})
        for change in changes:
            position = change.position
            if position is None:
                sifted.fresh.append(change)
                continue
            mark = sifted.marks.get(change.source) or known.get(change.source)
            if mark is None:
                if len(known) + len(sifted.marks) >= SOURCES_MOST:
                    sifted.refused.append((change.index, f"the table has {SOURCES_MOST} sources already"))
                    continue
                sifted.marks[change.source] = Mark(position, {change.digest: None})
            elif position == mark.position:
                if change.digest in mark.digests:
                    sifted.duplicates += 1
                    continue
                if len(mark.digests) < DIGESTS_MOST:
                    sifted.marks[change.source] = _added(mark, change, copied=change.source in sifted.marks)
            else:
                after = is_after(position, mark.position)
                if after is None:
                    text = f"position is of another kind than the source's last, {list(mark.position)}"
                    sifted.refused.append((change.index, text))
                    continue
                if not after:
                    sifted.duplicates += 1
                    continue
                sifted.marks[change.source] = Mark(position, {change.digest: None})
            sifted.fresh.append(change)
        return sifted

    # What a snapshot keeps.

    def capture(self) -> bytes:
        return msgspec.msgpack.encode(
            [
                ChangesMarked(topic_id, source, list(mark.position), b"".join(mark.digests), 0)
                for topic_id, marks in self.by_topic.items()
                for source, mark in marks.items()
            ]
        )

    def restore(self, body: bytes) -> None:
        for fact in _decode_marks(body):
            self.mark(fact)


_decode_marks = msgspec.msgpack.Decoder(list[ChangesMarked]).decode


def marks_facts(topic_id: int, marks: dict[str, Mark], ts: int) -> list[ChangesMarked]:
    return [
        ChangesMarked(topic_id, source, list(mark.position), b"".join(mark.digests), ts)
        for source, mark in marks.items()
    ]


def _added(mark: Mark, change: Change, *, copied: bool) -> Mark:
    """The mark with one more event; the kept ones are never changed before the log has it."""
    if copied:
        mark.digests[change.digest] = None
        return mark
    return Mark(mark.position, {**mark.digests, change.digest: None})
