"""Files and directories in memory that know which of their changes were synced.

    a file        synced bytes and length, then every change since the last good `sync`, in order
    a directory   synced names; the changes since then are entries of the tree

An entry is one or more changes of names that survive a power cut together. It needs other entries: those that
changed the same names before it, and those without which it would leave a file with no name. Syncing a directory
syncs the entries in it and all that they need.

No power and no chance here: `disk.py` decides when a change happens, `survival.py` which of them is found again.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topics.storage.fs import names_in


class Content:
    """Bytes and a length. Bytes between `data` and `length` are zeros that were never written, and take no memory."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.length = 0

    def copy(self) -> "Content":
        twin = Content()
        twin.data[:] = self.data
        twin.length = self.length
        return twin

    def read(self, offset: int, length: int) -> bytes:
        end = max(min(offset + length, self.length), offset)
        written = bytes(self.data[offset:end])
        return written + bytes(end - offset - len(written))

    def put(self, offset: int, data: bytes) -> None:
        """Change bytes but not the length."""
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def set_length(self, length: int) -> None:
        del self.data[length:]
        self.length = length


@dataclass(frozen=True)
class Write:
    offset: int
    data: bytes

    def length_after(self, length: int) -> int:
        return max(length, self.offset + len(self.data)) if self.data else length

    def apply(self, content: Content) -> None:
        content.put(self.offset, self.data)
        content.set_length(self.length_after(content.length))


@dataclass(frozen=True)
class Truncate:
    length: int

    def length_after(self, length: int) -> int:
        return self.length

    def apply(self, content: Content) -> None:
        content.set_length(self.length)


@dataclass(frozen=True)
class Grow:
    """What `allocate` does."""

    length: int

    def length_after(self, length: int) -> int:
        return max(length, self.length)

    def apply(self, content: Content) -> None:
        content.set_length(self.length_after(content.length))


Change = Write | Truncate | Grow


class FileNode:
    """`current` is what readers see; `synced` and any part of the changes is what a power cut may leave."""

    def __init__(self) -> None:
        self.current = Content()
        self.synced = Content()
        self.unsynced: list[Change] = []
        # Their sync failed: they may have reached the disk, but no later sync will see to it.
        self.lost: list[Change] = []

    def change(self, change: Change) -> None:
        change.apply(self.current)
        self.unsynced.append(change)

    def sync(self) -> None:
        """What is unsynced is synced. What an earlier failure lost is not, and is now certain to be gone."""
        for change in self.unsynced:
            change.apply(self.synced)
        self.unsynced.clear()
        self.lost.clear()

    def fail_sync(self) -> None:
        self.lost += self.unsynced
        self.unsynced.clear()


