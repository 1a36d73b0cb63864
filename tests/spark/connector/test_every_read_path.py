"""A Spark session gets every live record once and each lost range, when pages end where segments do.

The paths are walked at length without Spark in tests/simulation/test_every_read_path.py; here the same worlds go through Spark's
planning, its workers and its checkpoints.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.read_paths import archived_items, row_items
from tests.simulation.read_world import Item, ReadServer, ReadWorld
from tests.simulation.test_every_read_path import check_against, new_world
from tests.spark.archive.test_job import archive_now
from tests.spark.connector.test_batch import load
from tests.spark.connector.test_stream import finish, source
from topics.server.topics import diff as server_diff

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def world() -> Iterator[ReadWorld]:
    server = ReadServer()
    world = new_world(server, 1)
    for _ in range(3):
        world.append(40)
        world.seal()
    world.append(40)
    yield world
    server.close()


def test_a_session_gets_what_is_live_and_each_lost_range(
    spark: Any, world: ReadWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Every page ends at the end of a segment of 40 records.
    segment_bytes = sum([world.model.known[seq].size for seq in world.model.live[-40:]])
    monkeypatch.setattr(server_diff, "MAX_PAGE_BYTES", segment_bytes)
    world.server.limit_answers(answer_bytes_max=segment_bytes)
    model, url = world.model, world.server.url
    options = {"subscribe": world.topic, "startingOffsets": f'{{"{world.topic}": {{"0": 1}}}}', "onDataLoss": "emit"}
    for transport in ("arrow", "json"):
        batch = load(spark, url, **options, transport=transport, minPartitions=2)
        check_against(items_of(batch.collect()), model.items(), model)

    streamed: list[Any] = []
    writer = source(spark, url, **options, maxOffsetsPerTrigger=75).writeStream
    writer = writer.foreachBatch(lambda frame, _: streamed.extend(frame.collect()))
    finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
    check_against(items_of(streamed), model.items(), model)

    archived = model.items()
    world.client.set_archive(world.topic, str(tmp_path / "table"))
    archive_now(spark, world.client, world.topic, tmp_path / "archive")
    check_against(archived_items(str(tmp_path / "table")), archived, model)

    end = model.head
    world.append(40)
    world.keep_newest(20)
    found = items_of(load(spark, url, **options, history="all").collect())
    check_against(found, archived + model.items(end), model)


def items_of(rows: list[Any]) -> list[Item]:
    return sorted(row_items([row.asDict() for row in rows]), key=lambda item: item.first)
