r"""Lone surrogates: escapes such as `"\ud800"` that JSON's grammar allows and the decoder refuses.

`data` and `meta` are a client's own bytes and may hold them. They are so rare that nothing is done about them until the
decoder has refused a body; then each half is covered by an escape of the same length that the body does not hold, the
covered body is decoded, and what was covered is uncovered in the bytes that are kept. Texts that are compared (tags,
nodes, keys) are characters, not bytes: half a character in one of them is refused.
"""

import re

import msgspec
from msgspec import Raw, Struct

_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
# Replacements are taken from here: characters without a meaning of their own.
_PRIVATE = range(0xE000, 0xF900)
_PRIVATE_ESCAPE = re.compile(rb"\\u([eEfF][0-9a-fA-F]{3})")
# Looking at every escape takes about 0.3 us each, on the loop: larger bodies are refused as the decoder refused them.
MAX_COVERED_BYTES = 2 << 20


class Covered(Struct):
    """A body without halves, and how to get them back."""

    body: bytes
    _halves: dict[bytes, bytes]
    _letters: frozenset[str]

    def uncover(self, text: bytes) -> bytes:
        """Bytes taken out of `body` as they were sent."""
        return _PRIVATE_ESCAPE.sub(lambda found: self._halves.get(found[0], found[0]), text)

    def touches(self, text: str) -> bool:
        """Whether a text decoded from `body` holds half a character."""
        return not self._letters.isdisjoint(text)


def cover_halves(body: bytes, max_bytes: int = MAX_COVERED_BYTES) -> Covered | None:
    """None when there is nothing to cover, no unused character to cover it with, or the body is too large; `body` must be UTF-8."""
    if len(body) > max_bytes or (b"\\ud" not in body and b"\\uD" not in body):
        return None
    places = _halves(body)
    spellings = dict.fromkeys([body[place : place + 6] for place in places])
    stand_ins = _free_escapes(body, len(spellings))
    if not places or stand_ins is None:
        return None
    stand_in_for = dict(zip(spellings, stand_ins, strict=True))
    covered = bytearray(body)
    for place in places:
        covered[place : place + 6] = stand_in_for[body[place : place + 6]]
    halves = {stand_in: half for half, stand_in in stand_in_for.items()}
    letters = frozenset([chr(int(stand_in[2:], 16)) for stand_in in halves])
    return Covered(bytes(covered), halves, letters)


def decodable_json(text: bytes, max_bytes: int = MAX_COVERED_BYTES) -> bytes:
    """The text, with its lone surrogates covered if it has some. Raises msgspec.DecodeError unless it is one JSON value."""
    try:
        msgspec.json.decode(text, type=Raw)
        return text
    except msgspec.DecodeError:
        covered = cover_halves(text, max_bytes)
        if covered is None:
            raise
    msgspec.json.decode(covered.body, type=Raw)
    return covered.body


def replace_halves(body: bytes) -> bytes:
    """The body with the replacement character, as an escape, in place of each lone surrogate."""
    replaced = bytearray(body)
    for place in _halves(body):
        replaced[place : place + 6] = b"\\ufffd"
    return bytes(replaced)


def _halves(body: bytes) -> list[int]:
    """Offsets of lone surrogate escapes."""
    places: list[int] = []
    high_at = -1
    for found in _ESCAPE.finditer(body):
        digits = found[1]
        unit = int(digits, 16) if digits else 0
        at = found.start()
        if 0xDC00 <= unit <= 0xDFFF and high_at == at - 6 >= 0:
            high_at = -1
            continue
        if high_at >= 0:
            places.append(high_at)
            high_at = -1
        if 0xD800 <= unit <= 0xDBFF:
            high_at = at
        elif 0xDC00 <= unit <= 0xDFFF:
            places.append(at)
    if high_at >= 0:
        places.append(high_at)
    return places


def _free_escapes(body: bytes, count: int) -> list[bytes] | None:
    """`count` escapes of characters that the body does not contain, escaped or literally."""
    taken = set(body.decode())
    taken.update([chr(int(found[1], 16)) for found in _PRIVATE_ESCAPE.finditer(body)])
    free = [b"\\u%04x" % letter for letter in _PRIVATE if chr(letter) not in taken]
    return free[:count] if len(free) >= count else None