class DirectoryNode:
    """`names` is what readers see, `synced` what a power cut leaves at least."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.synced: dict[str, Node] = {}
        # The newest entry that changed a name; it may have been synced since.
        self.last_entry: dict[str, int] = {}


Node = FileNode | DirectoryNode

# In this directory, this name now means this node, or nothing.
NameChange = tuple[DirectoryNode, str, Node | None]


@dataclass(frozen=True)
class Entry:
    changes: tuple[NameChange, ...]
    needs: frozenset[int]


class Tree:
    """Names as the system calls change them, with the errors that Linux gives."""

    def __init__(self) -> None:
        self.root = DirectoryNode()
        # What no sync has made durable yet, by number. The numbers of those that one did are not used again.
        self.unsynced: dict[int, Entry] = {}
        self._numbers_used = 0

    def node(self, path: str) -> Node:
        return self._node(names_in(path), path)

    def directory(self, path: str) -> DirectoryNode:
        return self._directory(names_in(path), path)

    def file(self, path: str) -> FileNode:
        node = self.node(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        return node

    def files(self) -> Iterator[FileNode]:
        """Every file once, under however many names it is found."""
        return iter({id(node): node for _, node in self.walk() if isinstance(node, FileNode)}.values())

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every path in order, a directory before what is in it."""
        return _walk(self.root, "")

    def create(self, path: str) -> FileNode:
        directory, name = self._parent(path)
        if name in directory.names:
            raise os_error(errno.EEXIST, path)
        file = FileNode()
        self._change_names((directory, name, file))
        return file

    def remove(self, path: str) -> None:
        self.file(path)
        directory, name = self._parent(path)
        self._change_names((directory, name, None))

    def make_directory(self, path: str) -> None:
        names = names_in(path)
        directory = self.root
        for depth, name in enumerate(names, start=1):
            node = directory.names.get(name)
            if node is None:
                node = DirectoryNode()
                self._change_names((directory, name, node))
            elif isinstance(node, FileNode):
                raise os_error(errno.EEXIST if depth == len(names) else errno.ENOTDIR, path)
            directory = node

    def remove_directory(self, path: str) -> None:
        node = self.directory(path)
        if node.names:
            raise os_error(errno.ENOTEMPTY, path)
        directory, name = self._parent(path)
        # Not before what was moved out of it has arrived.
        self._change_names((directory, name, None), after=self._entries_in(node))

    def rename(self, source: str, target: str) -> None:
        source_directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        node = source_directory.names.get(source_name)
        if node is None:
            raise os_error(errno.ENOENT, source)
        replaced = target_directory.names.get(target_name)
        if node is replaced:
            return
        if _is_on_the_way(target, source):
            raise os_error(errno.ENOTEMPTY, target)
        if isinstance(node, DirectoryNode):
            if _is_on_the_way(source, target):
                raise os_error(errno.EINVAL, target)
            if isinstance(replaced, FileNode):
                raise os_error(errno.ENOTDIR, target)
        elif isinstance(replaced, DirectoryNode):
            raise os_error(errno.EISDIR, target)
        inside: Sequence[int] = ()
        if isinstance(replaced, DirectoryNode):
            if replaced.names:
                raise os_error(errno.ENOTEMPTY, target)
            inside = self._entries_in(replaced)

        left = (source_directory, source_name, None)
        arrived = (target_directory, target_name, node)
        if source_directory is target_directory:
            self._change_names(left, arrived, after=inside)
        elif isinstance(node, DirectoryNode):
            # Together, because a directory is never in two places.
            self._change_names(left, arrived, after=[*inside, *self._entries_along(target)])
        else:
            # Apart, because each directory has a sync of its own; the old name goes only when the new one is there.
            arrival = self._change_names(arrived)
            self._change_names(left, after=[arrival, *self._entries_along(target)])

    def sync_directory(self, path: str) -> None:
        needed = set(self._entries_in(self.directory(path)))
        unseen = [*needed]
        while unseen:
            more = (self.unsynced[unseen.pop()].needs & self.unsynced.keys()) - needed
            needed |= more
            unseen += more
        for number in sorted(needed):
            for directory, name, node in self.unsynced.pop(number).changes:
                set_name(directory.synced, name, node)

    def _node(self, names: tuple[str, ...], path: str) -> Node:
        node: Node = self.root
        for name in names:
            if isinstance(node, FileNode):
                raise os_error(errno.ENOTDIR, path)
            below = node.names.get(name)
            if below is None:
                raise os_error(errno.ENOENT, path)
            node = below
        return node

    def _directory(self, names: tuple[str, ...], path: str) -> DirectoryNode:
        node = self._node(names, path)
        if isinstance(node, FileNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        names = names_in(path)
        return self._directory(names[:-1], path), names[-1]

    def _change_names(self, *changes: NameChange, after: Sequence[int] = ()) -> int:
        """Make changes that survive together, and not before the entries `after`. Returns their entry's number."""
        number = self._numbers_used
        self._numbers_used += 1
        needs = set(after)
        for directory, name, node in changes:
            if name in directory.last_entry:
                needs.add(directory.last_entry[name])
            directory.last_entry[name] = number
            set_name(directory.names, name, node)
        self.unsynced[number] = Entry(changes, frozenset(needs))
        return number

    def _entries_in(self, directory: DirectoryNode) -> Sequence[int]:
        return [
            number
            for number, entry in self.unsynced.items()
            if any(where is directory for where, _name, _node in entry.changes)
        ]

    def _entries_along(self, path: str) -> Sequence[int]:
        """The entries that gave the directories on the way to `path` their names.

        What is moved there needs them: without one of them the directory could be out of reach, or, if it came
        from below what is moved, even inside of it.
        """
        names = names_in(path)[:-1]
        parents = [self._directory(names[:depth], path) for depth in range(len(names))]
        return [
            parent.last_entry[name] for parent, name in zip(parents, names, strict=True) if name in parent.last_entry
        ]


def set_name(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def os_error(number: int, path: str) -> OSError:
    """The error of a system call, of the class that belongs to its number."""
    return OSError(number, os.strerror(number), path)


def _is_on_the_way(directory: str, path: str) -> bool:
    names = names_in(directory)
    return names_in(path)[: len(names)] == names


def _walk(directory: DirectoryNode, prefix: str) -> Iterator[tuple[str, Node]]:
    for name, node in sorted(directory.names.items()):
        yield prefix + name, node
        if isinstance(node, DirectoryNode):
            yield from _walk(node, f"{prefix}{name}/")
