"""gzip, both ways, with bounds on size and on the time the event loop is kept.

Inflating starts on the loop and stops there after INLINE_BYTES of output, however small the input: what is left is
for a thread (zlib lets go of the interpreter lock). So a body that is small when inflated never waits for
a thread, and a bomb never stalls anybody.
"""

import zlib

from .refusal import PAYLOAD_TOO_LARGE, Refused, malformed

# A shorter answer is sent as it is: compressing it costs more than it saves.
GZIP_BYTES_MIN = 1024

# Inflating this much takes about 0.5 ms, deflating it 3 ms.
INLINE_BYTES = 256 << 10

_GZIP_WBITS = 31

# Every answer is made once and read once, over a link: level 1 takes a third of the time of level 6.
_LEVEL = 1

# Fed in slices, because zlib copies what follows a member, each time. A call is never cheaper than this many bytes,
# and nobody needs more members than this: empty ones cost us time and the sender nothing.
_SLICE_BYTES = 64 << 10
_CALL_BYTES = 4 << 10
_MEMBERS_MAX = 10_000


class Inflation:
    """One gzip body on its way to be inflated. Several members, one after the other, are one body."""

    __slots__ = ("_inflater", "_input", "_limit", "_members", "_output_bytes", "_parts", "_position")

    def __init__(self, body: bytes, limit: int) -> None:
        """`limit` is what the inflated body may measure."""
        self._input = memoryview(body)
        self._position = 0
        self._limit = limit
        self._inflater = zlib.decompressobj(_GZIP_WBITS)
        self._members = 1
        self._parts: list[bytes] = []
        self._output_bytes = 0

    def run(self, step_bytes: int) -> bytes | None:
        """The whole body, or None if it takes more than about `step_bytes` of input or output to get there.

        Raises Refused: the body is too large, or is not gzip to its last byte.
        """
        budget = step_bytes
        while budget > 0:
            given = self._input[self._position : self._position + _SLICE_BYTES]
            # One byte above the limit tells "too large" from "just fits".
            room = min(budget, self._limit + 1 - self._output_bytes)
            try:
                part = self._inflater.decompress(given, room)
            except zlib.error:
                raise malformed("the body is not gzip") from None
            inflater = self._inflater
            taken = len(given) - len(inflater.unused_data if inflater.eof else inflater.unconsumed_tail)
            self._position += taken
            self._output_bytes += len(part)
            if self._output_bytes > self._limit:
                raise Refused(PAYLOAD_TOO_LARGE)
            if part:
                self._parts.append(part)
            at_end = self._position == len(self._input)
            if inflater.eof:
                if at_end:
                    return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._next_member()
            elif at_end and len(part) < room:
                raise malformed("the gzip body is cut short")
            budget -= max(taken, len(part), _CALL_BYTES)
        return None

    def finish(self) -> bytes:
        """The whole body, however long it takes: for a thread."""
        body = None
        while body is None:
            body = self.run(_SLICE_BYTES)
        return body

    def _next_member(self) -> None:
        self._members += 1
        if self._members > _MEMBERS_MAX:
            raise malformed("too many gzip members in the body")
        self._inflater = zlib.decompressobj(_GZIP_WBITS)


def deflate(body: bytes) -> bytes:
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    return deflater.compress(body) + deflater.flush()
