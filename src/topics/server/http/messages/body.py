"""The parts of a body, and gzip in both directions, with limits on size and on the time spent on the event loop.

Inflating starts on the loop and stops there after INLINE_BYTES of input or output; the rest is done in a thread (zlib
releases the interpreter lock). So a small body never waits for a thread, and a decompression bomb never blocks the loop.
"""

import zlib
from io import BytesIO

from .refusal import Refusal, Refused, malformed

# A shorter response is not compressed: that costs more than it saves.
MIN_GZIP_BYTES = 1024

# Inflating this much takes about 0.5 ms, deflating it 3 ms.
INLINE_BYTES = 256 << 10

_GZIP_WBITS = 31

# Each response is compressed once and read once: level 1 takes a third of the time of level 6.
_LEVEL = 1

# Input is given to zlib in slices, because it copies what follows a member each time.
_SLICE_BYTES = 64 << 10
# A call counts as at least this many bytes of work.
_MIN_CALL_BYTES = 4 << 10
# Empty members cost us time and the sender almost nothing.
_MAX_MEMBERS = 10_000

# Up to this size parts are joined at the end. A larger body is copied as it arrives: joining 64 MiB at once takes 40 ms.
_MAX_JOIN_BYTES = 1 << 20
# The buffer of a large body has this size first, and when that is full the size that the body may have. So a client that has
# sent little does not reserve much, and the one copy takes 5 ms at most.
_FIRST_BUFFER_BYTES = 8 << 20


class BodyParts:
    """Collects the parts of a body. No step copies more than about 8 MiB."""

    __slots__ = ("_buffer_bytes", "_bytes", "_large", "_max_bytes", "_parts")

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is the largest size of the body; the caller checks it."""
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._bytes = 0
        self._large: BytesIO | None = None
        self._buffer_bytes = 0

    def add(self, part: bytes) -> None:
        self._bytes += len(part)
        if self._large is None:
            self._parts.append(part)
            if self._bytes > _MAX_JOIN_BYTES:
                self._reserve(_FIRST_BUFFER_BYTES)
            return
        if self._bytes > self._buffer_bytes:
            self._reserve(self._max_bytes)
        self._large.write(part)

    def take(self) -> bytes:
        """Return the whole body. No part may be added afterwards."""
        if self._large is not None:
            # Shares the buffer; nothing is copied.
            self._large.truncate()
            return self._large.getvalue()
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def clear(self, max_bytes: int) -> None:
        """Begin another body of at most `max_bytes`."""
        self._max_bytes = max_bytes
        self._parts = []
        self._large = None
        self._bytes = self._buffer_bytes = 0

    def _reserve(self, buffer_bytes: int) -> None:
        """Move the parts to a buffer of this size. The system provides its memory when it is first written to."""
        before = self._large
        self._buffer_bytes = min(buffer_bytes, self._max_bytes)
        self._large = BytesIO(bytes(self._buffer_bytes))
        if before is None:
            self._large.writelines(self._parts)
            self._parts = []
        else:
            self._large.write(before.getbuffer()[: before.tell()])


class Inflation:
    """Inflates one gzip body in steps. Several gzip members in a row are one body."""

    __slots__ = ("_inflater", "_input", "_limit", "_parts", "_position", "_too_large", "members", "output_bytes")

    def __init__(self, body: bytes, limit: int, too_large: Refusal) -> None:
        """`limit` is the maximum size of the inflated body; a larger one is refused with `too_large`."""
        self._too_large = too_large
        self._input = memoryview(body)
        self._position = 0
        self._limit = limit
        self._inflater = zlib.decompressobj(_GZIP_WBITS)
        self.members = 1
        # One byte above the limit is inflated, to tell "too large" from "just fits".
        self._parts = BodyParts(limit + 1)
        self.output_bytes = 0

    def run(self, step_bytes: int) -> bytes | None:
        """Return the whole body, or None if more than about `step_bytes` of input or output are left to process.

        Raises Refused if the body is too large or is not gzip up to its last byte.
        """
        budget = step_bytes
        while budget > 0:
            given = self._input[self._position : self._position + _SLICE_BYTES]
            # One byte above the limit shows that the body is too large.
            max_output = min(budget, self._limit + 1 - self.output_bytes)
            try:
                part = self._inflater.decompress(given, max_output)
            except zlib.error:
                raise malformed("the body is not gzip") from None
            inflater = self._inflater
            taken = len(given) - len(inflater.unused_data if inflater.eof else inflater.unconsumed_tail)
            self._position += taken
            self.output_bytes += len(part)
            if self.output_bytes > self._limit:
                raise Refused(self._too_large)
            if part:
                self._parts.add(part)
            at_end = self._position == len(self._input)
            if inflater.eof:
                if at_end:
                    return self._parts.take()
                self._next_member()
            elif at_end and len(part) < max_output:
                raise malformed("the gzip body is truncated")
            budget -= max(taken, len(part), _MIN_CALL_BYTES)
        return None

    def finish(self) -> bytes:
        """Return the whole body. For a thread: it may take long."""
        body = None
        while body is None:
            body = self.run(_SLICE_BYTES)
        return body

    def _next_member(self) -> None:
        self.members += 1
        if self.members > _MAX_MEMBERS:
            raise malformed("too many gzip members in the body")
        self._inflater = zlib.decompressobj(_GZIP_WBITS)


def deflate(body: bytes) -> bytes:
    """Compress a response body with gzip."""
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    return deflater.compress(body) + deflater.flush()
