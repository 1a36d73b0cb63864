"""The tag index of a hot segment: which records carry a tag, exactly or by prefix, without looking at the log.

Tags are held as pages hold them, as canonical JSON strings. That encoding works letter by letter, so a prefix of a tag
is a prefix of its encoding without the closing quote. Most tags stand on one record: those map to a plain int.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from topics.model.match import TagMatch
from topics.model.page import SEPARATOR, Page

Seqs: TypeAlias = "int | array[int]"


class TagIndex:
    """Tag -> ascending seqs. Gone records may still be listed until they are pruned or forgotten."""

    def __init__(self) -> None:
        self._seqs_of: dict[bytes, Seqs] = {}
        # Sorted names, brought up to date when a prefix is asked for: sorting in a few fresh names is one pass in C.
        self._names: list[bytes] = []
        self._fresh: list[bytes] = []

    def __len__(self) -> int:
        return len(self._seqs_of)

    def add(self, page: Page) -> None:
        assert page.tags is not None
        seqs_of = self._seqs_of
        for seq, tag in enumerate(page.tags.split(SEPARATOR), page.first_seq):
            if not tag:
                continue
            seqs = seqs_of.get(tag)
            if seqs is None:
                seqs_of[tag] = seq
                self._fresh.append(tag)
            elif isinstance(seqs, int):
                seqs_of[tag] = array("Q", (seqs, seq))
            else:
                seqs.append(seq)

    def find(self, match: TagMatch, bound: int) -> list[int]:
        """The seqs below `bound` whose tag matches, ascending."""
        result: list[int] = []
        for name in self._matching(match):
            seqs = self._seqs_of[name]
            if isinstance(seqs, int):
                if seqs < bound:
                    result.append(seqs)
            else:
                result += seqs[: bisect_left(seqs, bound)]
        if match.prefix:
            result.sort()
        return result

    def forget(self, match: TagMatch, is_live: Callable[[int], bool]) -> None:
        """Drop gone records from the entries that match."""
        for name in self._matching(match):
            self._keep(name, [seq for seq in _all(self._seqs_of[name]) if is_live(seq)])

    def prune(self, low: int) -> None:
        """Drop every seq below `low`."""
        stale = [name for name, seqs in self._seqs_of.items() if (seqs if isinstance(seqs, int) else seqs[0]) < low]
        for name in stale:
            seqs = _all(self._seqs_of[name])
            self._keep(name, seqs[bisect_left(seqs, low) :])

    def entries(self) -> list[tuple[bytes, Seqs]]:
        """Every tag with its seqs, tags in no order. May be asked for on any thread: it is one step of the interpreter."""
        return list(self._seqs_of.items())

    def _keep(self, name: bytes, seqs: list[int]) -> None:
        if not seqs:
            del self._seqs_of[name]
        else:
            self._seqs_of[name] = seqs[0] if len(seqs) == 1 else array("Q", seqs)

    def _matching(self, match: TagMatch) -> list[bytes]:
        text = msgspec.json.encode(match.text)
        if not match.prefix:
            return [text] if text in self._seqs_of else []
        prefix = text[:-1]
        names = self._sorted_names()
        result: list[bytes] = []
        for index in range(bisect_left(names, prefix), len(names)):
            name = names[index]
            if not name.startswith(prefix):
                break
            # A name that was dropped and came back stands twice; one that was dropped stands for nothing.
            if name in self._seqs_of and not (result and result[-1] == name):
                result.append(name)
        return result

    def _sorted_names(self) -> list[bytes]:
        if self._fresh:
            self._names += self._fresh
            self._names.sort()
            self._fresh = []
            if len(self._names) > 2 * len(self._seqs_of) + 64:
                self._names = sorted(self._seqs_of)
        return self._names


def _all(seqs: Seqs) -> list[int]:
    return [seqs] if isinstance(seqs, int) else list(seqs)
