"""/v0/stages, /v0/commits, /v0/producers: written ahead, readable together, at most once."""

from typing import Any

import pytest

from tests.acceptance.test_arrow import ARROW, stream
from tests.acceptance.topic import TopicApi
from topics.testing.http import Answer


def staged(topic: TopicApi, *datas: Any) -> str:
    answer = topic.api.post(f"/v0/stages?topic={topic.name}", {"records": [{"data": data} for data in datas]})
    assert answer.status == 201, answer
    assert answer.json["count"] == len(datas)
    stage_id: str = answer.json["stage_id"]
    assert stage_id.startswith("stage_")
    return stage_id


def committed(topic: TopicApi, **fields: Any) -> Answer:
    return topic.api.post("/v0/commits", fields)


def test_staged_records_are_invisible_until_they_are_committed(topic: TopicApi) -> None:
    topic.append("before")
    stage = staged(topic, "a", "b")
    assert topic.state()["head_seq"] == 1
    topic.append("between")
    answer = committed(topic, stages=[stage])
    assert answer.status == 200
    assert answer.json["deduped"] is False
    assert answer.json["count"] == 2
    (result,) = answer.json["results"]
    assert result == {
        "stage_id": stage,
        "topic": topic.name,
        "partition": 0,
        "first_seq": 3,
        "last_seq": 4,
        "count": 2,
    }
    assert [record["data"] for record in topic.diff()["records"]] == ["before", "between", "a", "b"]


def test_a_batch_is_committed_once_however_often_it_is_sent(topic: TopicApi) -> None:
    topic.configure()
    producer = f"producer of {topic.name}"
    path = "/v0/producers/" + producer.replace(" ", "%20")
    assert topic.api.get(path).code == "producer_not_found"
    fields = {"producer": producer, "batch": 3, "stages": [staged(topic, 1)]}
    first = committed(topic, **fields)
    again = committed(topic, **fields)
    assert (first.json["deduped"], again.json["deduped"]) == (False, True)
    assert first.json["results"] == again.json["results"]
    older = committed(topic, producer=producer, batch=2, stages=[staged(topic, 2)])
    assert (older.json["deduped"], older.json["fence"], older.json["results"]) == (True, 3, [])
    assert topic.seqs() == [1]
    producer_state = topic.api.get(path).json
    assert (producer_state["producer"], producer_state["batch"]) == (producer, 3)
    assert committed(topic, producer=producer, batch=4, stages=[staged(topic, 3)]).json["deduped"] is False
    assert topic.seqs() == [1, 2]


def test_a_repeated_batch_with_another_digest_is_a_conflict(topic: TopicApi) -> None:
    topic.configure()
    producer = f"producer of {topic.name}"
    assert committed(topic, producer=producer, batch=1, digest="one", stages=[staged(topic, 1)]).status == 200
    refused = committed(topic, producer=producer, batch=1, digest="two", stages=[staged(topic, 2)])
    assert (refused.status, refused.code) == (409, "batch_differs")
    assert committed(topic, digest="one", stages=[staged(topic, 3)]).status == 400
    assert committed(topic, producer=producer, batch=2, digest="x" * 129, stages=[staged(topic, 3)]).status == 400
    assert topic.seqs() == [1]


def test_a_producer_renews_the_stages_made_for_it(topic: TopicApi) -> None:
    topic.configure()
    body = {"records": [{"data": 1}]}
    stage = topic.api.post(f"/v0/stages?topic={topic.name}&producer=renewing", body).json
    renewed = topic.api.post("/v0/producers/renewing/renew", {}).json
    assert renewed["renewed"] == 1
    assert renewed["expires_at"] >= stage["expires_at"]
    assert renewed["ttl_ms"] == stage["ttl_ms"] > 0
    assert committed(topic, producer="renewing", batch=1, stages=[stage["stage_id"]]).status == 200
    assert topic.api.post("/v0/producers/renewing/renew", {}).json["renewed"] == 0
    assert topic.api.post(f"/v0/stages?topic={topic.name}&producer={'x' * 257}", body).status == 400


