"""What a power cut leaves of a tree: all that was synced, and of the rest what hardware and journals may leave.

- Data, sector by sector. A sector holds what the first n changes to it made of it; n differs from sector to
  sector, so a later write may be there while an earlier one is not. Within one sector that cannot happen, since
  the page cache hands the disk whole sectors.
- Lengths, apart from the data. A file may be long enough for bytes that are zeros, or too short for bytes that
  had arrived.
- Names, in any order that leaves no entry without the entries it needs.
- The write in flight, torn: a prefix of it, or a prefix and then zeros or garbage to the end of that sector.
  Bytes outside the range of that write are not touched.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topics.testing.disk.tree import (
    Change,
    Content,
    DirectoryNode,
    Entry,
    FileNode,
    Grow,
    Node,
    Tree,
    Truncate,
    Write,
    set_name,
)

Survive = Literal["none", "all", "random"]
Torn = Literal["prefix", "zero", "garbage"]

# How likely one unsynced thing is to survive is drawn first, so that seeds find disks that lost nearly nothing and
# disks that lost nearly all, not only those that lost half.
_LIKELY = (0.0, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class InFlight:
    """The write that was going on when the machine stopped."""

    file: FileNode
    offset: int
    data: bytes

    def torn(self, sector_bytes: int, chance: random.Random, torn: Torn | None, torn_bytes: int | None) -> Write:
        """As much of it as arrived: `torn_bytes`, then what `torn` says. Chance chooses what is None."""
        kept = chance.randint(0, len(self.data))
        kind = chance.choice(("prefix", "zero", "garbage"))
        if torn_bytes is not None:
            kept = min(torn_bytes, len(self.data))
        if torn is not None:
            kind = torn
        reached = self.offset + kept
        rest = min(sector_bytes - reached % sector_bytes, len(self.data) - kept)
        tail = {"prefix": b"", "zero": bytes(rest), "garbage": chance.randbytes(rest)}[kind]
        return Write(self.offset, self.data[:kept] + tail)


@dataclass(frozen=True)
class Survival:
    """One way in which the power may have gone out."""

    survive: Survive
    sector_bytes: int
    chance: random.Random

    def of(self, tree: Tree, in_flight: tuple[FileNode, Write] | None) -> Tree:
        """A new tree of what survives, all of it synced. `in_flight` is a last, torn write to one of the files."""
        survived = Tree()
        names_of: dict[int, dict[str, Node]] = {}
        for entry in self._entries(tree.unsynced):
            for directory, name, node in entry.changes:
                set_name(names_of.setdefault(id(directory), dict(directory.synced)), name, node)
        twins: dict[int, Node] = {id(tree.root): survived.root}
        unvisited = [(tree.root, survived.root)]
        while unvisited:
            directory, copy_of_directory = unvisited.pop()
            for name, node in sorted(names_of.get(id(directory), directory.synced).items()):
                twin = twins.get(id(node))
                if twin is None and isinstance(node, FileNode):
                    last = [in_flight[1]] if in_flight is not None and in_flight[0] is node else []
                    twin = FileNode()
                    twin.synced = self._content(node, last)
                    twin.current = twin.synced.copy()
                elif twin is None and isinstance(node, DirectoryNode):
                    twin = DirectoryNode()
                    unvisited.append((node, twin))
                assert twin is not None
                twins[id(node)] = copy_of_directory.names[name] = copy_of_directory.synced[name] = twin
        return survived

    def _entries(self, unsynced: Mapping[int, Entry]) -> Iterator[Entry]:
        """Those that survive, in order. What one needs is synced already, or survives with it."""
        gone: set[int] = set()
        likely = self.chance.choice(_LIKELY)
        for number, entry in sorted(unsynced.items()):
            lucky = self.survive == "all" or (self.survive == "random" and self.chance.random() < likely)
            if lucky and not entry.needs & gone:
                yield entry
            else:
                gone.add(number)

    def _content(self, file: FileNode, last: Sequence[Write]) -> Content:
        content = file.synced.copy()
        changes = [*file.lost, *file.unsynced, *last]
        match self.survive:
            case "none":
                pass
            case "all":
                for change in changes:
                    change.apply(content)
            case "random":
                self._disorder(content, changes)
        return content

    def _disorder(self, content: Content, changes: Sequence[Change]) -> None:
        """Each sector as some of the changes to it left it, and one of the lengths that the file has had."""
        lengths = [content.length]
        pieces: list[tuple[int, bytes]] = []
        end = len(content.data)
        for change in changes:
            lengths.append(change.length_after(lengths[-1]))
            match change:
                case Write(offset, data):
                    pieces += _cut(offset, data, self.sector_bytes)
                    end = max(end, offset + len(data))
                case Truncate(length):
                    pieces += _cut(length, bytes(max(end - length, 0)), self.sector_bytes)
                case Grow():
                    pass
        likely = self.chance.choice(_LIKELY)
        arrived = Counter(offset // self.sector_bytes for offset, _ in pieces)
        for sector, changes_of_sector in arrived.items():
            if self.chance.random() >= likely:
                arrived[sector] = self.chance.randrange(changes_of_sector)
        for offset, data in pieces:
            sector = offset // self.sector_bytes
            if arrived[sector] > 0:
                arrived[sector] -= 1
                content.put(offset, data)
        content.set_length(lengths[-1] if self.chance.random() < likely else self.chance.choice(lengths))


def _cut(offset: int, data: bytes, sector_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The same bytes in pieces that lie in one sector each."""
    end = offset + len(data)
    start = offset
    while start < end:
        stop = min(start - start % sector_bytes + sector_bytes, end)
        yield start, data[start - offset : stop - offset]
        start = stop
