"""String columns of Arrow, read through their buffers."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from topics.model.records.page import SEPARATOR
from topics.storage.segments.columns import has_empty, joined_texts

# Bytes that a JSON string must escape.
_ESCAPED = re.compile(rb'["\\\x00-\x1f]')


class TextColumn:
    """A column of JSON texts: offsets and bytes. A null reads as an empty text, which is not valid JSON."""

    def __init__(self, column: Any) -> None:
        _, offsets, data = column.buffers()
        self.column = column
        self.empty = column.null_count == len(column)
        self._offsets = memoryview(offsets).cast("b").cast("i")
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def slice(self, start: int, stop: int) -> list[bytes]:
        offsets = self._offsets[start : stop + 1].tolist()
        first = offsets[0]
        text = bytes(self._data[first : offsets[-1]])
        if first:
            offsets = [offset - first for offset in offsets]
        return [text[low:high] for low, high in pairwise(offsets)]

    def bytes_between(self, start: int, stop: int) -> int:
        return self._offsets[stop] - self._offsets[start]

    def contains(self, pattern: re.Pattern[bytes]) -> bool:
        return pattern.search(self._data[: self._offsets[len(self.column)]]) is not None

    def lengths(self, rows: Sequence[int]) -> list[int]:
        offsets = self._offsets
        return [offsets[row + 1] - offsets[row] for row in rows]

    def joined(self, start: int, stop: int) -> bytes | None:
        if self.empty:
            return None
        text = joined_texts(self.column.slice(start, stop - start))
        return text if text.strip(SEPARATOR) else None


class StringColumn:
    """A column of nodes or tags: strings in the file, returned as JSON strings."""

    def __init__(self, column: Any) -> None:
        self.column = column
        self.empty = column.null_count == len(column)
        # Whether each string becomes a JSON string by adding quotes. False if one is empty: its length equals that of a null.
        self.plain = True
        if not self.empty:
            self._texts = TextColumn(column)
            self.plain = not self._texts.contains(_ESCAPED) and not has_empty(column)

    def bytes_between(self, start: int, stop: int) -> int:
        if not self.plain:
            return sum(self.lengths(range(start, stop)))
        rows = self.column.slice(start, stop - start)
        quoted = len(rows) - int(rows.null_count)
        return self._texts.bytes_between(start, stop) + 2 * quoted

    def lengths(self, rows: Sequence[int]) -> list[int]:
        """Return the lengths of the values as JSON strings."""
        if self.plain:
            return [length + 2 if length else 0 for length in self._texts.lengths(rows)]
        return [len(self.joined(row, 1) or b"") for row in rows]

    def joined(self, start: int, count: int) -> bytes | None:
        if self.empty:
            return None
        values = self.column.slice(start, count).to_pylist()
        if all([value is None for value in values]):
            return None
        return SEPARATOR.join([b"" if value is None else msgspec.json.encode(value) for value in values])
