"""Versions of a row: the changes of one key, put in order.

Changes are applied in the order of their seqs. One kind of change can be late: a change whose source gives no position and
whose `ts` is before that of a change of its key that was applied earlier. It takes its place in the order by `ts`: for the
current row it has no effect, in the history it becomes a version that ended when the next one began. A source with
positions (PostgreSQL, Delta, most of Debezium) sends changes in order, and the server drops its repeats, so there the order
of the seqs is always right, also when the clock of the source was set back.

A change that repeats the one before it in the order (same `ts`, same row) has no effect.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from topics.model.records.surrogates import cover_halves, replace_halves

# A source that has one of these sends its changes in order.
_POSITIONS = ("position", "version", "lsn", "pos", "commit_lsn")

Key = tuple[Any, ...]
Row = dict[str, Any]


class ChangeEvent(Struct):
    """A record of a change topic."""

    op: str
    ts: int
    key: dict[str, Raw] | None = None
    after: dict[str, Raw] | None = None
    source: dict[str, Any] | None = None

    @property
    def in_order(self) -> bool:
        source = self.source or {}
        return any([name in source for name in _POSITIONS])

    @property
    def unchanged(self) -> list[str]:
        """Columns that the source left out of `after` because they did not change."""
        return list((self.source or {}).get("unchanged", ()))


_decode_event = msgspec.json.Decoder(ChangeEvent).decode


def decode_event(data: str | bytes) -> ChangeEvent:
    """Decode a record of a change topic. A lone surrogate in a column becomes U+FFFD: no text can hold it.

    Raises msgspec.MsgspecError, also for a lone surrogate in the key: two keys must not become equal.
    """
    try:
        return _decode_event(data)
    except msgspec.DecodeError:
        text = data.encode() if isinstance(data, str) else data
        covered = cover_halves(text, len(text))
        if covered is None:
            raise
    key = _decode_event(covered.body).key or {}
    if any([covered.uncover(bytes(value)) != bytes(value) for value in key.values()]):
        raise msgspec.ValidationError("the key of a change holds a lone surrogate, which no column can hold")
    return _decode_event(replace_halves(text))


class Version(Struct):
    """A row from a time on; `row` is None when it was deleted then."""

    ts: int
    seq: int
    row: Row | None


class RowVersions:
    """The versions of one key, oldest first. `ts` never decreases from one to the next."""

    def __init__(self, versions: list[Version]) -> None:
        self.versions = versions

    @property
    def last(self) -> Version | None:
        return self.versions[-1] if self.versions else None

    def add(self, version: Version, *, in_order: bool, unchanged: list[str]) -> None:
        index = len(self.versions)
        while not in_order and index and self.versions[index - 1].ts > version.ts:
            index -= 1
        before = self.versions[index - 1] if index else None
        if before is not None:
            # The clock of the source was set back.
            version.ts = max(version.ts, before.ts)
            if version.row is not None and before.row is not None:
                version.row |= {name: before.row[name] for name in unchanged if name in before.row}
            if before.ts == version.ts and before.row == version.row and not in_order:
                return
        self.versions.insert(index, version)
