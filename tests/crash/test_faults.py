"""Calls to the disk fail: with an error, with a full disk, after half a write, in a sync.

A write that fails publishes nothing and is refused with the documented code; when the disk works again, so does the
server. A sync that fails is final: nothing that waited for it is acknowledged, nor anything later.
"""

import errno
import itertools
from collections.abc import Callable

import pytest
from hypothesis import settings as hypothesis_settings

from tests.crash.history import play, texts
from tests.crash.world import SMALL, World, compare, verify
from topics.broker.durability.recovery import recover
from topics.model.errors import CorruptStorage
from topics.runtime.backoff import MIN_DELAY_MS
from topics.testing.disk.fake_disk import FakeDisk, Fault, ShortWrite

LONG = hypothesis_settings().max_examples >= 1000
# As far as this the script goes before it looks after the fault; long enough to seal, to take snapshots and to rotate.
STAGES_PLAYED = 8
CODES = {"read_only", "storage_full", "storage_error"}


def steps_of_a_run() -> list[tuple[int, str, str]]:
    """Every step of an undisturbed run."""
    disk = FakeDisk()
    disk.make_directory("")
    play(World(disk, SMALL), STAGES_PLAYED)
    return [(step.step, step.op, step.path) for step in disk.trace]


def run_with_fault(step: int, fault: Fault) -> World | None:
    """The run with this one fault; None when it came so early that there was nothing to recover with."""
    disk = FakeDisk(fail_at={step: fault})
    disk.make_directory("")
    try:
        world = World(disk, SMALL)
    except OSError:
        return None
    play(world, STAGES_PLAYED)
    return world


def check_after(world: World) -> None:
    """What holds after any fault, while the server runs and after it has ended."""
    assert {error.code for error in world.errors} <= CODES
    compare(world.broker, world.promises, "clean")
    verify(world.fs.after_kill(), world.promises, world.clock, "kill", world.settings)
    verify(world.fs.after_power_cut("random"), world.promises, world.clock, "power", world.settings)
    verify(world.fs.after_power_cut("none"), world.promises, world.clock, "power", world.settings)


def is_log(path: str) -> bool:
    return path.endswith(".wal")


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_one_failing_call_anywhere_costs_nothing_that_was_acknowledged(error: int) -> None:
    steps = steps_of_a_run()
    stride = 1 if LONG else 7
    for step, op, path in steps[1 + error % stride :: stride]:
        world = run_with_fault(step, error)
        if world is None:
            continue
        try:
            check_after(world)
            if not (op == "sync_data" and is_log(path)) and not world.broker.committer.read_only:
                goes_on(world)
        except BaseException as failure:
            failure.add_note(f"{errno.errorcode[error]} at step {step}: {op} {path}")
            raise


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_half_a_write_anywhere_costs_nothing_that_was_acknowledged() -> None:
    steps = [step for step in steps_of_a_run() if step[1] == "write_at"]
    for number, (step, op, path) in enumerate(steps):
        for written in (1, 40, 200) if LONG else ((1, 40, 200)[number % 3],):
            if not LONG and number % 2:
                continue
            world = run_with_fault(step, ShortWrite(written, errno.EIO if number % 4 else errno.ENOSPC))
            if world is None:
                continue
            try:
                check_after(world)
                goes_on(world)
            except BaseException as failure:
                failure.add_note(f"{written} bytes written at step {step}: {op} {path}")
                raise


def goes_on(world: World) -> None:
    """The fault is over: after the delay of failed work, writes succeed for every topic and are kept."""
    world.advance(MIN_DELAY_MS)
    numbers = itertools.count(1_000_000)
    before = len(world.errors)
    for name in list(world.broker.state.topics):
        world.append(name, texts(numbers, 2, tag="after"))
    world.append("new", texts(numbers, 2), config='{"durability":"fsync"}')
    world.run()
    assert world.errors[before:] == []
    compare(world.broker, world.promises, "clean")
    verify(world.fs.after_kill(), world.promises, world.clock, "kill", world.settings)


@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_failed_sync_is_never_followed_by_an_acknowledgement_that_needs_it(durability: str) -> None:
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk)
    numbers = itertools.count()
    world.append("a", texts(numbers, 2), config=f'{{"durability":"{durability}"}}')
    world.run()
    disk.fault = lambda step, op, path: errno.EIO if op == "sync_data" and is_log(path) else None
    for _ in range(SMALL.margin):
        world.append("a", texts(numbers, 1))
    world.run()
    # Syncs succeed again, but the log stays read-only.
    disk.fault = None
    world.advance(5000)
    later = [world.append("a", texts(numbers, 1)) for _ in range(3)]
    later.append(world.append("b", texts(numbers, 1)))
    world.delete("a", before_seq=2)
    world.run()
    assert [write.state for write in later] == ["unknown"] * 4
    assert {error.code for error in world.errors} == {"read_only"}
    assert world.broker.committer.read_only
    check_after(world)


