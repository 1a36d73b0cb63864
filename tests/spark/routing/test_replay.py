"""A replay routes a range of changes again, once for each id."""

from pathlib import Path
from typing import Any

import pytest

from topics.client import Client
from topics.model.errors import InvalidRequest

pytest.importorskip("pyspark")

from topics.spark.routing.replay import Replay, ReplayRange

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_replay_sends_the_messages_of_its_range_again_once_for_each_id(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        client.create(f"{topic}.{name}")
    changes = [{"op": "insert", "key": {"id": n}, "after": {"id": n}} for n in range(10)]
    client.send_changes(topic, changes)
    for name in ("a", "b"):
        client.sql(f'ALTER TOPIC "{topic}.{name}" ADD SOURCE "{topic}" ON INSERT WHERE (id > 4)')
    replay = Replay(spark, client.url, None, topic, ReplayRange(1, 8), [f"{topic}.a"])
    assert (replay.changes, replay.count()) == (8, {f"{topic}.a": 3})
    assert client.info(f"{topic}.a").count == 0, "counting writes nothing"
    for _ in range(2):
        replay.run("one")
    assert [record.data for record in client.read(f"{topic}.a")] == [{"id": 5}, {"id": 6}, {"id": 7}]
    assert client.info(f"{topic}.b").count == 0
    with pytest.raises(InvalidRequest, match="no routes"):
        Replay(spark, client.url, None, topic, ReplayRange(1), ["elsewhere"])
