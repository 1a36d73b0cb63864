"""What a power cut leaves: all that was synced, of the rest what was drawn, and the write in flight torn."""

from random import Random

import pytest

from topics.testing.disk.survival import InFlight, Survival, Survive, Torn
from topics.testing.disk.tree import FileNode, Tree, Write

SECTOR_BYTES = 4


def tree_with_unsynced_parts() -> Tree:
    """A synced file with an unsynced change, and a file whose name and content are not synced."""
    tree = Tree()
    synced = tree.create("synced")
    synced.change(Write(0, b"aaaabbbb"))
    synced.sync()
    tree.sync_directory("")
    synced.change(Write(0, b"AAAABBBB"))
    tree.create("new").change(Write(0, b"cccc"))
    return tree


def contents(tree: Tree) -> dict[str, bytes]:
    return {path: node.current.read(0, node.current.length) for path, node in tree.walk() if isinstance(node, FileNode)}


@pytest.mark.parametrize(
    ("survive", "left"),
    [("none", {"synced": b"aaaabbbb"}), ("all", {"new": b"cccc", "synced": b"AAAABBBB"})],
)
def test_what_was_synced_is_left_and_the_rest_survives_or_not(survive: Survive, left: dict[str, bytes]) -> None:
    tree = tree_with_unsynced_parts()
    survived = Survival(survive, SECTOR_BYTES, Random(1)).of(tree, None)
    assert contents(survived) == left
    assert not survived.unsynced
    assert contents(tree) == {"new": b"cccc", "synced": b"AAAABBBB"}, "the tree itself is not changed"


def test_unsynced_sectors_and_names_survive_independently_of_each_other() -> None:
    found = [
        contents(Survival("random", SECTOR_BYTES, Random(seed)).of(tree_with_unsynced_parts(), None))
        for seed in range(300)
    ]
    assert {each["synced"] for each in found} == {b"aaaabbbb", b"AAAAbbbb", b"aaaaBBBB", b"AAAABBBB"}
    assert {"new" in each for each in found} == {True, False}


@pytest.mark.parametrize(
    ("torn", "written"), [("prefix", b"123456"), ("zero", b"123456\0\0"), ("garbage", b"123456??")]
)
def test_write_in_flight_ends_within_a_sector(torn: Torn, written: bytes) -> None:
    write = InFlight(FileNode(), 0, b"1234567890").torn(SECTOR_BYTES, Random(1), torn, 6)
    assert write.offset == 0
    assert (write.data[:6], len(write.data)) == (written[:6], len(written))
    assert (write.data == written) == (torn != "garbage")
    assert write.data != b"12345678"


def test_write_in_flight_reaches_its_file_only() -> None:
    tree = tree_with_unsynced_parts()
    survived = Survival("all", SECTOR_BYTES, Random(1)).of(tree, (tree.file("new"), Write(4, b"dd")))
    assert contents(survived) == {"new": b"ccccdd", "synced": b"AAAABBBB"}
