"""A write with an idempotency key happens once, however often it is sent."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded, wait_until_past


def test_a_repeated_write_answers_the_original_seqs_and_appends_nothing(topic: TopicApi) -> None:
    first = topic.append(1, 2, idempotency_key="k")
    assert first["deduped"] is False
    topic.append(3)
    answer = topic.api.post(topic.path, {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"})
    again = succeeded(answer)
    assert answer.status == 200
    assert (again["deduped"], again["created"], again["seqs"], again["count"]) == (True, False, [1, 2], 2)
    assert (again["first_seq"], again["last_seq"], again["head_seq"]) == (1, 2, 3)
    assert topic.state()["count"] == 3


def test_the_seqs_of_a_repeated_write_can_be_left_out(topic: TopicApi) -> None:
    topic.append(1, 2, idempotency_key="k")
    again = topic.api.post(f"{topic.path}?return_seqs=false", {"records": [{"data": 1}], "idempotency_key": "k"}).json
    assert "seqs" not in again
    assert (again["first_seq"], again["last_seq"], again["deduped"]) == (1, 2, True)


def test_the_key_decides_not_the_payload(topic: TopicApi) -> None:
    topic.append(1, idempotency_key="k")
    again = topic.append("other", "payload", idempotency_key="k")
    assert (again["deduped"], again["seqs"]) == (True, [1])
    assert topic.append(1, idempotency_key="l")["deduped"] is False


def test_header_and_body_share_one_space_of_keys(topic: TopicApi) -> None:
    records = {"records": [{"data": 1}]}
    first = topic.api.post(topic.path, records, {"Idempotency-Key": "k"}).json
    assert (first["deduped"], first["seqs"]) == (False, [1])
    assert topic.api.post(topic.path, records, {"idempotency-key": "k"}).json["deduped"] is True
    assert topic.append(1, idempotency_key="k")["deduped"] is True
    topic.append(1, idempotency_key="l")
    assert topic.api.post(topic.path, records, {"Idempotency-Key": "l"}).json["deduped"] is True


def test_the_bodys_key_beats_the_headers(topic: TopicApi) -> None:
    header = {"Idempotency-Key": "header"}
    body = {"records": [{"data": 1}], "idempotency_key": "body"}
    topic.api.post(topic.path, body, header)
    assert topic.append(1, idempotency_key="header")["deduped"] is False
    assert topic.append(1, idempotency_key="body")["deduped"] is True
    # null is no key: then the header's counts.
    null = {"records": [{"data": 1}], "idempotency_key": None}
    assert topic.api.post(topic.path, null, header).json["deduped"] is True


def test_writes_without_a_key_are_never_the_same(topic: TopicApi) -> None:
    assert [topic.append(1)["deduped"] for _ in range(3)] == [False] * 3
    assert topic.api.post(topic.path, {"records": [{"data": 1}]}, {"Idempotency-Key": ""}).json["deduped"] is False
    assert topic.api.post(topic.path, {"records": [{"data": 1}]}, {"Idempotency-Key": ""}).json["deduped"] is False
    assert topic.state()["count"] == 5


def test_keys_belong_to_their_topic(topic: TopicApi) -> None:
    other = TopicApi(topic.api, topic.name + ".other")
    topic.append(1, idempotency_key="k")
    assert other.append(1, idempotency_key="k")["deduped"] is False


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_concurrent_writes_with_one_key_append_once(topic: TopicApi, durability: str) -> None:
    topic.configure(durability=durability)
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}
    with ThreadPoolExecutor(8) as threads:
        answers = [answer.json for answer in threads.map(lambda _: topic.api.post(topic.path, body), range(24))]
    assert [answer["deduped"] for answer in answers].count(False) == 1
    assert {tuple(answer["seqs"]) for answer in answers} == {(1, 2)}
    assert topic.state()["head_seq"] == 2


def test_concurrent_first_writes_with_one_key_create_and_append_once(topic: TopicApi) -> None:
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: topic.api.post(topic.path, body), range(16)))
    assert sorted([answer.status for answer in answers]) == [200] * 15 + [201]
    assert [answer.json["deduped"] for answer in answers].count(False) == 1
    assert topic.state()["head_seq"] == 1


def test_a_repeat_is_recognised_after_its_records_were_deleted(topic: TopicApi) -> None:
    topic.append(1, idempotency_key="k")
    topic.remove(before_seq=2)
    again = topic.append(1, idempotency_key="k")
    assert (again["deduped"], again["seqs"]) == (True, [1])
    assert topic.state()["count"] == 0


def test_a_repeat_is_recognised_in_a_full_topic(topic: TopicApi) -> None:
    topic.configure(cap_records=1, discard="reject")
    topic.append(1, idempotency_key="k")
    refused(topic.api.post(topic.path, {"records": [{"data": 1}]}), 422, "topic_full")
    assert topic.append(1, idempotency_key="k")["deduped"] is True


def test_a_refused_write_does_not_keep_its_key(topic: TopicApi) -> None:
    topic.configure(cap_records=1, discard="reject")
    topic.append("in the way")
    key = {"idempotency_key": "k"}
    refused(topic.api.post(topic.path, {"records": [{"data": 1}], **key}), 422, "topic_full")
    refused(topic.api.post(topic.path, {"records": [{"data": 1, "tag": 5}], **key}), 400, "invalid_request")
    refused(topic.api.post(topic.path, {"records": [{"data": 1}, {"data": 2}], **key}), 422, "topic_full")
    refused(topic.api.post(topic.path, b'{"records":[{"data":1}],"idempotency_key":"k"'), 400, "invalid_request")
    topic.remove(before_seq=2)
    assert topic.append(1, **key)["deduped"] is False


def test_a_key_is_forgotten_after_the_topics_window(topic: TopicApi) -> None:
    topic.configure(idempotency_window_ms=40)
    topic.append(1, idempotency_key="k")
    wait_until_past(topic.state()["last_write_ts"] + 40)
    again = topic.append(1, idempotency_key="k")
    assert (again["deduped"], again["seqs"]) == (False, [2])


def test_a_window_of_zero_forgets_at_once(topic: TopicApi) -> None:
    topic.configure(idempotency_window_ms=0)
    assert [topic.append(1, idempotency_key="k")["deduped"] for _ in range(2)] == [False, False]


def test_a_key_has_at_most_256_characters(topic: TopicApi) -> None:
    assert topic.append(1, idempotency_key="é" * 256)["deduped"] is False
    assert topic.append(1, idempotency_key="é" * 256)["deduped"] is True
    body = {"records": [{"data": 1}]}
    refused(topic.api.post(topic.path, body | {"idempotency_key": "k" * 257}), 400, "invalid_request")
    refused(topic.api.post(topic.path, body, {"Idempotency-Key": "k" * 257}), 400, "invalid_request")
    assert topic.api.post(topic.path, body, {"Idempotency-Key": "k" * 256}).status == 200
    assert topic.state()["count"] == 2
