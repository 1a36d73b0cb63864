"""The power goes out, or the process is killed, before every single change the broker makes to its disk.

One scripted run is watched step by step. At each step the disk is taken as a power cut or a kill would leave it, a
broker boots on it, and what it serves is compared with what had been acknowledged by then. `make crash` tries every way
of dying at every step; `make test` tries one or two at each step, and others at the next.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings as hypothesis_settings

from tests.crash.history import STAGES, play, texts
from tests.crash.world import SMALL, World, compare, dump, verify, watched
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.disk.survival import Survive, Torn

LONG = hypothesis_settings().max_examples >= 1000
TEARS: list[Torn] = ["prefix", "zero", "garbage"]
SURVIVALS: list[tuple[Survive, int]] = [("none", 0), ("all", 0), *[("random", seed) for seed in range(6)]]
WAYS = [(survive, seed, torn) for (survive, seed), torn in itertools.product(SURVIVALS, TEARS)]


def ways(step: int) -> Iterator[tuple[Survive, int, Torn]]:
    """Ways for the power to go out at this step."""
    return iter(WAYS if LONG else [WAYS[step * 5 % len(WAYS)]])


def empty_disk(seed: int = 0) -> FakeDisk:
    # Small sectors: more disorder out of few bytes.
    disk = FakeDisk(seed, sector_bytes=128)
    disk.make_directory("")
    return disk


@contextmanager
def at(place: str) -> Iterator[None]:
    """Says where an assertion failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"at {place}")
        raise


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_what_was_acknowledged_survives_a_power_cut_at_any_step() -> None:
    settings = SMALL
    disk = watched(empty_disk())
    world = World(disk, settings)

    def cut(step: int) -> None:
        for survive, seed, torn in ways(step):
            with at(f"step {step}, {survive} survives, seed {seed}, torn {torn}"):
                verify(
                    disk.after_power_cut(survive, torn=torn, seed=seed), world.promises, world.clock, "power", settings
                )

    disk.watcher = cut
    play(world)
    assert disk.steps > 500


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_nothing_acknowledged_is_lost_by_a_kill_at_any_step() -> None:
    settings = SMALL
    disk = watched(empty_disk())
    world = World(disk, settings)

    def kill(step: int) -> None:
        with at(f"step {step}"):
            verify(disk.after_kill(), world.promises, world.clock, "kill", settings)

    disk.watcher = kill
    play(world)


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_copy_of_the_disk_taken_at_any_step_and_restored_without_a_restart_counts_as_a_power_cut() -> None:
    """What the copy lacks because it was not synced is reported, and its seqs are not assigned again."""
    disk = watched(empty_disk())
    world = World(disk, SMALL)

    def restore(step: int) -> None:
        if not LONG and step % 3:
            return
        for survive, seed, torn in ways(step // 3):
            with at(f"step {step}, {survive} survives, seed {seed}, torn {torn}"):
                copy = disk.after_power_cut(survive, torn=torn, seed=seed)
                verify(disk.restored_from(copy), world.promises, world.clock, "power", SMALL)

    disk.watcher = restore
    play(world)


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_recovery_can_be_cut_anywhere_and_begun_again() -> None:
    """Cut while recovering from a cut: what was promised holds, and nothing that a first recovery showed is taken back."""
    settings = SMALL
    disk = watched(empty_disk())
    world = World(disk, settings)

    def cut(step: int) -> None:
        if not LONG and step % 90:
            return
        for survive, seed, torn in ways(step // 90):
            first = watched(disk.after_power_cut(survive, torn=torn, seed=seed))

            def again(
                inner: int, first: FakeDisk = first, where: str = f"step {step}, {survive}, {seed}, {torn}"
            ) -> None:
                for survive, seed, torn in ways(inner + step):
                    with at(f"{where}, then step {inner} of recovery, {survive}, {seed}, {torn}"):
                        after = first.after_power_cut(survive, torn=torn, seed=seed)
                        verify(after, world.promises, world.clock, "power", settings)
                with at(f"{where}, then killed at step {inner} of recovery"):
                    verify(first.after_kill(), world.promises, world.clock, "power", settings)

            first.watcher = again
            verify(first, world.promises, world.clock, "power", settings)

    disk.watcher = cut
    play(world)


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
@pytest.mark.parametrize("end", ["power", "kill"])
def test_recovering_twice_gives_the_same_state_and_new_writes_survive_a_second_end(end: str) -> None:
    disk = watched(empty_disk())
    world = World(disk, SMALL)

    def cut(step: int) -> None:
        if not LONG and step % 8:
            return
        for survive, seed, torn in ways(step // 8):
            with at(f"step {step}, {survive}, {seed}, {torn}"):
                after = disk.after_kill() if end == "kill" else disk.after_power_cut(survive, torn=torn, seed=seed)
                again = verify(after, world.promises, world.clock, end, SMALL)  # type: ignore[arg-type]
                first = dump(again.broker)
                twice = verify(after.after_kill(), again.promises, again.clock, "kill", SMALL)
                assert dump(twice.broker) == first
                go_on(twice, itertools.count(1_000_000))
                verify(twice.fs.after_kill(), twice.promises, twice.clock, "kill", SMALL)
                for lost in ("none", "random"):
                    last = twice.fs.after_power_cut(lost, seed=seed)
                    verify(last, twice.promises, twice.clock, "power", again.settings)

    disk.watcher = cut
    play(world)


def go_on(world: World, numbers: Iterator[int]) -> None:
    """A few more writes to whatever there is."""
    for name in list(world.broker.state.topics):
        world.append(name, texts(numbers, 2, tag="more"))
    world.append("new", texts(numbers, 2, tag="more"), config='{"durability":"fsync"}', key="key-new")
    world.run()
    world.append("new", texts(numbers, 2), key="key-new")
    world.run()
    world.append("new", texts(numbers, 1))
    world.run()
    compare(world.broker, world.promises, "clean")


@pytest.mark.slow
def test_a_clean_stop_can_be_cut_at_any_step_and_leaves_nothing_to_replay_when_it_is_not() -> None:
    disk = watched(empty_disk())
    world = World(disk, SMALL)
    play(world)

    def cut(step: int) -> None:
        for survive, seed, torn in WAYS if LONG else WAYS[step % 3 :: 3]:
            with at(f"step {step}, {survive}, {seed}, {torn}"):
                after = disk.after_power_cut(survive, torn=torn, seed=seed)
                verify(after, world.promises, world.clock, "power", world.settings)
        verify(disk.after_kill(), world.promises, world.clock, "kill", world.settings)

    disk.watcher = cut
    assert world.stop()
    disk.watcher = None
    for after in (disk.after_kill(), disk.after_power_cut("none"), disk.after_power_cut("random")):
        again = verify(after, world.promises, world.clock, "clean", world.settings)
        assert again.recovered.frames == 0
        assert again.recovered.torn == []
        assert [fact for fact in again.recovered.restart_facts if type(fact).__name__ == "Lost"] == []


def test_the_run_meets_everything_it_is_meant_to_meet() -> None:
    """A run that no longer seals or takes snapshots would pass every other test here."""
    disk = empty_disk()
    world = World(disk, SMALL)
    play(world)
    compare(world.broker, world.promises, "clean")
    assert world.errors == []
    assert world.broker.sealer.seals_total > 10
    assert world.broker.checkpointer.snapshots_total > 5
    assert not any(world.broker.health.failures_total.values())
    steps = {(step.op, step.path.rsplit("/", 1)[0], step.path.rsplit(".", 1)[-1]) for step in disk.trace}
    assert {("remove", "segments", "arrow"), ("rename", "segments", "new"), ("rename", "snapshots", "tmp")} <= steps
    assert any([op == "remove" and suffix == "wal" for op, _, suffix in steps])
    assert len(STAGES) > 10
