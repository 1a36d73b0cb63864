"""Archives of topics over HTTP and SQL: set, shown, listed, given their progress, and cleared."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics.testing.http import Answer, Api

DEFAULTS = {"freshness_ms": 10_000, "compact_interval_ms": 600_000, "vacuum_hours": 168}


@pytest.fixture
def uri(name: str) -> str:
    return f"s3://lake/{name}"


@pytest.fixture
def archive(topic: TopicApi) -> str:
    """The path of the archive of a topic that holds three records."""
    topic.append(1, 2, 3)
    return f"{topic.path}/archive"


def sql(api: Api, statement: str) -> Answer:
    return api.post("/api/sql", {"sql": statement})


def row(api: Api, name: str) -> dict[str, Any] | None:
    answer = succeeded(sql(api, f"SELECT * FROM system.archives WHERE topic_id = '{name}'"))
    rows = [dict(zip(answer["columns"], each, strict=True)) for each in answer["rows"]]
    assert len(rows) <= 1
    return rows[0] if rows else None


def test_an_archive_is_set_shown_changed_and_cleared(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    refused(api.get(archive), 404, "not_found")
    created = api.put(archive, {"uri": uri})
    assert (created.status, created.json["created"]) == (201, True)
    want = {"topic": topic.name, "uri": uri, **DEFAULTS, "archived": [], "table_version": None, "updated_ts": None}
    found = succeeded(api.get(archive))
    assert {name: found[name] for name in want} == want
    assert abs(found["set_ts"] - time.time() * 1000) < 60_000
    changed = api.put(archive, {"uri": uri, "freshness_ms": 1000, "compact_interval_ms": 0, "vacuum_hours": 0})
    assert (changed.status, changed.json["created"]) == (200, False)
    found = succeeded(api.get(archive))
    assert [found[name] for name in DEFAULTS] == [1000, 0, 0]
    assert succeeded(api.delete(archive))["deleted"] is True
    assert succeeded(api.delete(archive))["deleted"] is False
    refused(api.get(archive), 404, "not_found")
    assert row(api, topic.name) is None


def test_sql_sets_and_clears_the_same_archive(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    statement = f"ALTER TOPIC \"{topic.name}\" SET ARCHIVE WITH (uri = '{uri}', vacuum_hours = 24)"
    assert succeeded(sql(api, statement))["message"] == f'topic "{topic.name}" altered'
    assert succeeded(api.get(archive))["vacuum_hours"] == 24
    described = succeeded(sql(api, f'DESCRIBE TOPIC "{topic.name}"'))["rows"]
    assert dict(described[-1:])["archive"]["uri"] == uri
    found = row(api, topic.name)
    assert found is not None
    assert (found["uri"], found["vacuum_hours"], found["lag_records"], found["archived"]) == (uri, 24, 3, "[]")
    for _ in range(2):
        succeeded(sql(api, f'ALTER TOPIC "{topic.name}" CLEAR ARCHIVE'))
        refused(api.get(archive), 404, "not_found")


def test_progress_is_kept_and_never_goes_back(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    refused(api.post(f"{archive}/progress", {"partitions": []}), 404, "not_found")
    succeeded(api.put(archive, {"uri": uri}))
    epoch = topic.state()["epoch"]

    def report(next_seq: int, version: int | None, epoch: int = epoch) -> tuple[list[Any], int | None]:
        partitions = [{"partition": 0, "epoch": epoch, "next_seq": next_seq}]
        answer = succeeded(api.post(f"{archive}/progress", {"partitions": partitions, "table_version": version}))
        shown = succeeded(api.get(archive))
        assert (shown["archived"], shown["table_version"]) == (answer["archived"], answer["table_version"])
        return answer["archived"], answer["table_version"]

    def place(next_seq: int) -> list[Any]:
        return [{"partition": 0, "epoch": epoch, "next_seq": next_seq}]

    assert report(3, 7) == (place(3), 7)
    updated = succeeded(api.get(archive))["updated_ts"]
    assert report(2, 6) == (place(3), 7), "an older report counts for nothing"
    assert report(9, 9, epoch=epoch - 1) == (place(3), 9), "nor does one of an older topic of that name"
    assert report(4, None) == (place(4), 9)
    assert succeeded(api.get(archive))["updated_ts"] >= updated
    found = row(api, topic.name)
    assert found is not None
    assert (found["lag_records"], found["table_version"]) == (0, 9)
    succeeded(api.put(archive, {"uri": uri + "/", "freshness_ms": 2000}))
    assert succeeded(api.get(archive))["archived"] == place(4), "the position in the same table is unchanged"
    succeeded(api.put(archive, {"uri": uri + "2"}))
    found = succeeded(api.get(archive))
    assert (found["archived"], found["table_version"], found["updated_ts"]) == ([], None, None), "another table"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "uri"),
        ({"uri": 7}, "uri"),
        ({"uri": ""}, "URI"),
        ({"uri": "s3://lake/\u0000"}, "printable"),
        ({"uri": "s" * 3000}, "2000"),
        ({"uri": "s3://[bad"}, "URI"),
        ({"uri": "s3://key:hunter2@lake/x"}, "password"),
        ({"uri": "az://lake/x?sig=hunter2"}, "password"),
        ({"uri": "lake secret_key=hunter2"}, "password"),
        ({"uri": "s3://a", "freshness_ms": 999}, "freshness_ms"),
        ({"uri": "s3://a", "freshness_ms": 600_001}, "freshness_ms"),
        ({"uri": "s3://a", "freshness_ms": "10s"}, "freshness_ms"),
        ({"uri": "s3://a", "freshness_ms": True}, "freshness_ms"),
        ({"uri": "s3://a", "compact_interval_ms": 10}, "compact_interval_ms"),
        ({"uri": "s3://a", "compact_interval_ms": -1}, "compact_interval_ms"),
        ({"uri": "s3://a", "compact_interval_ms": 10**12}, "compact_interval_ms"),
        ({"uri": "s3://a", "vacuum_hours": -1}, "vacuum_hours"),
        ({"uri": "s3://a", "vacuum_hours": 90_000}, "vacuum_hours"),
        ({"uri": "s3://a", "vacuum_hours": 2**70}, "vacuum_hours"),
        ({"uri": "s3://a", "vacuum_hour": 1}, "vacuum_hour"),
        ([], "object"),
    ],
)
def test_a_wrong_archive_is_refused_naming_the_option(api: Api, archive: str, body: Any, word: str) -> None:
    answer = api.put(archive, body)
    message = refused(answer, 400, "invalid_request").json["error"]["message"]
    assert word in message, message
    assert "hunter2" not in str(answer.json)
    refused(api.get(archive), 404, "not_found")


@pytest.mark.parametrize(
    "options",
    ["freshness_ms = 5000", "uri = 5", "uri = NULL", "uri = 's3://a', colour = 'red'", "uri = 's3://a', freshness_ms = '5'",
     "uri = 's3://a', freshness_ms = 1.5", "uri = 's3://a', vacuum_hours = true", "uri = 's3://u:p@a'", "uri = 's3://a', vacuum_hours = -1"],
)  # fmt: skip
def test_sql_refuses_the_same(api: Api, topic: TopicApi, archive: str, options: str) -> None:
    refused(sql(api, f'ALTER TOPIC "{topic.name}" SET ARCHIVE WITH ({options})'), 400, "invalid_request")
    refused(api.get(archive), 404, "not_found")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"partitions": 5},
        {"partitions": [{"partition": 0, "epoch": 1}]},
        {"partitions": [{"partition": -1, "epoch": 1, "next_seq": 1}]},
        {"partitions": [{"partition": 9, "epoch": 1, "next_seq": 1}]},
        {"partitions": [{"partition": 0, "epoch": "1", "next_seq": 1}]},
        {"partitions": [{"partition": 0, "epoch": 10**9, "next_seq": 1}]},
        {"partitions": [{"partition": 0, "epoch": "EPOCH", "next_seq": 5}]},
        {"partitions": [{"partition": 0, "epoch": "EPOCH", "next_seq": 2**64}]},
        {"partitions": [{"partition": 0, "epoch": "EPOCH", "next_seq": 2}] * 2},
        {"partitions": [{"partition": 0, "epoch": "EPOCH", "next_seq": 2, "more": 1}]},
        {"partitions": [], "table_version": -1},
        {"partitions": [], "table_version": "7"},
        {"partitions": [], "version": 7},
    ],
)
def test_a_wrong_report_is_refused_and_changes_nothing(
    api: Api, topic: TopicApi, archive: str, uri: str, body: Any
) -> None:
    succeeded(api.put(archive, {"uri": uri}))
    epoch = topic.state()["epoch"]
    if isinstance(body.get("partitions"), list) and "EPOCH" in str(body):
        body = {"partitions": [{**place, "epoch": epoch} for place in body["partitions"]]}
    refused(api.post(f"{archive}/progress", body), 400, "invalid_request")
    assert succeeded(api.get(archive))["archived"] == []


def test_an_archive_needs_json_and_a_topic(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    for method, path in (("PUT", archive), ("POST", f"{archive}/progress")):
        answer = api.send(method, path, b"{}", {"Content-Type": "text/plain"})
        refused(answer, 415, "unsupported_media_type")
    nowhere = f"/v0/topics/{topic.name}-nowhere/archive"
    refused(api.put(nowhere, {"uri": uri}), 404, "topic_not_found")
    refused(api.get(nowhere), 404, "topic_not_found")
    refused(api.delete(nowhere), 404, "topic_not_found")
    refused(api.post(f"{nowhere}/progress", {"partitions": []}), 404, "topic_not_found")
    refused(sql(api, f'ALTER TOPIC "{topic.name}-nowhere" CLEAR ARCHIVE'), 404, "topic_not_found")
    refused(api.put("/v0/topics/a%20b/archive", {"uri": uri}), 400, "invalid_request")


def test_an_alias_means_its_topic(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    alias = f"{topic.name}.alias"
    succeeded(sql(api, f"ALTER TOPIC \"{topic.name}\" SET ALIAS '{alias}'"))
    succeeded(api.put(f"/v0/topics/{alias}/archive", {"uri": uri}))
    assert succeeded(api.get(archive))["uri"] == uri
    assert succeeded(api.get(f"/v0/topics/{alias}/archive"))["topic"] == topic.name
    succeeded(sql(api, f"ALTER TOPIC \"{alias}\" SET ARCHIVE WITH (uri = '{uri}', vacuum_hours = 1)"))
    assert succeeded(api.get(archive))["vacuum_hours"] == 1
    succeeded(sql(api, f'ALTER TOPIC "{alias}" CLEAR ARCHIVE'))
    refused(api.get(archive), 404, "not_found")


def test_two_topics_are_not_archived_to_one_table(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    other = f"{topic.path}-other"
    succeeded(api.put(other, {}))
    succeeded(api.put(archive, {"uri": uri}))
    refused(api.put(f"{other}/archive", {"uri": uri + "/"}), 409, "topic_exists_incompatible")
    refused(api.get(f"{other}/archive"), 404, "not_found")
    succeeded(api.delete(archive))
    succeeded(api.put(f"{other}/archive", {"uri": uri}))


def test_an_archive_goes_with_its_topic_and_not_to_the_next_of_its_name(
    api: Api, topic: TopicApi, archive: str, uri: str
) -> None:
    succeeded(api.put(archive, {"uri": uri}))
    topic.drop()
    refused(api.get(archive), 404, "topic_not_found")
    topic.append(1)
    refused(api.get(archive), 404, "not_found")
    succeeded(api.put(archive, {"uri": uri}))
    assert succeeded(api.get(archive))["archived"] == []


def test_a_queue_is_archived_too(api: Api, topic: TopicApi, uri: str) -> None:
    topic.configure(type="queue", partitions=2)
    assert api.put(f"{topic.path}/archive", {"uri": uri}).status == 201


def test_archives_are_listed_and_every_change_of_one_is_seen(api: Api, topic: TopicApi, archive: str, uri: str) -> None:
    def listed(path: str = "/api/archives") -> tuple[int, dict[str, Any] | None]:
        found = succeeded(api.get(path))
        mine = [each for each in found["archives"] if each["topic"] == topic.name]
        return found["version"], mine[0] if mine else None

    before, mine = listed()
    assert mine is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.get, f"/v1/api/archives?version={before}&wait_ms=20000")
        time.sleep(0.05)
        succeeded(api.put(archive, {"uri": uri}))
        assert succeeded(waiting.result(10))["version"] > before
    version, mine = listed()
    assert mine is not None
    assert mine["uri"] == uri
    places = [{"partition": 0, "epoch": topic.state()["epoch"], "next_seq": 2}]
    succeeded(api.post(f"{archive}/progress", {"partitions": places}))
    succeeded(api.put(archive, {"uri": uri}))
    now, mine = listed(f"/api/archives?version={version}&wait_ms=1")
    assert mine is not None
    assert (now, mine["archived"]) == (version, places), "neither progress nor the same wish again is a change"
    succeeded(api.put(archive, {"uri": uri, "freshness_ms": 2000}))
    changed, _ = listed()
    assert changed > version
    topic.drop()
    gone, mine = listed()
    assert (gone > changed, mine) == (True, None)
    refused(api.get("/api/archives?version=x"), 400, "invalid_request")


def test_every_change_of_a_table_is_seen(api: Api, name: str) -> None:
    path = f"/api/tables/{name}"
    before = succeeded(api.get("/api/tables"))["version"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.get, f"/api/tables?prefix={name}&version={before}&wait_ms=20000")
        time.sleep(0.05)
        succeeded(api.put(path, {}))
        answer = succeeded(waiting.result(10))
    assert answer["version"] > before
    assert [table["table"] for table in answer["tables"]] == [name]
    succeeded(api.delete(path))
    assert succeeded(api.get(f"/api/tables?version={before}&wait_ms=20000"))["version"] > answer["version"]
