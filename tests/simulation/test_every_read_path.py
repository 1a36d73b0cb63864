"""Every way to read gets every live record once, in order, and one tombstone for each range that was lost.

Page sizes and byte budgets end right before, at and right behind the ends of records, pages, batches and segments. Records are
deleted, evicted, expired, left out by their node, and lost in power cuts: before a walk, and while it is under way. What a walk brings is
compared with a model (`read_world.py`); the paths are in `read_paths.py`.
"""

from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import pytest

from tests.simulation.read_paths import (
    GROUPS,
    LIVE,
    PAGES,
    Reading,
    ReadPath,
    archive,
    arrow_diff,
    copy_to_archive,
    group_consume,
    history,
    json_diff,
    long_poll,
    spark_batch,
    spark_stream,
    sse_watch,
    web_socket,
    work_stream,
)
from tests.simulation.read_world import OWN, Item, Model, ReadServer, ReadWorld
from topics.engine.partitions import reading

SEEDS = [*range(10), *[pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 60)]]
CHANGES = 25

pytestmark = pytest.mark.slow
_numbers = count(1)


@pytest.fixture
def server() -> Iterator[ReadServer]:
    server = ReadServer()
    yield server
    server.close()


def new_world(server: ReadServer, seed: int, changes: int = CHANGES, **config: str) -> ReadWorld:
    world = ReadWorld(server, f"t{next(_numbers)}", seed, **config)
    for _ in range(changes):
        world.change()
    world.append(5, "other")
    return world


def lost_seqs(items: list[Item], model: Model) -> set[int]:
    """The seqs that are reported as lost; deleted ones within a lost range may be among them or not."""
    return {seq for item in items if item.is_lost for seq in range(item.first, item.last + 1)} & model.lost


def records(items: list[Item]) -> list[Item]:
    return [item for item in items if not item.is_lost]


def check_order(items: list[Item]) -> None:
    """Each once, in order, lost ranges too."""
    for before, after in pairwise(items):
        assert before.first <= before.last < after.first <= after.last, (before, after)