def test_writes_to_several_topics_are_one(topic: TopicApi) -> None:
    topic.configure()
    other = TopicApi(topic.api, topic.name + "-other")
    other.configure(cap_records=1, discard="reject")
    both = [
        {"topic": topic.name, "records": [{"data": 1, "tag": "x"}]},
        {"topic": other.name, "records": [{"data": 2}]},
    ]
    assert committed(topic, writes=both).status == 200
    refused = committed(topic, writes=both)
    assert (refused.status, refused.code) == (422, "topic_full")
    assert (topic.seqs(), other.seqs()) == ([1], [1])


def test_arrow_rows_are_staged_for_their_partitions(topic: TopicApi) -> None:
    topic.configure(partitions=3)
    body = stream(data=["1", "2", "3"], partition=[2, 0, 2])
    answer = topic.api.send("POST", f"/v0/stages?topic={topic.name}", body, {"Content-Type": ARROW})
    assert answer.status == 201, answer
    results = committed(topic, stages=[answer.json["stage_id"]]).json["results"]
    assert [(each["partition"], each["count"]) for each in results] == [(0, 1), (2, 2)]
    outside = stream(data=["1"], partition=[3])
    answer = topic.api.send("POST", f"/v0/stages?topic={topic.name}", outside, {"Content-Type": ARROW})
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_a_dropped_stage_cannot_be_committed(topic: TopicApi) -> None:
    topic.configure()
    stage = staged(topic, 1)
    assert topic.api.delete(f"/v0/stages/{stage}").json["deleted"] is True
    assert topic.api.delete(f"/v0/stages/{stage}").json["deleted"] is False
    refused = committed(topic, stages=[stage])
    assert (refused.status, refused.code) == (404, "stage_not_found")
    assert refused.detail["stages"] == [stage]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stages": "x"},
        {"stages": [1]},
        {"producer": "p", "stages": []},
        {"batch": 1, "stages": ["x"]},
        {"producer": "p", "batch": -1, "stages": ["x"]},
        {"producer": "p", "batch": 1.5, "stages": ["x"]},
        {"producer": "p", "batch": 2**64, "stages": []},
        {"producer": "", "batch": 1, "stages": ["x"]},
        {"producer": "p" * 257, "batch": 1, "stages": ["x"]},
        {"stages": ["x", "x"]},
        {"writes": [{"topic": "bad name", "records": [{"data": 1}]}]},
        {"writes": [{"topic": "t", "records": []}]},
        {"writes": [{"topic": "t", "records": [{"data": 1}], "idempotency_key": "k"}]},
    ],
)
def test_malformed_commits_are_bad_requests(topic: TopicApi, fields: dict[str, Any]) -> None:
    answer = committed(topic, **fields)
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_jobs_for_later_are_refused_rather_than_committed_for_now(topic: TopicApi) -> None:
    topic.configure(type="queue")
    records = [{"data": 1}, {"data": 2, "delay_ms": 60_000}]
    answer = committed(topic, writes=[{"topic": topic.name, "records": records}])
    assert (answer.status, answer.code) == (400, "invalid_request")
    answer = topic.api.post(f"/v0/stages?topic={topic.name}", {"records": records})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert topic.state()["head_seq"] == 0


def test_stages_need_a_topic_that_exists_and_records_that_are_valid(topic: TopicApi) -> None:
    body = {"records": [{"data": 1}]}
    assert topic.api.post("/v0/stages", body).code == "invalid_request"
    assert topic.api.post("/v0/stages?topic=bad%20name", body).code == "invalid_request"
    assert topic.api.post(f"/v0/stages?topic={topic.name}", body).code == "topic_not_found"
    topic.configure()
    assert topic.api.post(f"/v0/stages?topic={topic.name}", {"records": []}).code == "invalid_request"
    assert topic.api.post(f"/v0/stages?topic={topic.name}&partition=1", body).code == "invalid_request"
    answer = topic.api.send("POST", f"/v0/stages?topic={topic.name}", b"{}", {"Content-Type": "text/plain"})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


def test_a_commit_to_an_absent_topic_changes_nothing(topic: TopicApi) -> None:
    topic.configure()
    writes = [
        {"topic": topic.name, "records": [{"data": 1}]},
        {"topic": topic.name + "-absent", "records": [{"data": 1}]},
    ]
    refused = committed(topic, writes=writes)
    assert (refused.status, refused.code) == (404, "topic_not_found")
    assert topic.seqs() == []
