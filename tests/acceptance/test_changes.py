"""POST /api/tables/:table/changes over the wire."""

from typing import Any

import pytest

from tests.acceptance.topic import TopicApi
from topics.testing.http import Api


def insert(key: int, **more: Any) -> dict[str, Any]:
    return {"op": "insert", "ts": 1000 + key, "key": {"id": key}, "after": {"id": key, "text": "hello"}, **more}


def test_events_become_records_of_the_change_topic(api: Api, name: str) -> None:
    table = f"chat.{name}"
    body = {"changes": [insert(1, position=1), {"op": "?"}, None, insert(2, position=2)]}
    for root in ("/api", "/v1/api"):
        answer = api.post(f"{root}/tables/{table}/changes", body)
        assert answer.status == 200, answer
        first = root == "/api"
        assert (answer.json["table"], answer.json["topic"]) == (table, f"changes:{table}")
        assert (answer.json["appended"], answer.json["duplicates"]) == ((2, 0) if first else (0, 2))
        assert answer.json["tombstones"] == 1
        assert [refused["index"] for refused in answer.json["refused"]] == [1]
        assert "op" in answer.json["refused"][0]["message"]
        assert answer.json["last_seq"] == (2 if first else None)
        assert "performance" in answer.json
    records = TopicApi(api, f"changes:{table}").diff()["records"]
    assert [record["data"] for record in records] == [
        {
            "op": "insert",
            "ts": 1000 + key,
            "key": {"id": key},
            "before": None,
            "after": {"id": key, "text": "hello"},
            "source": {"position": key},
        }
        for key in (1, 2)
    ]


def test_debezium_server_may_post_bare_envelopes(api: Api, name: str) -> None:
    source = {"connector": "postgresql", "name": "shop", "ts_ms": 5, "sequence": '["1","2"]', "table": "messages"}
    payload = {"before": None, "after": {"id": 1, "n": 2}, "op": "c", "ts_ms": 9, "source": source}
    for appended in (1, 0):
        answer = api.post(f"/api/tables/chat.{name}/changes?key=id", {"schema": {}, "payload": payload})
        assert (answer.status, answer.json["appended"], answer.json["refused"]) == (200, appended, [])
    (record,) = TopicApi(api, f"changes:chat.{name}").diff()["records"]
    assert record["data"]["key"] == {"id": 1}
    assert record["data"]["source"] == source


def test_a_large_request_is_taken_like_a_small_one(api: Api, name: str) -> None:
    changes = [insert(key, position=key) for key in range(5000)]
    for appended in (5000, 0):
        answer = api.post(f"/api/tables/{name}/changes", {"changes": changes})
        assert (answer.json["appended"], answer.json["duplicates"]) == (appended, 5000 - appended)
    wrong = api.post(f"/api/tables/{name}/changes", {"changes": "x" * 100_000})
    assert (wrong.status, wrong.code) == (400, "invalid_request")


@pytest.mark.parametrize("body", [{}, [], {"changes": []}, {"changes": 5}, 5, "x"])
def test_a_body_without_events_changes_nothing(api: Api, name: str, body: Any) -> None:
    answer = api.post(f"/api/tables/{name}/changes", body)
    if answer.status == 200:
        assert (answer.json["appended"], len(answer.json["refused"])) == (0, 1)
    else:
        assert (answer.status, answer.code) == (400, "invalid_request")
    assert api.get(f"/v0/topics/changes:{name}").code == "topic_not_found"


def test_a_table_needs_a_name_that_a_topic_can_bear(api: Api) -> None:
    for table in ("%20", "a%2Fb", "x" * 250, ".hidden"):
        answer = api.post(f"/api/tables/{table}/changes", {"changes": [insert(1)]})
        assert (answer.status, answer.code) == (400, "invalid_request"), table
