"""SQL over HTTP: every statement, what it answers, and what it refuses."""

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics.testing.http import Answer, Api


class Sql:
    def __init__(self, api: Api) -> None:
        self.api = api

    def ask(self, sql: str, *params: Any, root: str = "/api") -> Answer:
        body: dict[str, Any] = {"sql": sql}
        if params:
            body["params"] = list(params)
        return self.api.post(f"{root}/sql", body)

    def __call__(self, sql: str, *params: Any) -> dict[str, Any]:
        answer = succeeded(self.ask(sql, *params))
        assert {"columns", "rows", "message", "performance"} <= set(answer)
        assert all([len(row) == len(answer["columns"]) for row in answer["rows"]])
        return answer

    def rows(self, sql: str, *params: Any) -> list[dict[str, Any]]:
        answer = self(sql, *params)
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


@pytest.fixture
def sql(api: Api) -> Sql:
    return Sql(api)


@pytest.fixture
def quoted(name: str) -> str:
    """The topic's name as an identifier."""
    return f'"{name}"'


# Topics


def test_create_topic_makes_what_the_options_say(sql: Sql, api: Api, name: str, quoted: str) -> None:
    options = "retention_seconds = 60, retention_max_bytes = 1000000, durability = 'fsync', type = 'queue', alias = ?"
    assert "created" in sql(f"CREATE TOPIC {quoted} PARTITIONS 4 WITH ({options});", f"{name}-alias")["message"]
    state = succeeded(api.get(f"/v0/topics/{name}"))
    config = state["config"]
    assert (config["ttl_ms"], config["cap_bytes"], config["durability"], config["type"]) == (
        60_000, 1_000_000, "fsync", "queue",
    )  # fmt: skip
    assert len(state["partitions"]) == 4


def test_names_with_dots_need_no_quotes(sql: Sql, api: Api, name: str) -> None:
    plain = "app." + name.replace("-", "_")
    sql(f"create topic {plain}")
    assert succeeded(api.get(f"/v0/topics/{plain}"))["topic"] == plain
    sql(f"drop topic {plain}")


def test_create_topic_twice(sql: Sql, quoted: str) -> None:
    sql(f"CREATE TOPIC {quoted}")
    refused(sql.ask(f"CREATE TOPIC {quoted}"), 409, "topic_exists_incompatible")
    assert "exists" in sql(f"CREATE TOPIC IF NOT EXISTS {quoted}")["message"]


@pytest.mark.parametrize(
    "options",
    ["colour = 'red'", "retention_seconds = 'x'", "retention_seconds = -1", "retention_seconds = 1.5", "type = 'tree'",
     "alias = 5", "alias = 'a b'", "durability = 7", "cap_bytes = -1", "partitions = 2", "retention_seconds = 99999999999999999999"],
)  # fmt: skip
def test_bad_options_are_refused_and_create_nothing(sql: Sql, topic: TopicApi, quoted: str, options: str) -> None:
    refused(sql.ask(f"CREATE TOPIC {quoted} WITH ({options})"), 400, "invalid_request")
    assert not topic.exists()


