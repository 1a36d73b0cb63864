"""Files and directories that know which of their changes are synced, with the errors of Linux."""

import errno
import os
from collections.abc import Callable

import pytest

from topics.testing.disk.tree import Content, DirectoryNode, FileNode, Grow, Tree, Truncate, Write


def synced_paths(tree: Tree) -> list[str]:
    """What a power cut leaves at least."""
    found: list[str] = []

    def walk(directory: DirectoryNode, prefix: str) -> None:
        for name, node in sorted(directory.synced.items()):
            found.append(prefix + name)
            if isinstance(node, DirectoryNode):
                walk(node, f"{prefix}{name}/")

    walk(tree.root, "")
    return found


def paths(tree: Tree) -> list[str]:
    return [path for path, _ in tree.walk()]


def test_content_reads_zeros_where_nothing_was_written_and_nothing_behind_its_length() -> None:
    content = Content()
    for change in (Grow(6), Write(2, b"ab"), Truncate(5), Grow(3)):
        change.apply(content)
    assert (content.length, content.read(0, 100), content.read(9, 1)) == (5, b"\0\0ab\0", b"")
    Truncate(3).apply(content)
    Grow(5).apply(content)
    assert content.read(0, 5) == b"\0\0a\0\0"


def test_file_has_its_unsynced_changes_until_a_sync_and_loses_them_in_one_that_fails() -> None:
    file = FileNode()
    file.change(Write(0, b"a"))
    file.sync()
    file.change(Write(1, b"b"))
    assert (file.current.read(0, 9), file.synced.read(0, 9)) == (b"ab", b"a")
    file.fail_sync()
    file.change(Write(2, b"c"))
    file.sync()
    assert file.synced.read(0, 9) == b"a\0c", "a later sync does not write what an earlier one lost"


def test_name_is_durable_when_its_directory_is_synced() -> None:
    tree = Tree()
    tree.make_directory("d")
    tree.create("d/file")
    assert (paths(tree), synced_paths(tree)) == (["d", "d/file"], [])
    tree.sync_directory("")
    assert synced_paths(tree) == ["d"]
    tree.sync_directory("d")
    assert synced_paths(tree) == ["d", "d/file"]
    tree.remove("d/file")
    assert (paths(tree), synced_paths(tree)) == (["d"], ["d", "d/file"])


def test_file_that_is_moved_leaves_its_old_directory_only_when_its_new_name_is_durable() -> None:
    tree = Tree()
    for path in ("from", "to"):
        tree.make_directory(path)
    file = tree.create("from/file")
    for path in ("", "from"):
        tree.sync_directory(path)
    tree.rename("from/file", "to/file")
    assert paths(tree) == ["from", "to", "to/file"]
    tree.sync_directory("from")
    assert synced_paths(tree) == ["from", "to", "to/file"]
    assert list(tree.files()) == [file]


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda tree: tree.create("file"), errno.EEXIST),
        (lambda tree: tree.create("missing/file"), errno.ENOENT),
        (lambda tree: tree.create("file/below"), errno.ENOTDIR),
        (lambda tree: tree.file("d"), errno.EISDIR),
        (lambda tree: tree.remove("missing"), errno.ENOENT),
        (lambda tree: tree.remove("d"), errno.EISDIR),
        (lambda tree: tree.make_directory("file"), errno.EEXIST),
        (lambda tree: tree.make_directory("file/below"), errno.ENOTDIR),
        (lambda tree: tree.remove_directory("d"), errno.ENOTEMPTY),
        (lambda tree: tree.remove_directory("file"), errno.ENOTDIR),
        (lambda tree: tree.rename("missing", "other"), errno.ENOENT),
        (lambda tree: tree.rename("file", "d"), errno.EISDIR),
        (lambda tree: tree.rename("d", "file"), errno.ENOTDIR),
        (lambda tree: tree.rename("d", "d/below"), errno.EINVAL),
        (lambda tree: tree.rename("empty", "d"), errno.ENOTEMPTY),
    ],
)
def test_call_that_linux_refuses_is_refused_with_its_error_and_changes_nothing(
    call: Callable[[Tree], object], number: int
) -> None:
    tree = Tree()
    for path in ("d", "empty"):
        tree.make_directory(path)
    for path in ("file", "d/inner"):
        tree.create(path)
    before = paths(tree)
    with pytest.raises(OSError, match=os.strerror(number)) as refused:
        call(tree)
    assert (refused.value.errno, paths(tree)) == (number, before)
