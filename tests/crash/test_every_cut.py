"""The power goes out, or the process is killed, before every single change the broker makes to its disk.

One scripted run is watched step by step. At each step the disk is taken as a power cut or a kill would leave it, a
broker boots on it, and what it serves is compared with what had been acknowledged by then.
"""

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings

from tests.crash.history import play
from tests.crash.world import SMALL, World, verify, watched
from topics.testing.disk import FakeDisk
from topics.testing.survival import Survive, Torn

# `make crash` takes every way of dying at every step; `make test` takes a few at each, others at the next.
LONG = hypothesis_settings().max_examples >= 1000
TEARS: list[Torn] = ["prefix", "zero", "garbage"]
SURVIVALS: list[tuple[Survive, int]] = [("none", 0), ("all", 0), *[("random", seed) for seed in range(6)]]
WAYS = list(itertools.product(SURVIVALS, TEARS))


def ways(step: int) -> Iterator[tuple[Survive, int, Torn]]:
    chosen = WAYS if LONG else [WAYS[(step * 5 + each * 7) % len(WAYS)] for each in range(2)]
    for (survive, seed), torn in chosen:
        yield survive, seed, torn


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_what_was_acknowledged_survives_a_power_cut_at_any_step(shards: int) -> None:
    settings = msgspec.structs.replace(SMALL, shards=shards)
    disk = watched(FakeDisk(sector_bytes=128))
    disk.make_directory("")
    world = World(disk, settings)

    def cut(step: int) -> None:
        for survive, seed, torn in ways(step):
            after = disk.after_power_cut(survive, torn=torn, seed=seed)
            with place(f"step {step}, {survive} survives, seed {seed}, torn {torn}"):
                verify(after, world.promises, world.clock, "power", settings)

    disk.watcher = cut
    play(world)
    assert disk.steps > 500


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_nothing_acknowledged_is_lost_by_a_kill_at_any_step(shards: int) -> None:
    settings = msgspec.structs.replace(SMALL, shards=shards)
    disk = watched(FakeDisk())
    disk.make_directory("")
    world = World(disk, settings)

    def kill(step: int) -> None:
        with place(f"step {step}"):
            verify(disk.after_kill(), world.promises, world.clock, "kill", settings)

    disk.watcher = kill
    play(world)


class place:  # noqa: N801 - reads as a statement
    """Says where an assertion failed."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            error.add_note(f"at {self.where}")