def test_drop_topic(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append(1)
    assert "dropped" in sql(f"DROP TOPIC {quoted}")["message"]
    assert not topic.exists()
    refused(sql.ask(f"DROP TOPIC {quoted}"), 404, "topic_not_found")
    assert "not exist" in sql(f"DROP TOPIC IF EXISTS {quoted}")["message"]


def test_clear_topic_empties_every_partition_and_keeps_offsets(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure(partitions=2)
    topic.append(1, 2)
    topic.append(3, partition=1)
    assert sql(f"CLEAR TOPIC {quoted}")["message"] == "3 records deleted"
    assert topic.state()["count"] == 0
    assert topic.append(4)["first_seq"] == 3


def test_retention_is_set_and_cleared(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure()
    sql(f"ALTER TOPIC {quoted} SET RETENTION WITH (retention_seconds = 5, retention_max_bytes = 4096)")
    config = topic.state()["config"]
    assert (config["ttl_ms"], config["cap_bytes"]) == (5000, 4096)
    row = sql.rows("SELECT retention_seconds, retention_max_bytes FROM system.topics WHERE name = ?", topic.name)
    assert row == [{"retention_seconds": 5.0, "retention_max_bytes": 4096}]
    sql(f"ALTER TOPIC {quoted} CLEAR RETENTION")
    config = topic.state()["config"]
    assert (config["ttl_ms"], config["cap_bytes"]) == (0, 0)
    refused(sql.ask(f"ALTER TOPIC {quoted} SET RETENTION WITH (type = 'log')"), 400, "invalid_request")


def test_an_alias_is_another_name_for_consumers(sql: Sql, api: Api, topic: TopicApi, quoted: str) -> None:
    topic.append("x")
    alias = topic.name + ".alias"
    sql(f"ALTER TOPIC {quoted} SET ALIAS '{alias}'")
    assert [row["topic_id"] for row in sql.rows(f'CONSUME FROM "{alias}"')] == [topic.name]
    body = {"topic": alias, "group_id": "g", "timeout_seconds": 0}
    assert len(succeeded(api.post("/api/topics/consume", body))["messages"]) == 1
    refused(sql.ask(f'CREATE TOPIC "{alias}"'), 409, "topic_exists_incompatible")
    refused(api.put(f"/v0/topics/{alias}", {}), 409, "topic_exists_incompatible")
    router = {"source": topic.name, "dest": alias}
    refused(api.put(f"/v0/routers/{alias}", router), 409, "topic_exists_incompatible")
    sql(f"ALTER TOPIC {quoted} CLEAR ALIAS")
    refused(sql.ask(f'CONSUME FROM "{alias}"'), 404, "topic_not_found")


# Routes


def test_a_source_begins_behind_the_changes_that_there_are(sql: Sql, api: Api, topic: TopicApi, quoted: str) -> None:
    table = topic.name.replace("-", "_")
    changes = TopicApi(api, f"changes:{table}")
    topic.configure()

    def added(clause: str = "") -> tuple[str, Any]:
        sql(f'ALTER TOPIC {quoted} ADD SOURCE "{table}" ON INSERT {clause}')
        (route,) = succeeded(api.get(f"/api/routes?table={table}"))["routes"]
        (row,) = sql.rows("SELECT start, starts_at FROM system.topic_routes WHERE topic_id = ?", topic.name)
        assert (row["start"], json.loads(row["starts_at"] or "null")) == (route["start"], route["starts_at"])
        sql(f'ALTER TOPIC {quoted} DROP SOURCE "{table}"')
        return route["start"], route["starts_at"]

    # There is no change topic yet: all that will be in it is new.
    assert added() == ("Latest", None)
    changes.configure(partitions=2)
    changes.append(1, 2, 3, partition=1)
    epoch = changes.state()["epoch"]
    assert added() == ("Latest", {"epoch": epoch, "seqs": [1, 4]})
    changes.append(4, partition=0)
    assert added("WITH (start = 'latest', payload = 'full')") == ("Latest", {"epoch": epoch, "seqs": [2, 4]})
    assert added("WITH (start = 'Earliest')") == ("Earliest", None)


def test_a_source_is_the_same_wherever_it_begins(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure()
    sql(f"ALTER TOPIC {quoted} ADD SOURCE chat.messages ON INSERT")
    again = sql.ask(f"ALTER TOPIC {quoted} ADD SOURCE chat.messages ON INSERT WITH (start = 'earliest')")
    refused(again, 409, "topic_exists_incompatible")


def test_a_source_is_kept_in_normal_form_and_shown(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure(partitions=4)
    sql(
        f"ALTER TOPIC {quoted} ADD SOURCE chat.messages ON INSERT WHERE (is_visible = true AND channel_id = 42) "
        "PARTITION BY (user_id) WITH (payload = 'full', key = 'id, tenant')"
    )
    (route,) = sql.rows("SELECT * FROM system.topic_routes WHERE topic_id = ?", topic.name)
    version = route.pop("version")
    assert route == {
        "topic_id": topic.name,
        "table_id": "chat.messages",
        "op": "Insert",
        "payload_mode": "Full",
        "filter_expr": "`is_visible` = TRUE AND `channel_id` = 42",
        "partition_key_expr": "`user_id`",
        "key_columns": "id,tenant",
        "partitions": 4,
        "start": "Latest",
        "starts_at": None,
    }
    (row,) = sql.rows("SELECT routes FROM system.topics WHERE name = ?", topic.name)
    assert f'"version":{version}' in row["routes"]


def test_payload_is_key_unless_said_otherwise(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure()
    sql(f"ALTER TOPIC {quoted} ADD SOURCE a.b ON DELETE")
    assert sql.rows("SELECT payload_mode, op FROM system.topic_routes WHERE topic_id = ?", topic.name) == [
        {"payload_mode": "Key", "op": "Delete"}
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("payload = 'zip'", "payload must be 'key', 'full' or 'diff'"),
        ("payload = 5", "payload must be 'key', 'full' or 'diff'"),
        ("key = 5", "key must be 'column, ...'"),
        ("color = 'red'", "color is not an option of a source"),
    ],
)
def test_bad_and_unknown_options_of_a_source_have_different_errors(
    sql: Sql, topic: TopicApi, quoted: str, options: str, message: str
) -> None:
    topic.configure()
    answer = sql.ask(f"ALTER TOPIC {quoted} ADD SOURCE chat.messages ON INSERT WITH ({options})")
    assert message in refused(answer, 400, "invalid_request").json["error"]["message"]


def test_sources_are_dropped_by_table_operation_and_filter(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure()
    for rest in ("ON INSERT", "ON INSERT WHERE (a = 1)", "ON UPDATE", "ON DELETE"):
        sql(f"ALTER TOPIC {quoted} ADD SOURCE x.y {rest}")
    sql(f"ALTER TOPIC {quoted} ADD SOURCE x.z ON INSERT")
    refused(sql.ask(f"ALTER TOPIC {quoted} ADD SOURCE x.y ON UPDATE"), 409, "topic_exists_incompatible")

    def left() -> list[tuple[str, str, str | None]]:
        query = "SELECT table_id, op, filter_expr FROM system.topic_routes WHERE topic_id = ? ORDER BY version"
        return [tuple(row) for row in sql(query, topic.name)["rows"]]

    sql(f"ALTER TOPIC {quoted} DROP SOURCE x.y ON INSERT WHERE ( a=1 )")
    sql(f"ALTER TOPIC {quoted} DROP SOURCE x.y ON UPDATE")
    assert left() == [("x.y", "Insert", None), ("x.y", "Delete", None), ("x.z", "Insert", None)]
    sql(f"ALTER TOPIC {quoted} DROP SOURCE x.y")
    assert left() == [("x.z", "Insert", None)]
    refused(sql.ask(f"ALTER TOPIC {quoted} DROP SOURCE x.y"), 404, "not_found")


def test_the_routes_of_a_table_and_operation_are_found_and_every_change_is_seen(
    sql: Sql, api: Api, topic: TopicApi, quoted: str
) -> None:
    topic.configure()
    table = f"ns.{topic.name.replace('-', '_')}"
    before = succeeded(api.get("/api/routes"))["version"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.get, f"/api/routes?version={before}&wait_ms=20000")
        time.sleep(0.05)
        sql(f"ALTER TOPIC {quoted} ADD SOURCE {table} ON INSERT")
        assert succeeded(waiting.result(10))["version"] > before
    found = succeeded(api.get(f"/v1/api/routes?table={table}&op=insert"))
    assert [(route["topic_id"], route["table_id"], route["op"]) for route in found["routes"]] == [
        (topic.name, table, "Insert")
    ]
    assert succeeded(api.get(f"/api/routes?table={table}&op=Update"))["routes"] == []
    topic.drop()
    after = succeeded(api.get(f"/api/routes?table={table}"))
    assert after["routes"] == []
    assert after["version"] > found["version"]
    refused(api.get("/api/routes?op=upsert"), 400, "invalid_request")


@pytest.mark.parametrize(
    "clause",
    ["WHERE (reflect('java.lang.Runtime', 'x'))", "WHERE (a IN (SELECT 1))", "WHERE (a b)", "WHERE ()", "WHERE (a = ?)",
     "WHERE (a = 1; DROP TOPIC x)", "WHERE (rand() > 0)", "WHERE (a rlike 'x')", "PARTITION BY (a, b)",
     "WHERE (a = \"x\")", "WHERE a = 1", "WITH (payload = 'some')", "WITH (payload = 1)", "WITH (key = 'a b')",
     "WITH (colour = 'red')", "WHERE (count(*) > 1)", "WHERE (sum(a) OVER () > 1)", "WHERE (a = 'x\\'y')"],
)  # fmt: skip
def test_a_source_that_could_do_harm_is_refused(sql: Sql, topic: TopicApi, quoted: str, clause: str) -> None:
    topic.configure()
    refused(sql.ask(f"ALTER TOPIC {quoted} ADD SOURCE a.b ON INSERT {clause}"), 400, "invalid_request")
    assert sql.rows("SELECT * FROM system.topic_routes WHERE topic_id = ?", topic.name) == []


# Consuming


def test_consume_without_a_group_remembers_nothing(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append({"a": 1}, 2, 3)
    first = sql(f"CONSUME FROM {quoted} LIMIT 2")
    assert [row[2] for row in first["rows"]] == [1, 2]
    assert base64.b64decode(first["rows"][0][-1]) == b'{"a": 1}'
    assert (first["next_offset"], first["has_more"], first["tombstone"]) == (3, True, None)
    assert [row["offset"] for row in sql.rows(f"CONSUME FROM {quoted} FROM OFFSET 3")] == [3]
    assert sql.rows(f"CONSUME FROM {quoted} FROM LATEST") == []
    assert sql.rows("SELECT * FROM system.topic_offsets WHERE topic_id = ?", topic.name) == []


def test_consume_ack_and_reset_a_group(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append(*range(5))
    consume = f"CONSUME FROM {quoted} GROUP 'ai-service' FROM EARLIEST LIMIT 100"
    assert [row["offset"] for row in sql.rows(consume)] == [1, 2, 3, 4, 5]
    assert [row["offset"] for row in sql.rows(consume)] == [1, 2, 3, 4, 5]
    acked = sql(f"ACK {quoted} GROUP 'ai-service' PARTITION 0 UPTO OFFSET 3;")
    assert (acked["columns"], acked["rows"]) == (["acknowledged_offset"], [[3]])
    assert [row["offset"] for row in sql.rows(consume)] == [4, 5]
    reset = f"RESET CONSUMER GROUP 'ai-service' ON {quoted} TO"
    (row,) = sql.rows(f"{reset} EARLIEST DRY RUN")
    assert (row["previous_offset"], row["next_offset"], row["lag_records"]) == (4, 1, 5)
    assert [row["offset"] for row in sql.rows(consume)] == [4, 5]
    for target, offsets in (
        ("2", [2, 3, 4, 5]),
        ("LATEST", []),
        ("EARLIEST", [1, 2, 3, 4, 5]),
        ("OFFSET 5", [5]),
        ("TIMESTAMP '2001-02-03 04:05:06'", [1, 2, 3, 4, 5]),
        ("TIMESTAMP '2999-01-01T00:00:00+01:00'", []),
    ):
        sql(f"{reset} {target}")
        assert [row["offset"] for row in sql.rows(consume)] == offsets, target


def test_groups_and_their_lag_are_shown(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.configure(partitions=2)
    topic.append(1, 2, 3)
    topic.append(4, 5, partition=1)
    sql(f"ACK {quoted} GROUP 'g' UPTO OFFSET 1")
    sql(f"CONSUME FROM {quoted} GROUP 'g' PARTITION 1")
    rows = sql.rows("SELECT * FROM system.topic_offsets WHERE topic_id = ? ORDER BY partition_id", topic.name)
    wanted = ("partition_id", "last_acked_offset", "next_offset", "last_offset", "lag_records")
    assert [tuple([row[name] for name in wanted]) for row in rows] == [(0, 1, 2, 3, 2), (1, 0, 1, 2, 2)]
    (group,) = [row for row in sql.rows("SHOW CONSUMER GROUPS") if row["topic_id"] == topic.name]
    assert (group["group_id"], group["partitions"], group["lag_records"]) == ("g", 2, 4)
    assert group["lag_seconds"] >= 0
    assert sql.rows(f"SHOW CONSUMER GROUPS ON {quoted}") == [group | {"lag_seconds": pytest.approx(0, abs=60)}]


def test_a_group_is_dropped(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append(1)
    sql(f"ACK {quoted} GROUP 'g' UPTO OFFSET 1")
    sql(f"DROP CONSUMER GROUP 'g' ON {quoted}")
    refused(sql.ask(f"DROP CONSUMER GROUP 'g' ON {quoted}"), 404, "group_not_found")
    sql(f"DROP CONSUMER GROUP IF EXISTS 'g' ON {quoted}")
    assert len(sql.rows(f"CONSUME FROM {quoted} GROUP 'g'")) == 1


# Looking


def test_show_and_describe(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append(1)
    (row,) = [row for row in sql.rows("SHOW TOPICS") if row["topic_id"] == topic.name]
    assert (row["name"], row["partitions"], row["count"]) == (topic.name, 1, 1)
    described = {row["property"]: row["value"] for row in sql.rows(f"DESCRIBE TOPIC {quoted}")}
    assert described["durability"] == "disk"
    assert described["partition 0"]["last_offset"] == 1


def test_select_filters_orders_joins_and_aggregates(sql: Sql, topic: TopicApi, quoted: str) -> None:
    for number in range(3):
        TopicApi(topic.api, f"{topic.name}-{number}").append(*range(number + 1))
    like = topic.name + "-%"
    rows = sql.rows(
        "SELECT name, count FROM system.topics WHERE name LIKE ? AND count > 1 ORDER BY count DESC LIMIT 1", like
    )
    assert rows == [{"name": f"{topic.name}-2", "count": 3}]
    assert sql.rows("SELECT count(*) n, sum(t.count) s FROM system.topics t WHERE t.name LIKE $1", like) == [
        {"n": 3, "s": 6}
    ]
    sql(f"ACK \"{topic.name}-2\" GROUP 'g' UPTO OFFSET 2")
    joined = sql.rows(
        "SELECT t.name, o.lag_records FROM system.topics t JOIN system.topic_offsets o USING (topic_id) WHERE t.name LIKE ?",
        like,
    )
    assert joined == [{"name": f"{topic.name}-2", "lag_records": 1}]
    assert sql.rows("WITH x AS (SELECT system.topics.name FROM system.topics) SELECT count(*) > 0 AS some FROM x") == [
        {"some": True}
    ]


@pytest.mark.parametrize("table", ["topics", "topic_routes", "topic_offsets", "consumer_groups", "routers", "queues"])
def test_every_system_table_can_be_read(sql: Sql, table: str) -> None:
    assert sql(f"SELECT * FROM system.{table} LIMIT 5")["columns"]


def test_settings_are_shown_without_secrets(sql: Sql) -> None:
    settings = {row["name"]: row["value"] for row in sql.rows("SELECT * FROM system.settings")}
    assert settings["TOPICS_MAX_LIMIT"] == "1000"
    assert settings["TOPICS_JWT_SECRET"] is None


@pytest.mark.parametrize(
    "query",
    ["SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM glob('/*')", "SELECT * FROM '/etc/passwd'",
     "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE main.topics", "WITH x AS (SELECT 1) INSERT INTO x VALUES (1)",
     "SELECT * FROM system.nothing_like_it", "SELECT * FROM nowhere", "SELECT ?", "SELECT repeat('x', 2000000000)",
     "SELECT * FROM range(20000)", "SELECT nofunction()", "SELECT", "SELECT 'x", "SELECT * FROM system.topics WHERE",
     "SELECT getenv('HOME')", "SELECT * FROM duckdb_secrets()", "SELECT * FROM read_text('http://127.0.0.1:1/')"],
)  # fmt: skip
def test_a_select_that_is_wrong_or_reaches_out_is_refused(sql: Sql, query: str) -> None:
    answer = sql.ask(query)
    assert answer.status in (400, 404), answer
    assert answer.code in ("invalid_request", "not_found")


def test_a_select_that_takes_too_long_is_stopped_and_the_server_goes_on(
    sql: Sql, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topics.sql.select.SelectProcess.run.__defaults__", (1.0,))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(sql.ask, "SELECT count(*) FROM range(100000000000) a, range(1000000) b")
        while not slow.done():
            assert api.get("/v0/health").status == 200
            time.sleep(0.05)
        answer = refused(slow.result(), 400, "invalid_request")
        assert "longer" in answer.json["error"]["message"]
    assert sql.rows("SELECT 1 AS one") == [{"one": 1}]


# Refusals


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("CREATE TOPIC", 1, 13, "the name of a topic"),
        ("SHOW TOPICS please", 1, 13, "the end of the statement"),
        ("DROP\n  TABLE x", 2, 3, "TOPIC or CONSUMER"),
        ("CONSUME FROM t LIMIT x", 1, 22, "a limit"),
        ("ACK t GROUP 'g' UPTO 5", 1, 22, "OFFSET"),
        ("CREATE TOPIC t WITH (a 1)", 1, 24, "="),
        ("", 1, 1, "CREATE, DROP, CLEAR, ALTER, CONSUME, ACK, RESET, SHOW, DESCRIBE, SELECT or DESC"),
    ],
)
def test_an_error_says_where_and_what_was_expected(sql: Sql, text: str, line: int, column: int, expected: str) -> None:
    answer = refused(sql.ask(text), 400, "invalid_request")
    assert answer.detail == {"line": line, "column": column, "expected": expected}
    assert f"line {line}, column {column}" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "text",
    ["\0", "SHOW TOPICS\0", "SHOW\u00a0TOPICS", "SHOW TOPICS;;", "SHOW TOPICS; SHOW TOPICS", "ＳＨＯＷ TOPICS", "\u202eSHOW TOPICS",
     "CREATE TOPIC " + "(" * 5000, "CREATE TOPIC " + "x" * 300, "/*" * 1000, "'" * 999, "SELECT " + "(" * 5000 + "1" + ")" * 5000,
     "CREATE TOPIC x WITH (" + "a=1," * 5000 + "b=2)", "CREATE TOPIC \"a\0b\"", "CREATE TOPIC 'x'", "CREATE TOPIC ü", "CREATE TOPIC \"ü\"",
     "ALTER TOPIC t ADD SOURCE a.b ON INSERT WHERE " + "(" * 2000 + "a" + ")" * 2000,
     "ALTER TOPIC t ADD SOURCE a.b ON INSERT WHERE (" + "NOT " * 900 + "a)",
     "SELECT " + "1+" * 9000 + "1"],
)  # fmt: skip
def test_absurd_statements_are_400(sql: Sql, text: str) -> None:
    refused(sql.ask(text), 400, "invalid_request")


def test_a_statement_of_a_megabyte_is_400(sql: Sql) -> None:
    refused(sql.ask("SELECT '" + "x" * 1_000_000 + "'"), 400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"sql":5}',
        b'{"sql":null}',
        b'{"sql":"SHOW TOPICS","params":5}',
        b'{"sql":"SHOW TOPICS","params":[[]]}',
        b"[]",
    ],
)
def test_a_bad_body_is_400(api: Api, body: bytes) -> None:
    refused(api.post("/api/sql", body), 400, "invalid_request")


def test_parameters_are_bound_and_counted(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append(1, 2)
    odd = 'it\'s; DROP TOPIC "x" --'
    sql(f"ACK {quoted} GROUP ? UPTO OFFSET $2", odd, 1)
    assert sql.rows("SELECT group_id FROM system.topic_offsets WHERE group_id = ?", odd) == [{"group_id": odd}]
    refused(sql.ask(f"ACK {quoted} GROUP ? UPTO OFFSET ?", "g"), 400, "invalid_request")
    refused(sql.ask(f"ACK {quoted} GROUP ? UPTO OFFSET 1", "g", 5), 400, "invalid_request")
    refused(sql.ask(f"ACK {quoted} GROUP ? UPTO OFFSET 1", 5), 400, "invalid_request")
    refused(sql.ask(f"ACK {quoted} GROUP 'g' UPTO OFFSET ?", "1"), 400, "invalid_request")


@pytest.mark.parametrize(
    ("text", "code"),
    [("CONSUME FROM nowhere", "topic_not_found"), ("ACK nowhere GROUP 'g' UPTO OFFSET 1", "topic_not_found"),
     ("ALTER TOPIC nowhere CLEAR ALIAS", "topic_not_found"), ("DESCRIBE TOPIC nowhere", "topic_not_found"),
     ("ALTER TOPIC nowhere ADD SOURCE a.b ON INSERT", "topic_not_found"), ("CLEAR TOPIC nowhere", "topic_not_found"),
     ("ALTER TOPIC nowhere CLEAR RETENTION", "topic_not_found"), ("SHOW CONSUMER GROUPS ON nowhere", "topic_not_found"),
     ("RESET CONSUMER GROUP 'g' ON nowhere TO LATEST", "topic_not_found")],
)  # fmt: skip
def test_what_does_not_exist_is_404_and_is_not_created(sql: Sql, api: Api, text: str, code: str) -> None:
    refused(sql.ask(text), 404, code)
    refused(api.get("/v0/topics/nowhere"), 404, "topic_not_found")


def test_a_partition_that_does_not_exist_is_400(sql: Sql, topic: TopicApi, quoted: str) -> None:
    topic.append(1)
    refused(sql.ask(f"CONSUME FROM {quoted} PARTITION 1"), 400, "invalid_request")
    refused(sql.ask(f"ACK {quoted} GROUP 'g' PARTITION 7 UPTO OFFSET 1"), 400, "invalid_request")
    refused(sql.ask(f"ACK {quoted} GROUP 'g' UPTO OFFSET 99"), 400, "invalid_request")


def test_the_other_root_answers_too(sql: Sql) -> None:
    assert sql.ask("SHOW TOPICS", root="/v1/api").status == 200


def test_queues_are_shown_with_their_jobs(sql: Sql, api: Api, topic: TopicApi) -> None:
    topic.configure(type="queue")
    topic.append(1, 2, 3)
    succeeded(api.post(f"{topic.path}/claim", {"node": "n", "max": 1}))
    rows = sql.rows("SELECT ready, in_flight, dead_lettered FROM system.queues WHERE topic_id = ?", topic.name)
    assert rows == [{"ready": 2, "in_flight": 1, "dead_lettered": 0}]


def test_routers_are_shown_with_what_they_have_done(sql: Sql, api: Api, topic: TopicApi) -> None:
    dest = topic.name + "-copy"
    succeeded(api.put(f"/v0/routers/{topic.name}", {"source": topic.name, "dest": dest}))
    topic.append(1, 2)
    assert TopicApi(api, dest).diff(wait_ms=5000)["records"]
    query = "SELECT source, dest, guarantee, forwarded_total, lag_records FROM system.routers WHERE router = ?"
    assert sql.rows(query, topic.name) == [
        {"source": topic.name, "dest": dest, "guarantee": "at_least_once", "forwarded_total": 2, "lag_records": 0}
    ]
