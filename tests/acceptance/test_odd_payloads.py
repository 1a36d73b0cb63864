r"""Payloads that are JSON and yet trouble decoders (half surrogate pairs, huge numbers) stop no kind of reader."""

import json

import pytest

from tests.acceptance.topic import TopicApi, succeeded

ODD = [
    b'"\\ud800"',
    b'{"\\udc00":"\\uD800x"}',
    b"1e400",
    b"-1e400",
    b"123456789012345678901234567890",
    b'{"a":1,"a":2}',
    b"[" * 500 + b"]" * 500,
]


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20].decode())
def test_consumers_of_a_group_get_past_them(topic: TopicApi, text: bytes) -> None:
    meta = b'{"op":' + text + b',"message_id":' + text + b',"x":' + text + b"}"
    body = b'{"records":[{"data":' + text + b',"meta":' + meta + b'},{"data":"next"}]}'
    succeeded(topic.api.post(topic.path, body))
    fields = {"topic": topic.name, "group_id": "g", "start": "earliest"}
    answer = topic.api.post("/api/topics/consume", fields)
    assert answer.status == 200, answer
    assert json.dumps(answer.json).count('"Insert"') == 2


@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20].decode())
def test_workers_of_a_queue_get_them_and_dead_letters_keep_them(topic: TopicApi, text: bytes) -> None:
    graves = TopicApi(topic.api, topic.name + ".dead")
    topic.configure(type="queue", max_deliveries=1, dead_letter=graves.name)
    meta = b'{"$dead_letter_from":"before","k":' + text + b"}"
    succeeded(topic.api.post(topic.path, b'{"records":[{"data":' + text + b',"meta":' + meta + b"}]}"))
    claim = topic.api.post(f"{topic.path}/claim", {"node": "w"})
    assert b'"data":' + text in claim.body
    assert b'"k":' + text in claim.body
    assert topic.api.post(f"{topic.path}/nack", {"node": "w", "seqs": [1]}).status == 200
    assert topic.api.post(f"{topic.path}/claim", {"node": "w"}).json["count"] == 0
    found = topic.api.post(f"{graves.path}/diff", {}).body
    assert b'"data":' + text in found
    assert b'"k":' + text in found
    assert json.loads(found)["records"][0]["meta"]["$dead_letter_from"] == topic.name
