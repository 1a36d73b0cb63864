"""One scripted run that meets everything a broker does to its disk, in a few hundred steps.

Each stage is a function of a world; between two stages nothing is under way. `play` runs them all, restarting where a
stage says so.
"""

import itertools
from collections.abc import Iterator

from tests.crash.world import Text, World
from topics.model.records.match import TagMatch

Numbers = Iterator[int]


def texts(numbers: Numbers, count: int, *, tag: str | None = None, size: int = 40, rich: bool = False) -> list[Text]:
    """Records that differ in their data."""
    result = []
    for _ in range(count):
        number = next(numbers)
        data = b'{"n":%d, "pad":"%b"}' % (number, b"x" * (size + number % 7))
        result.append(
            Text(
                data,
                b'"%b-%d"' % (tag.encode(), number % 3) if tag else b"",
                '"nöde\\n"'.encode() if rich else b"",
                b'{ "k": 1.0, "big": 123456789012345678901234567890 }' if rich else b"",
            )
        )
    return result


def create_all_classes(world: World, numbers: Numbers) -> None:
    """Topics of all four classes, by PUT and by first write, some in the same turn."""
    world.configure("fsync", durability="fsync")
    world.configure("disk")
    world.append("memory", texts(numbers, 2, tag="m"), config='{"durability":"memory"}')
    world.run()
    world.append("ephemeral", texts(numbers, 3), config='{"durability":"ephemeral"}')
    world.append("capped", texts(numbers, 1), config='{"durability":"fsync","cap_records":8}')
    world.append("short", texts(numbers, 2), config='{"ttl_ms":5000}')
    world.run()


def append_everywhere(world: World, numbers: Numbers) -> None:
    """Single records and batches, with everything a record can carry, several topics in one turn."""
    for name in ("fsync", "disk", "memory", "ephemeral", "capped", "short"):
        world.append(name, texts(numbers, 1))
        world.append(name, texts(numbers, 3, tag="t", rich=True), key=f"key-{name}")
    world.run()
    for name in ("disk", "fsync"):
        world.append(name, texts(numbers, 2, tag="u"))
        world.run()


def repeat_keys(world: World, numbers: Numbers) -> None:
    for name in ("fsync", "disk", "memory"):
        first = [write for write in world.promises.writes if write.key == f"key-{name}" and write.state == "acked"]
        before = len(world.promises.writes)
        world.append(name, texts(numbers, 3), key=f"key-{name}")
        world.run()
        if first:
            assert len(world.promises.writes) == before, "a repeated key wrote again"


def delete_hot(world: World, numbers: Numbers) -> None:
    """The front, the middle and by prefix, while the records are in memory."""
    for name in ("fsync", "disk"):
        world.delete(name, match=TagMatch("u-1", False))
        world.delete(name, before_seq=3)
        world.append(name, texts(numbers, 1, tag="v"))
        world.delete(name, match=TagMatch("t-", True), before_seq=4)
    world.run()


def fill_until_sealed(world: World, numbers: Numbers) -> None:
    """Grow past the size of a segment; deletes arrive while the segments are written."""
    for _ in range(9):
        world.append("fsync", texts(numbers, 3, tag="s"))
        world.append("disk", texts(numbers, 2, tag="s"))
        world.runtime.turn()
        world.runtime.turn()
        if world.runtime.waiting_aside:
            world.runtime.finish_one()
    world.delete("fsync", match=TagMatch("s-1", False))
    world.delete("disk", match=TagMatch("s-1", False))
    world.run()


def delete_sealed(world: World, numbers: Numbers) -> None:
    """Some records of sealed segments, then all of one, then everything below a seq."""
    for name in ("fsync", "disk"):
        world.delete(name, match=TagMatch("s-2", False))
        world.run()
        world.delete(name, match=TagMatch("s-0", False), before_seq=20)
        world.delete(name, match=TagMatch("t-", True))
        world.run()
    world.append("fsync", texts(numbers, 1, tag="s"))
    world.run()


def evict_by_cap(world: World, numbers: Numbers) -> None:
    for _ in range(7):
        world.append("capped", texts(numbers, 4, tag="c", size=90))
        world.run()


def expire(world: World, numbers: Numbers) -> None:
    world.append("short", texts(numbers, 2))
    world.run()
    world.advance(3000)
    world.append("short", texts(numbers, 1))
    world.advance(2500)
    world.append("short", texts(numbers, 1))
    world.run()


def checkpoint(world: World, numbers: Numbers) -> None:
    """A snapshot while writes go on."""
    world.checkpoint()
    world.append("disk", texts(numbers, 1, tag="w"))
    world.delete("disk", match=TagMatch("w", True))
    world.append("fsync", texts(numbers, 1, tag="w"))
    world.run()
    world.delete("fsync", match=TagMatch("w", True))
    world.run()


def change_classes(world: World, numbers: Numbers) -> None:
    world.configure("memory", durability="fsync")
    world.append("memory", texts(numbers, 2))
    world.configure("disk", durability="ephemeral")
    world.run()
    world.append("disk", texts(numbers, 2))
    world.run()
    world.configure("disk", durability="disk")
    world.append("disk", texts(numbers, 2, tag="after"))
    world.run()
    world.configure("capped", cap_records=4)
    world.run()


def delete_and_recreate(world: World, numbers: Numbers) -> None:
    world.delete_topic("disk")
    world.append("disk", texts(numbers, 2, tag="again"))
    world.run()
    world.append("disk", texts(numbers, 3, tag="again"), key="key-disk")
    world.delete_topic("short")
    world.run()


def drop_whole_segments(world: World, numbers: Numbers) -> None:
    """Everything so far goes; files of whole segments are removed."""
    for _ in range(6):
        world.append("fsync", texts(numbers, 3, tag="x"))
        world.append("disk", texts(numbers, 3, tag="x"))
        world.run()
    world.checkpoint()
    world.run()
    for name in ("fsync", "disk"):
        known = world.promises.named(name)
        assert known is not None
        world.delete(name, match=TagMatch("x-", True), before_seq=known.head_seq - 8)
        world.run()
        world.delete(name, before_seq=known.head_seq - 2)
        world.run()


STAGES = [
    create_all_classes,
    append_everywhere,
    repeat_keys,
    delete_hot,
    fill_until_sealed,
    delete_sealed,
    evict_by_cap,
    checkpoint,
    expire,
    checkpoint,
    change_classes,
    delete_and_recreate,
    drop_whole_segments,
    checkpoint,
    fill_until_sealed,
    delete_sealed,
]


def play(world: World, stages: int = len(STAGES), first: int = 0) -> None:
    numbers = itertools.count(first)
    for stage in STAGES[:stages]:
        stage(world, numbers)
