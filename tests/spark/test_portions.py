"""A batch that is too much for the server's stages is routed in portions, each once, whatever ends in between."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from topics.client import Client
from topics.spark.outbox import NoRoom, Piece
from topics.spark.portions import Portion, whole_batch
from topics.spark.ranges import SeqRange
from topics.spark.routing import Batches, Report


class SmallPlan:
    """Routes every change to one topic; has room for so many changes at once, and may end the driver in between."""

    def __init__(self, topic: str, room: int) -> None:
        self.topic = topic
        self.room = room
        self.runs: list[int] = []
        self.ends_after: int | None = None
        self.routes: list[Any] = []
        self.all_routes: list[Any] = []
        self.unusable: dict[int, str] = {}
        self.routes_of: list[list[int]] = []

    def run(self, ranges: list[SeqRange], caps: dict[str, Any]) -> list[Report]:
        seqs = sum([each.seqs for each in ranges])
        if seqs > self.room:
            return [Report(0, no_room="stages are full")]
        if self.ends_after == len(self.runs):
            raise KeyboardInterrupt
        self.runs.append(seqs)
        texts = [
            b'{"data":"%d-%d","meta":{}}' % (r.partition, seq) for r in ranges for seq in range(r.first, r.last + 1)
        ]
        records = b"[" + b",".join(texts) + b"]"
        return [Report(0, [Piece(self.topic, {0: seqs}, len(records), records=records)], events=seqs)]


def batches(client: Client, plan: SmallPlan, query: str) -> Batches:
    around = SimpleNamespace(url=client.url, token=None, tell=lambda fields: None)
    result = Batches("t", around)  # type: ignore[arg-type]
    result._newest = lambda client, session: plan  # type: ignore[assignment,method-assign,return-value]
    result.belong_to(query)
    return result


def frame(ranges: list[SeqRange]) -> Any:
    rows = [(each.topic, each.partition, each.epoch, each.first, each.last) for each in ranges]
    return SimpleNamespace(collect=lambda: rows, sparkSession=None)


RANGES = [SeqRange("changes:t", 0, 1, 1, 3000), SeqRange("changes:t", 1, 1, 11, 2333)]
WANTED = [f"{each.partition}-{seq}" for each in RANGES for seq in range(each.first, each.last + 1)]


def written(client: Client, topic: str) -> list[Any]:
    return [record.data for record in client.read(topic)]


@pytest.mark.parametrize(("room", "runs"), [(10_000, 1), (2500, 3), (100, 54), (99, None)])
def test_as_much_at_a_time_as_there_is_room_for(client: Client, room: int, runs: int | None) -> None:
    topic = f"room-{room}"
    client.create(topic)
    plan = SmallPlan(topic, room)
    some = batches(client, plan, topic)
    if runs is None:
        with pytest.raises(NoRoom):
            some.route(frame(RANGES), 0)
        return
    some.route(frame(RANGES), 0)
    assert (len(plan.runs), written(client, topic)) == (runs, WANTED)
    # The next batch begins with portions that fit.
    some.route(frame([SeqRange("changes:t", 0, 1, 3001, 3200)]), 1)
    assert len(written(client, topic)) == len(WANTED) + 200


@pytest.mark.parametrize("seed", range(5))
def test_a_driver_that_ends_between_portions_repeats_and_leaves_out_nothing(client: Client, seed: int) -> None:
    chance = random.Random(seed)
    topic = f"ends-{seed}"
    client.create(topic)
    while True:
        plan = SmallPlan(topic, chance.choice([100, 2500, 10_000]))
        plan.ends_after = chance.randrange(0, 30)
        try:
            batches(client, plan, topic).route(frame(RANGES), 7)
            break
        except KeyboardInterrupt:
            continue
    assert written(client, topic) == WANTED


def test_the_parts_of_a_portion_are_its_seqs_in_order_under_rising_numbers() -> None:
    portion = whole_batch(3, RANGES)
    chunks = portion.parts()
    pieces = [piece for chunk in chunks for piece in chunk.parts()]
    for parts in (chunks, pieces):
        numbers = [part.number for part in parts]
        assert numbers == sorted(set(numbers))
        assert portion.begins <= numbers[0]
        assert numbers[-1] < portion.number < whole_batch(4, RANGES).begins
        assert _seqs(parts) == _seqs([portion])
    assert [piece.parts() for piece in pieces] == [[]] * len(pieces)


def _seqs(portions: list[Portion]) -> list[tuple[int, int]]:
    return [
        (each.partition, seq)
        for portion in portions
        for each in portion.ranges
        for seq in range(each.first, each.last + 1)
    ]
