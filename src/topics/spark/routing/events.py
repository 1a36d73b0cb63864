"""Change events as bytes: the parts that a payload is made of, without decoding their values."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

_NULL = Raw(b"null")

Row = dict[str, Raw]


class Event(Struct):
    """A change event as its topic holds it; images stay bytes."""

    op: Any = None
    ts: Any = None
    key: Raw = _NULL
    before: Raw = _NULL
    after: Raw = _NULL
    source: Raw = _NULL

    @property
    def image(self) -> Raw:
        """The row that conditions are about: `after`; for a delete `before`, or the key if there is no `before`."""
        if self.op != "delete":
            return self.after
        return self.key if bytes(self.before) == b"null" else self.before


_decode_event = msgspec.json.Decoder(Event).decode
_decode_row = msgspec.json.Decoder(Row).decode


def parsed(data: str | bytes) -> Event:
    """Raises MsgspecError, or RecursionError, for anything but an object."""
    return _decode_event(data)


def row_of(image: bytes | Raw) -> Row:
    """The columns of an image; none for null. Raises MsgspecError for anything but null and an object."""
    return {} if bytes(image) == b"null" else _decode_row(image)
