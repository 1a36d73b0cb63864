"""Source positions: the last position that each source of a table's changes has sent, kept for each change topic.

A position is in the same frame of the log as the records up to it, so the two never disagree: after a crash a source may
resend from any position, and changes that are stored already are recognised as duplicates. Only the last position of a
source is kept, with digests of the events at that position. The positions of a topic are deleted with the topic.
"""

import msgspec
from msgspec import Struct

from topics.model.facts import ChangesMarked
from topics.model.tables.change import Change, Position, is_after

# Events at one position that are distinguished. A source with more must give each event its own position.
MAX_DIGESTS_PER_POSITION = 4096
DIGEST_BYTES = 8
MAX_SOURCES_PER_TABLE = 1000


class SourcePosition(Struct):
    """The last position of a source and the digests of its events there."""

    position: Position
    digests: dict[bytes, None]


class NewChanges(Struct):
    """The changes of a request that are new, the number of duplicates, and those whose position cannot be compared.

    `positions` are those that must be stored together with the new changes.
    """

    fresh: list[Change]
    duplicates: int
    refused: list[tuple[int, str]]
    positions: dict[str, SourcePosition]


class SourcePositions:
    """The positions of all change topics, by topic and source."""

    def __init__(self) -> None:
        self.by_topic: dict[int, dict[str, SourcePosition]] = {}

    def apply(self, fact: ChangesMarked) -> None:
        positions = self.by_topic.setdefault(fact.topic_id, {})
        position = tuple(fact.position)
        digests = dict.fromkeys(
            [fact.digests[at : at + DIGEST_BYTES] for at in range(0, len(fact.digests), DIGEST_BYTES)]
        )
        current = positions.get(fact.source)
        if current is None or is_after(position, current.position) is not False:
            positions[fact.source] = SourcePosition(position, digests)
        elif position == current.position:
            current.digests |= digests

    def forget(self, topic_id: int) -> None:
        self.by_topic.pop(topic_id, None)

    def find_new(self, topic_id: int, changes: list[Change]) -> NewChanges:
        """Separate new changes from duplicates, in their order. Changes nothing."""
        known = self.by_topic.get(topic_id, {})
        result = NewChanges([], 0, [], {})
        for change in changes:
            position = change.position
            if position is None:
                result.fresh.append(change)
                continue
            last = result.positions.get(change.source) or known.get(change.source)
            if last is None:
                if len(known) + len(result.positions) >= MAX_SOURCES_PER_TABLE:
                    result.refused.append((change.index, f"the table has {MAX_SOURCES_PER_TABLE} sources already"))
                    continue
                result.positions[change.source] = SourcePosition(position, {change.digest: None})
            elif position == last.position:
                if change.digest in last.digests:
                    result.duplicates += 1
                    continue
                if len(last.digests) < MAX_DIGESTS_PER_POSITION:
                    result.positions[change.source] = _added(last, change, copied=change.source in result.positions)
            else:
                after = is_after(position, last.position)
                if after is None:
                    text = f"position is of another kind than the source's last, {list(last.position)}"
                    result.refused.append((change.index, text))
                    continue
                if not after:
                    result.duplicates += 1
                    continue
                result.positions[change.source] = SourcePosition(position, {change.digest: None})
            result.fresh.append(change)
        return result

    # What a snapshot keeps.

    def capture(self) -> bytes:
        return msgspec.msgpack.encode(
            [
                ChangesMarked(topic_id, source, list(last.position), b"".join(last.digests), 0)
                for topic_id, positions in self.by_topic.items()
                for source, last in positions.items()
            ]
        )

    def restore(self, body: bytes) -> None:
        for fact in _decode_positions(body):
            self.apply(fact)


_decode_positions = msgspec.msgpack.Decoder(list[ChangesMarked]).decode


def position_facts(topic_id: int, positions: dict[str, SourcePosition], ts: int) -> list[ChangesMarked]:
    return [
        ChangesMarked(topic_id, source, list(last.position), b"".join(last.digests), ts)
        for source, last in positions.items()
    ]


def _added(last: SourcePosition, change: Change, *, copied: bool) -> SourcePosition:
    """The position with one more event. The stored one is not changed before the log has the change."""
    if copied:
        last.digests[change.digest] = None
        return last
    return SourcePosition(last.position, {**last.digests, change.digest: None})
