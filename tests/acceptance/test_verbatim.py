r"""`data` and `meta` come back byte for byte as they were sent, for every content and every reader."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.topic import TopicApi, succeeded
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

TEXTS = [
    b"null",
    b"true",
    b"false",
    b"0",
    b"-0",
    b"-0.0",
    b"1.0",
    b"1.10",
    b"1E5",
    b"1e+5",
    b"1e-05",
    b"1e400",
    b"-1E-400",
    b"123456789012345678901234567890",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"0.1000000000000000055511151231257827021181583404541015625",
    b'""',
    b'"plain"',
    b'"\\u0041\\u00e9\\u00E9"',
    b'"\\/ / \\b\\f\\n\\r\\t \\" \\\\"',
    b'"\\u0000\\u001f\\u007f\x7f"',
    b'"\\ud83d\\ude00 \\uD83D\\uDE00"',
    b'"\\ud800"',
    b'"\\udc00 alone, \\uD800 alone, \\ud83d\\ude00 together, \\\\ud800 not at all"',
    b'{"\\ud800":["\\ue000","\xee\x80\x80"]}',
    '"é 日本 🙂 \u2028\u2029\ufeff\u0085"'.encode(),
    b"[]",
    b"{}",
    b"[[],{},[[]]]",
    b'{"b":1,"a":2,"B":3}',
    b'{"a":1,"a":2,"a":{"a":3}}',
    b'{"":"","":""}',
    b'{ "a" : [ 1 , 2 ] ,\t"b"\n:\r\n{ } }',
    b'[\n  1,\n\r\n  "event: x\\ndata: y"\n]',
    b'{"$seq":1,"$ts":2,"data":3,"meta":4}',
    b'{"data":{"data":{"data":null}}}',
    b'"data\\":1}],\\"next_from_seq\\":0"',
    b"[" * 400 + b"]" * 400,
    b'{"a":' * 400 + b"1" + b"}" * 400,
    b'"' + b"x" * 100_000 + b'"',
    "".join(['"', "é🙂" * 10_000, '"']).encode(),
    b"[" + b",".join([b"%d" % n for n in range(20_000)]) + b"]",
]


def shorten(text: bytes) -> str:
    return text[:40].decode("latin-1").encode("unicode_escape").decode()


def write(*records: bytes, extra: bytes = b"") -> bytes:
    return b'{"records":[' + b",".join(records) + b"]" + extra + b"}"


@pytest.mark.parametrize("text", TEXTS, ids=shorten)
def test_data_alone_comes_back_as_it_was_sent(topic: TopicApi, text: bytes) -> None:
    assert topic.api.post(topic.path, write(b'{"data":' + text + b"}")).status == 201
    body = topic.api.post(f"{topic.path}/diff", {}).body
    assert b'"data":' + text + b'}],"next_from_seq":1,' in body
    json.loads(body)


@pytest.mark.parametrize("text", [text for text in TEXTS if len(text) < 5_000], ids=shorten)
def test_data_and_meta_of_a_full_record_come_back_as_they_were_sent(topic: TopicApi, text: bytes) -> None:
    meta = b'{ "k" : ' + text + b" }"
    record = b'{"meta":' + meta + b' , "tag":"t" ,"node":"n","data":' + text + b"}"
    other = b'{"data":"other"}'
    assert topic.api.post(topic.path, write(other, record, other)).status == 201
    expected = b',"data":' + text + b',"meta":' + meta + b"}"
    for fields, shown in [
        ({}, b'"$node":"n"' + expected),
        ({"include_tags": True}, b'"$node":"n","$tag":"t"' + expected),
        ({"include_meta": False}, b',"data":' + text + b"}"),
        ({"node": "other"}, b'"$node":"n"' + expected),
        ({"from_seq": 1, "limit": 1}, b'"$node":"n"' + expected),
    ]:
        body = topic.api.post(f"{topic.path}/diff", fields).body
        assert shown in body, fields


def test_white_space_around_data_belongs_to_the_request_not_to_the_payload(topic: TopicApi) -> None:
    topic.api.post(topic.path, b' {\n"records" : [ { "data" :\t\r\n [ 1 ] \n } ]\t} \n')
    assert b'"data":[ 1 ]}' in topic.api.post(f"{topic.path}/diff", {}).body


def test_many_records_of_one_batch_keep_their_own_bytes(topic: TopicApi) -> None:
    texts = [text for text in TEXTS if len(text) < 2_000] * 20
    assert topic.api.post(topic.path, write(*[b'{"data":' + text + b"}" for text in texts])).status == 201
    body = topic.api.post(f"{topic.path}/diff", {"limit": 1000}).body
    assert b",".join([b'"data":' + text for text in texts[:1]]) in body
    for seq, text in enumerate(texts, 1):
        start = body.index(b'{"$seq":%d,' % seq)
        assert body[body.index(b'"data":', start) :].startswith(b'"data":' + text + b"}")


def test_records_of_many_small_writes_keep_their_own_bytes(topic: TopicApi) -> None:
    texts = [text for text in TEXTS if len(text) < 2_000] * 10

    def append(numbered: tuple[int, bytes]) -> tuple[int, bytes]:
        number, text = numbered
        meta = b',"meta":{"n":%d}' % number if number % 3 == 0 else b""
        answer = topic.api.post(topic.path, write(b'{"data":' + text + meta + b"}"))
        return answer.json["first_seq"], b'"data":' + text + meta + b"}"

    with ThreadPoolExecutor(8) as threads:
        written = dict(threads.map(append, enumerate(texts)))
    body = topic.api.post(f"{topic.path}/diff", {"limit": 1000}).body
    for seq, expected in written.items():
        start = body.index(b'{"$seq":%d,' % seq)
        assert body[body.index(b'"data":', start) :].startswith(expected)


@pytest.mark.parametrize("text", TEXTS, ids=shorten)
def test_gzip_on_the_way_changes_nothing(topic: TopicApi, text: bytes) -> None:
    packed = gzip.compress(write(b'{"data":' + text + b"}"))
    answer = topic.api.post(topic.path, packed, {"Content-Encoding": "gzip"})
    assert answer.status == 201
    answer = topic.api.post(f"{topic.path}/diff", {}, {"Accept-Encoding": "gzip"})
    body = gzip.decompress(answer.body) if answer.headers.get("content-encoding") == "gzip" else answer.body
    assert (answer.headers.get("content-encoding") == "gzip") is (len(body) >= 1024)
    assert b'"data":' + text + b'}],"next_from_seq":1,' in body


def test_answers_are_compressed_only_when_asked_for(topic: TopicApi) -> None:
    topic.append("x" * 10_000)
    for headers in ({}, {"Accept-Encoding": "identity"}, {"Accept-Encoding": "gzip;q=0"}, {"Accept-Encoding": "br"}):
        answer = topic.api.post(f"{topic.path}/diff", {}, headers)
        assert "content-encoding" not in answer.headers
        assert len(answer.body) > 10_000


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_payloads_survive_a_restart_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, name: str, durability: str
) -> None:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("restart")),
        "TOPICS_SEGMENT_BYTES": "50000",
        "TOPICS_HOT_BYTES": "50000",
        "TOPICS_CHECKPOINT_BYTES": "200000",
    }
    bodies = []
    for _ in range(2):
        with running_server(load_settings(environment)) as url, Api(url) as api:
            topic = TopicApi(api, name)
            if not bodies:
                topic.configure(durability=durability)
                for _ in range(3):
                    for text in TEXTS:
                        record = b'{"data":' + text + b',"tag":"t","node":"n"'
                        if len(text) < 10_000:
                            record += b',"meta":{"m":' + text + b"}"
                        succeeded(api.post(topic.path, write(record + b"}")))
            pages = []
            cursor = 0
            while True:
                answer = api.post(f"{topic.path}/diff", {"from_seq": cursor, "include_tags": True})
                pages.append(answer.body.partition(b'"records":')[2].partition(b',"next_from_seq"')[0])
                cursor = answer.json["next_from_seq"]
                if answer.json["caught_up"]:
                    break
            bodies.append(b"".join(pages))
    assert cursor == 3 * len(TEXTS)
    assert all([b'"data":' + text in bodies[0] for text in TEXTS])
    assert bodies[1] == bodies[0]
