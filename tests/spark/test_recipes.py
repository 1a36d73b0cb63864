"""The recipes of examples/spark do what they say. The notebook runs cell by cell."""

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connector.test_batch import load
from tests.spark.connector.test_stream import finish
from topics.client import Client

pytestmark = [pytest.mark.spark, pytest.mark.slow]
RECIPES = Path(__file__).resolve().parents[2] / "examples" / "spark"


def recipe(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data(client: Client, topic: str) -> list[Any]:
    return [record.data for record in client.diff(topic).records]


def test_a_window_is_written_once_when_it_is_closed_and_late_records_are_dropped(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    windows = recipe("windows")
    client.create(topic)
    client.create(f"{topic}.out")

    def orders(*rows: tuple[int, str]) -> None:
        client.append(topic, [{"shop": "a", "cents": cents, "at": f"2026-01-01T{at}Z"} for cents, at in rows])
        finish(windows.order_windows(spark, client.url, topic, f"{topic}.out", str(tmp_path)))

    orders((5, "10:00:01"), (6, "10:00:59"), (7, "10:09:00"))
    assert data(client, f"{topic}.out") == [], "the watermark has not passed any window yet"
    orders((1, "10:30:00"))
    closed = [("2026-01-01T10:00:00Z", 11), ("2026-01-01T10:09:00Z", 7)]
    assert sorted([(each["minute"], each["cents"]) for each in data(client, f"{topic}.out")]) == closed
    orders((100, "10:00:30"), (2, "10:31:00"))
    assert sorted([(each["minute"], each["cents"]) for each in data(client, f"{topic}.out")]) == closed


def test_a_join_sees_rows_that_came_after_the_query_began(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}.shops", f"{topic}.out"):
        client.create(name)
    client.append(f"{topic}.shops", [{"shop": "a", "name": "old"}, {"shop": "a", "name": "Antwerp"}])
    client.append(topic, [{"id": 1, "shop": "a"}, {"id": 2, "shop": "b"}])
    query = recipe("enrich").enriched_orders(spark, client.url, topic, f"{topic}.shops", f"{topic}.out", str(tmp_path))
    try:
        query.processAllAvailable()
        client.append(f"{topic}.shops", [{"shop": "b", "name": "Berlin"}])
        client.append(topic, [{"id": 3, "shop": "b"}])
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted([(each["id"], each["name"]) for each in data(client, f"{topic}.out")])
    assert found == [(1, "Antwerp"), (2, None), (3, "Berlin")]
    shutil.rmtree(tmp_path)
    client.append(topic, [{"id": 4, "shop": "a"}])
    query = recipe("enrich").enriched_orders(spark, client.url, topic, f"{topic}.shops", f"{topic}.out", str(tmp_path))
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    again = sorted([each["id"] for each in data(client, f"{topic}.out")[3:]])
    assert again == [1, 2, 3, 4], "a query with a new checkpoint writes all its batches"


def test_repeats_are_dropped_also_across_runs(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    for minute in ("00", "01"):
        events = [{"id": each, "at": f"2026-01-01T10:{minute}:00Z"} for each in ("a", "b", "a", minute)]
        client.append(topic, events)
        finish(recipe("deduplicate").unique_events(spark, client.url, topic, f"{topic}.out", str(tmp_path)))
    assert sorted([each["id"] for each in data(client, f"{topic}.out")]) == ["00", "01", "a", "b"]


def test_totals_are_written_when_they_change(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    for cents in (5, 6):
        client.append(topic, [{"shop": "a", "cents": cents}])
        finish(recipe("totals").shop_totals(spark, client.url, topic, f"{topic}.out", str(tmp_path / topic)))
    assert data(client, f"{topic}.out") == [{"shop": "a", "cents": 5}, {"shop": "a", "cents": 11}]
    shutil.rmtree(tmp_path / topic)
    finish(recipe("totals").shop_totals(spark, client.url, topic, f"{topic}.out", str(tmp_path / topic)))
    assert data(client, f"{topic}.out")[2:] == [{"shop": "a", "cents": 11}], "written again with a new checkpoint"


def test_records_that_do_not_fit_go_to_their_own_topic(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    for name in (topic, f"{topic}.good", f"{topic}.bad"):
        client.create(name)
    client.append(topic, [{"id": 1, "cents": 5}, {"id": "one"}, [1]])
    names = (topic, f"{topic}.good", f"{topic}.bad")
    finish(recipe("dead_letters").sorted_orders(spark, client.url, *names, str(tmp_path)))
    assert data(client, f"{topic}.good") == [{"id": 1, "cents": 5}]
    assert [(each["seq"], json.loads(each["record"])) for each in data(client, f"{topic}.bad")] == [
        (2, {"id": "one"}),
        (3, [1]),
    ]
    assert all([each["reason"] for each in data(client, f"{topic}.bad")])


def test_the_notebook_runs(spark: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TOPICS_URL", client.url)
    notebook = json.loads((RECIPES / "explore.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert client.info("notebook.orders").count == 300


def test_a_frame_and_a_view_keep_the_end_they_were_planned_with_and_a_new_load_does_not(
    spark: Any, client: Client, topic: str
) -> None:
    """What docs/spark-freezing.md says."""

    def view() -> None:
        options = f"url '{client.url}', subscribe '{topic}'"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW frozen USING topics OPTIONS ({options})")

    client.create(topic)
    client.append(topic, [1])
    frame = load(spark, client.url, subscribe=topic)
    view()
    assert (frame.count(), spark.table("frozen").count()) == (1, 1)
    client.append(topic, [2])
    assert (frame.count(), spark.table("frozen").count()) == (1, 1)
    view()
    assert (load(spark, client.url, subscribe=topic).count(), spark.table("frozen").count()) == (2, 2)
    spark.catalog.dropTempView("frozen")
    with pytest.raises(Exception, match="Failed to create Python data source instance"):
        spark.sql(f"CREATE TABLE t_{topic.replace('-', '_')} USING topics OPTIONS (subscribe '{topic}')").collect()