@pytest.mark.parametrize(
    ("error", "code"), [(errno.ENOSPC, "storage_full"), (errno.EDQUOT, "storage_full"), (errno.EIO, "storage_error")]
)
def test_a_failed_write_is_refused_with_its_code_and_its_seqs_are_given_to_the_next(error: int, code: str) -> None:
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk)
    numbers = itertools.count()
    first = world.append("a", texts(numbers, 2))
    world.run()
    disk.fault = lambda step, op, path: error if op == "write_at" and is_log(path) else None
    refused = [world.append("a", texts(numbers, 2)), world.append("b", texts(numbers, 1))]
    world.configure("c")
    world.delete("a", before_seq=2)
    world.run()
    assert [write.state for write in refused] == ["refused", "refused"]
    assert [each.code for each in world.errors] == [code] * 4
    disk.fault = None
    world.advance(MIN_DELAY_MS)
    after = world.append("a", texts(numbers, 1))
    world.run()
    assert after.first_seq == first.first_seq + 2
    check_after(world)


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_refused_write_whose_bytes_reached_the_disk_is_not_there_after_a_power_cut(durability: str) -> None:
    """All of its frames may be in the file when the call fails; they are taken back for good before it is refused."""
    for seed in range(30):
        disk = FakeDisk(seed)
        disk.make_directory("")
        world = World(disk)
        numbers = itertools.count()
        world.append("a", texts(numbers, 2), config=f'{{"durability":"{durability}"}}')
        world.run()
        disk.fault = lambda _step, op, path: (
            ShortWrite(1 << 20, errno.EIO) if op == "write_at" and is_log(path) else None
        )
        refused = [world.append("a", texts(numbers, 1)), world.append("b", texts(numbers, 1))]
        world.run()
        disk.fault = None
        assert [write.state for write in refused] == ["refused", "refused"]
        verify(disk.after_power_cut("random", seed=seed), world.promises, world.clock, "power", world.settings)
        # The next frame takes the place of the refused ones.
        world.append("a", texts(numbers, 1))
        world.run()
        verify(disk.after_power_cut("random", seed=seed), world.promises, world.clock, "power", world.settings)
        verify(disk.after_kill(), world.promises, world.clock, "kill", world.settings)


def test_a_full_disk_refuses_writes_until_there_is_room_again() -> None:
    disk = FakeDisk(capacity_bytes=30_000)
    disk.make_directory("")
    world = World(disk)
    numbers = itertools.count()
    world.append("a", texts(numbers, 2), config='{"durability":"fsync"}')
    world.run()
    for _ in range(400):
        world.append("a", texts(numbers, 3, size=100))
        world.run()
        if world.errors:
            break
    assert {error.code for error in world.errors} == {"storage_full"}
    check_after(world)
    disk.capacity_bytes = 200_000
    goes_on(world)


def test_an_eviction_that_could_not_be_written_is_remembered_with_the_next_write() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk)
    numbers = itertools.count()
    world.append("a", texts(numbers, 5), config='{"durability":"fsync","ttl_ms":1000}')
    world.run()
    disk.fault = lambda step, op, path: errno.ENOSPC if op == "write_at" and is_log(path) else None
    world.clock.advance(2000)
    topic = world.broker.topic("a")
    world.broker.evict(topic, topic.partitions[0])
    world.run()
    assert topic.partitions[0].evict_floor == 6
    disk.fault = None
    world.append("a", texts(numbers, 1))
    world.run()
    # Read without a clock that would expire the records once more.
    again = recover(disk.after_kill(), SMALL)
    assert again.state.topics["a"].partitions[0].evict_floor == 6


def broken_calls() -> list[tuple[str, Callable[[int, str, str], Fault | None]]]:
    return [
        ("open", lambda step, op, path: errno.EIO if op == "open" else None),
        ("sync_directory", lambda step, op, path: errno.EIO if op == "sync_directory" else None),
        ("truncate", lambda step, op, path: errno.EIO if op == "truncate" else None),
        ("remove", lambda step, op, path: errno.EIO if op == "remove" else None),
        ("rename", lambda step, op, path: errno.EIO if op == "rename" else None),
        ("allocate", lambda step, op, path: errno.ENOSPC if op == "allocate" else None),
        ("segments", lambda step, op, path: errno.ENOSPC if path.startswith("segments") else None),
        ("snapshots", lambda step, op, path: errno.ENOSPC if path.startswith("snapshots") else None),
    ]


@pytest.mark.parametrize(("name", "fault"), broken_calls(), ids=lambda each: each if isinstance(each, str) else "")
def test_a_disk_that_keeps_failing_in_one_way_costs_nothing_that_was_acknowledged(
    name: str, fault: Callable[[int, str, str], Fault | None]
) -> None:
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk)
    disk.fault = fault
    play(world, STAGES_PLAYED)
    world.stop()
    compare(world.broker, world.promises, "clean")
    disk.fault = None
    verify(disk.after_kill(), world.promises, world.clock, "kill", world.settings)
    verify(disk.after_power_cut("none"), world.promises, world.clock, "power", world.settings)


def test_recovery_that_meets_an_error_can_be_tried_again() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk)
    play(world, STAGES_PLAYED)
    for step in itertools.count():
        torn = disk.after_power_cut("random", seed=step)
        torn.fail_at = {step: errno.EIO}
        try:
            recover(torn, world.settings)
        except OSError:
            pass
        except CorruptStorage as error:
            raise AssertionError(f"step {step}: an error was taken for corruption") from error
        if torn.steps <= step:
            break
        torn.fail_at = {}
        verify(torn.after_kill(), world.promises, world.clock, "power", world.settings)
