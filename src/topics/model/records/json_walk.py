"""Walk through a JSON text value by value, without decoding it as a whole.

A large request body is taken apart in steps of a bounded length, and a list that is too long is refused after as many
entries as are allowed. A value is skipped by the JSON decoder itself (`Raw`): what follows the value is reported as
trailing characters, with the position. So the walk accepts exactly what the decoder accepts.

    walk = JsonWalk(b'{"a":[1,2],"b":3}')
    walk.enter(b"{")
    walk.key()             "a"
    walk.enter(b"[")
    walk.skip(1 << 20)     (6, 7)
    walk.next_item(b"]")   True
"""

import re

import msgspec
from msgspec import Raw

from topics.model.errors import InvalidRequest

# A longer run of white space is refused: to pass over it would take one long step.
MAX_SPACE_BYTES = 64 << 10
# Keys of an object are short. A longer one is refused.
MAX_KEY_BYTES = 64 << 10

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'[ \t\n\r]*"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t\n\r]*(,?)', re.DOTALL)
_POSITION = re.compile(r"trailing characters \(byte (\d+)\)")
_skip = msgspec.json.Decoder(Raw).decode
_decode_key = msgspec.json.Decoder(str).decode


class ValueTooLong(InvalidRequest):
    """A value does not end within the bytes it may take."""


def _reported_end(view: memoryview) -> int | None:
    """Where the first value of the text ends; None when nothing follows it. Raises DecodeError when it is malformed."""
    try:
        _skip(view)
    except msgspec.DecodeError as error:
        found = _POSITION.search(str(error))
        if found is None:
            raise
        return int(found[1]) - _REPORTED_LATER
    return None


# Where the decoder says that `,` follows the one byte of the number: 0 or 1 behind it, depending on its version.
_REPORTED_LATER = 0
_REPORTED_LATER = (_reported_end(memoryview(b"1,")) or 1) - 1


class JsonWalk:
    """A place in a JSON text. Everything raises InvalidRequest when the text is not JSON."""

    __slots__ = ("_view", "position", "text")

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._view = memoryview(text)
        self.position = 0

    def peek(self) -> bytes:
        """The next byte that is not white space; empty at the end of the text."""
        position = self.position
        if self.text[position : position + 1] > b" ":
            return self.text[position : position + 1]
        found = _SPACE.match(self.text, position, position + MAX_SPACE_BYTES)
        assert found is not None
        if found.end() - position == MAX_SPACE_BYTES:
            raise InvalidRequest(f"more than {MAX_SPACE_BYTES} bytes of white space in a row (byte {position})")
        self.position = found.end()
        return self.text[self.position : self.position + 1]

    def enter(self, bracket: bytes) -> None:
        """Pass the bracket that opens an object or a list."""
        if self.peek() != bracket:
            expected, got = ("object", "list") if bracket == b"{" else ("list", "another value")
            raise InvalidRequest(f"Expected a JSON {expected}, got {got} (byte {self.position})")
        self.position += 1

    def next_item(self, bracket: bytes) -> bool:
        """Pass the comma in front of the next entry; False, and pass the closing bracket, when there is none."""
        byte = self.peek()
        if byte == b",":
            self.position += 1
            if self.peek() == bracket:
                raise self._malformed("trailing comma")
            return True
        if byte != bracket:
            raise self._malformed(f"expected ',' or '{bracket.decode()}'")
        self.position += 1
        return False

    def is_empty(self, bracket: bytes) -> bool:
        """Right behind an opening bracket: whether it closes at once; then it is passed."""
        if self.peek() != bracket:
            return False
        self.position += 1
        return True

    def key(self) -> str:
        """Pass a key of an object and the colon behind it."""
        if self.peek() != b'"':
            raise self._malformed("object keys must be strings")
        start, end = self.skip(MAX_KEY_BYTES)
        try:
            key = _decode_key(self._view[start:end])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(str(error)) from None
        if self.peek() != b":":
            raise self._malformed("expected ':'")
        self.position += 1
        return key

    def skip(self, max_bytes: int) -> tuple[int, int]:
        """Pass a value and the white space behind it; where it starts and ends. Raises ValueTooLong."""
        self.peek()
        start = self.position
        window = self._view[start : start + max_bytes]
        cut = start + max_bytes < len(self.text)
        try:
            end = _reported_end(window)
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None
        except msgspec.DecodeError as error:
            if cut and "truncated" in str(error):
                raise ValueTooLong(f"a value takes more than {max_bytes} bytes (byte {start})") from None
            raise InvalidRequest(f"{error} (of the value at byte {start})") from None
        if end is None:
            if cut:
                raise ValueTooLong(f"a value takes more than {max_bytes} bytes (byte {start})")
            end = len(window)
        self.position = start + end
        return start, self.position

    def finish(self) -> None:
        """Nothing but white space is left."""
        if self.peek():
            raise self._malformed("trailing characters")

    def _malformed(self, what: str) -> InvalidRequest:
        if self.position >= len(self.text):
            return InvalidRequest("Input data was truncated")
        return InvalidRequest(f"JSON is malformed: {what} (byte {self.position})")


def strings_in_list(text: bytes, start: int, max_count: int) -> int:
    """How many strings a list of strings has that begins behind its bracket at `start`, counted up to `max_count` + 1.

    What is not a string ends the count: the decoder refuses it.
    """
    count = 0
    while count <= max_count:
        found = _STRING.match(text, start)
        if found is None:
            break
        count += 1
        start = found.end()
        if not found[1]:
            break
    return count


def entries_in_object(text: bytes, start: int, max_count: int) -> int:
    """How many entries an object has that begins at `start`, counted up to `max_count` + 1. Raises InvalidRequest."""
    walk = JsonWalk(text)
    walk.position = start
    walk.enter(b"{")
    count = 0
    more = not walk.is_empty(b"}")
    while more and count <= max_count:
        walk.key()
        walk.skip(len(text))
        count += 1
        more = count <= max_count and walk.next_item(b"}")
    return count