def check_against(items: list[Item], expected: list[Item], model: Model) -> None:
    check_order(items)
    assert records(items) == records(expected)
    assert lost_seqs(items, model) == lost_seqs(expected, model)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads that leave out records examine only a few of them in one step."""
    monkeypatch.setattr(reading, "MAX_SCAN_BYTES", 5 * reading.MIN_SCAN_COST)


def walk(reading: Reading, path: ReadPath) -> list[Item]:
    return [item for items in path(reading) for item in items]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_walk_gets_what_is_live_and_each_lost_range_once(
    server: ReadServer, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = new_world(server, seed)
    for path in PAGES + LIVE:
        for own in (None, OWN):
            for attempt in range(2):
                items = walk(Reading(world, seed + attempt, own, monkeypatch, tmp_path), path)
                assert items == world.model.items(own=own), (path.__name__, own)
    for path in GROUPS:
        assert walk(Reading(world, seed, None, monkeypatch, tmp_path), path) == world.model.items(), path.__name__
    for path in (spark_batch, spark_batch, spark_stream, archive):
        items = walk(Reading(world, seed, None, monkeypatch, tmp_path), path)
        check_against(items, world.model.items(), world.model)


@pytest.mark.parametrize("seed", range(2))
def test_a_walk_over_large_segments_gets_what_is_live(
    server: ReadServer, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """More records than a batch of a segment (4096), a run of one (1000) and a page in memory (256) hold."""
    world = ReadWorld(server, f"t{next(_numbers)}", seed)
    for records_in_segment in (5000, 600, 600):
        for _ in range(records_in_segment // 200):
            world.append(200)
        world.seal()
    world.delete_between(1, 5400, "t3")
    world.append(700)
    world.cut_power()
    world.append(300)
    for path in (json_diff, arrow_diff, arrow_diff, arrow_diff, long_poll, sse_watch, web_socket, group_consume):
        assert walk(Reading(world, seed, None, monkeypatch, tmp_path), path) == world.model.items(), path.__name__
    for path in (spark_batch, spark_stream):
        items = walk(Reading(world, seed, None, monkeypatch, tmp_path), path)
        check_against(items, world.model.items(), world.model)
    list(copy_to_archive(Reading(world, seed, None, monkeypatch, tmp_path), 5200))
    for path in (history, archive, history):
        items = walk(Reading(world, seed, None, monkeypatch, tmp_path), path)
        check_against(items, world.model.items(), world.model)


@pytest.mark.long
def test_a_work_stream_over_large_segments_gets_every_job_once(
    server: ReadServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = ReadWorld(server, f"t{next(_numbers)}", 0, type="queue")
    for records_in_segment in (5000, 600):
        for _ in range(records_in_segment // 200):
            world.append(200)
        world.seal()
    world.delete_between(1, 5400, "t3")
    world.append(300)
    expected = records(world.model.items())
    assert walk(Reading(world, 0, None, monkeypatch, tmp_path), work_stream) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_history_goes_on_where_the_archive_ends(
    server: ReadServer, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = new_world(server, seed)
    end = world.chance.randrange(world.model.head // 2, world.model.head + 1)
    list(copy_to_archive(Reading(world, seed, None, monkeypatch, tmp_path), end))
    archived = [item for item in world.model.items() if item.first <= end]
    lost_then = lost_seqs(archived, world.model) & set(range(1, end + 1))
    for _ in range(CHANGES // 2):
        world.change()
    live = world.model.items(end)
    for path in (history, spark_batch, spark_stream):
        items = walk(Reading(world, seed, None, monkeypatch, tmp_path), path)
        check_order(items)
        assert records(items) == records(archived) + records(live), path.__name__
        assert lost_seqs(items, world.model) == lost_then | lost_seqs(live, world.model), path.__name__


@pytest.mark.parametrize("seed", SEEDS)
def test_a_work_stream_gets_every_job_once(
    server: ReadServer, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = new_world(server, seed, type="queue")
    expected = records(world.model.items())
    assert walk(Reading(world, seed, None, monkeypatch, tmp_path), work_stream) == expected


@pytest.mark.parametrize(
    "path",
    [*PAGES, *LIVE, *GROUPS, spark_batch, spark_stream, archive, history, work_stream],
    ids=lambda path: path.__name__,
)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_skipped_repeated_or_invented_while_the_topic_changes(
    server: ReadServer, seed: int, path: ReadPath, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    is_queue = path is work_stream
    world = new_world(server, seed, **({"type": "queue"} if is_queue else {}))
    own = OWN if path in PAGES + LIVE and seed % 2 else None
    reading = Reading(world, seed, own, monkeypatch, tmp_path)
    if path is history:
        list(copy_to_archive(reading, world.model.head // 2))
    items: list[Item] = []
    end = world.model.head
    left = CHANGES
    for some in path(reading):
        items += some
        if left and world.chance.random() < 0.3:
            left -= 1
            # After a power cut a queue delivers again what was not finished: see the next test.
            world.change(reading.reached, power=not is_queue)
            if not left and path in LIVE:
                reading.sentinel = world.append(1, "other")
    model = world.model
    check_order(items)
    assert reading.reached >= end or is_queue
    reported = {seq for item in items if item.is_lost for seq in range(item.first, item.last + 1)}
    for item in records(items):
        assert item.data == model.known[item.first].data
        assert own is None or model.known[item.first].node != own
        assert item.first not in reported
    got = {item.first for item in records(items)}
    for seq in set(range(1, reading.reached + 1)) - got:
        if seq in reported:
            assert seq not in model.live, f"{seq} was reported as lost and is live"
        elif is_queue:
            assert seq not in model.live, f"job {seq} was not delivered"
        else:
            is_own = own is not None and seq in model.known and model.known[seq].node == own
            assert seq in model.deleted or is_own, f"{seq} was passed in silence"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_work_stream_delivers_every_job_that_is_left_after_power_cuts(
    server: ReadServer, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = new_world(server, seed, type="queue")
    items: list[Item] = []
    left = 4
    for some in work_stream(Reading(world, seed, None, monkeypatch, tmp_path)):
        items += some
        if left and world.chance.random() < 0.2:
            left -= 1
            world.cut_power()
    model = world.model
    assert left < 4
    assert all([item.data == model.known[item.first].data for item in items])
    assert set(model.live) <= {item.first for item in items}
