"""The tag index of a hot segment: which records carry a tag, exactly or by prefix, without looking at the log.

Tags are held as pages hold them, as canonical JSON strings. That encoding works letter by letter, so a prefix of a tag
is a prefix of its encoding without the closing quote. Most tags have one record: those map to a plain int.

For prefixes the names are kept in sorted blocks. New names are sorted into blocks when a prefix is asked for, a block per
step; a search looks into every block. (A million names: 250 blocks, 0.2 ms to search; to sort them at once took 0.6 s.)
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from topics.model.records.match import TagMatch
from topics.model.records.page import SEPARATOR, Page
from topics.model.steps import Steps

Seqs: TypeAlias = "int | array[int]"

# Names of one block, and of one step: sorting this number of names takes 2 ms.
BLOCK_NAMES = 4096
# Names or records looked at in one step, and blocks.
STEP_NAMES = 1000
STEP_BLOCKS = 32
# Greater than every byte of UTF-8: behind a prefix it follows all that begins with the prefix.
_AFTER_ALL = b"\xff"


class TagIndex:
    """Tag -> ascending seqs. Gone records may still be listed until they are pruned or forgotten."""

    def __init__(self) -> None:
        self._seqs_of: dict[bytes, Seqs] = {}
        # Sorted names, at most BLOCK_NAMES each. A name that was dropped may still be there; one that was dropped and
        # came back is there twice.
        self._blocks: list[list[bytes]] = []
        # Names that are in no block yet.
        self._fresh: list[bytes] = []
        # Columns of tags of records that are not indexed yet, each with the seq of its first record, in order.
        self._unindexed: deque[tuple[int, bytes]] = deque()
        # Columns of tags of records that are gone, each with the seq of its first record: not pruned yet.
        self._stale: list[tuple[int, bytes]] = []
        # Entries and blocks of records all of which are gone: to free a million at once would take 25 ms.
        self._unused: list[tuple[dict[bytes, Seqs], list[list[bytes]]]] = []

    def __len__(self) -> int:
        """Tags that are indexed, plus one for each page that is not."""
        return len(self._seqs_of) + len(self._unindexed)

    @property
    def is_stale(self) -> bool:
        """Whether `tidy` has something to do."""
        return bool(self._stale or self._unused or self._unindexed)

    def add(self, page: Page, *, later: bool = False) -> None:
        """Index the page's records, which follow all others: now or, with `later`, when a search or `tidy` gets to it."""
        assert page.tags is not None
        if later or self._unindexed:
            # One behind the other, so that the seqs of a tag ascend.
            self._unindexed.append((page.first_seq, page.tags))
        else:
            self._index(page.first_seq, page.tags)

    def _index(self, first_seq: int, tags: bytes) -> None:
        seqs_of = self._seqs_of
        for seq, tag in enumerate(tags.split(SEPARATOR), first_seq):
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

    def find(self, match: TagMatch, first: int, bound: int, found: bytearray) -> Steps[None]:
        """Set `found[seq - first]` to 1 for every seq from `first` to below `bound` whose tag matches."""
        names = yield from self._matching(match)
        for index, name in enumerate(names):
            if not index % STEP_NAMES:
                yield
            seqs = self._seqs_of.get(name)
            if isinstance(seqs, int):
                if first <= seqs < bound:
                    found[seqs - first] = 1
            elif seqs is not None:
                start, stop = bisect_left(seqs, first), bisect_left(seqs, bound)
                for low in range(start, stop, STEP_NAMES):
                    for seq in seqs[low : min(low + STEP_NAMES, stop)]:
                        found[seq - first] = 1
                    yield

    def forget(self, match: TagMatch, is_live: Callable[[int], bool]) -> Steps[None]:
        """Drop gone records from the entries that match."""
        names = yield from self._matching(match)
        for index, name in enumerate(names):
            if not index % STEP_NAMES:
                yield
            seqs = self._seqs_of.get(name)
            if isinstance(seqs, int):
                if not is_live(seqs):
                    del self._seqs_of[name]
            elif seqs is not None:
                kept = array("Q")
                stop = len(seqs)
                for low in range(0, stop, STEP_NAMES):
                    kept.extend([seq for seq in seqs[low : min(low + STEP_NAMES, stop)] if is_live(seq)])
                    yield
                if self._seqs_of.get(name) is seqs:
                    # Records that were added between two steps follow the others.
                    kept.extend(seqs[stop:])
                    self._keep(name, kept)

    def gone(self, page: Page) -> None:
        """The page's records are gone: `tidy` drops them from their entries, some time."""
        if page.tags is not None:
            self._stale.append((page.first_seq, page.tags))

    def gone_all(self) -> None:
        """All records are gone. A large index is freed by `tidy`."""
        self._unindexed.clear()
        if len(self._seqs_of) > BLOCK_NAMES:
            self._unused.append((self._seqs_of, self._blocks))
        self._seqs_of = {}
        self._blocks = []
        self._fresh = []
        self._stale = []

    def tidy(self) -> Steps[None]:
        """Index what is not indexed yet, and drop the records of pages that are gone, which precede all others."""
        yield from self._index_all()
        while self._unused:
            entries, blocks = self._unused[-1]
            for _ in range(min(STEP_NAMES, len(entries))):
                entries.popitem()
            if blocks:
                blocks.pop()
            elif not entries:
                self._unused.pop()
            yield
        while self._stale:
            first_seq, tags = self._stale.pop()
            behind = first_seq + tags.count(SEPARATOR) + 1
            for tag in tags.split(SEPARATOR):
                seqs = self._seqs_of.get(tag) if tag else None
                if isinstance(seqs, int):
                    if seqs < behind:
                        del self._seqs_of[tag]
                elif seqs is not None and seqs[0] < behind:
                    self._keep(tag, seqs[bisect_left(seqs, behind) :])
            yield

    def entries(self, low: int) -> list[tuple[bytes, Seqs]]:
        """Every tag with its seqs from `low` on, tags in no order. May be asked for on any thread while nothing is added."""
        # Each one step of the interpreter. Columns first: what is indexed in between is found twice, not missed.
        unindexed = list(self._unindexed)
        entries = list(self._seqs_of.items())
        if unindexed:
            entries = _merged(entries, unindexed)
        elif not self._stale:
            return entries
        kept: list[tuple[bytes, Seqs]] = []
        for name, seqs in entries:
            if isinstance(seqs, int):
                if seqs >= low:
                    kept.append((name, seqs))
            elif seqs[-1] >= low:
                kept.append((name, seqs[bisect_left(seqs, low) :]))
        return kept

    def _keep(self, name: bytes, seqs: "array[int]") -> None:
        if not seqs:
            del self._seqs_of[name]
        else:
            self._seqs_of[name] = seqs[0] if len(seqs) == 1 else seqs

    def _index_all(self) -> Steps[None]:
        while self._unindexed:
            self._index(*self._unindexed[0])
            self._unindexed.popleft()
            yield

    def _matching(self, match: TagMatch) -> Steps[list[bytes]]:
        yield from self._index_all()
        text = msgspec.json.encode(match.text)
        if not match.prefix:
            return [text]
        prefix = text[:-1]
        yield from self._sort()
        names: list[bytes] = []
        for index, block in enumerate(list(self._blocks)):
            if not index % STEP_BLOCKS:
                yield
            names += block[bisect_left(block, prefix) : bisect_left(block, prefix + _AFTER_ALL)]
        return names

    def _sort(self) -> Steps[None]:
        """Put the fresh names into blocks. A block that is not full is filled first."""
        while self._fresh:
            block = self._blocks.pop() if self._blocks and len(self._blocks[-1]) < BLOCK_NAMES else []
            free_names = BLOCK_NAMES - len(block)
            block += self._fresh[-free_names:]
            del self._fresh[-free_names:]
            block.sort()
            self._blocks.append(block)
            if self._fresh:
                yield
        if len(self._blocks) * BLOCK_NAMES > 2 * len(self._seqs_of) + 2 * BLOCK_NAMES:
            yield from self._drop_unused()

    def _drop_unused(self) -> Steps[None]:
        """Drop tags without records, and duplicates."""
        used: dict[bytes, None] = {}
        for block in list(self._blocks):
            used.update([(name, None) for name in block if name in self._seqs_of])
            yield
        self._blocks = []
        self._fresh += used
        yield from self._sort()


def _merged(entries: list[tuple[bytes, Seqs]], unindexed: list[tuple[int, bytes]]) -> list[tuple[bytes, Seqs]]:
    """The entries with the tags of these columns, whose records may be among them already."""
    merged = {name: array("Q", (seqs,)) if isinstance(seqs, int) else array("Q", seqs) for name, seqs in entries}
    for first_seq, tags in unindexed:
        for seq, tag in enumerate(tags.split(SEPARATOR), first_seq):
            if tag:
                seqs = merged.setdefault(tag, array("Q"))
                if not seqs or seqs[-1] < seq:
                    seqs.append(seq)
    return [(name, seqs[0] if len(seqs) == 1 else seqs) for name, seqs in merged.items()]
