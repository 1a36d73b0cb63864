"""The same pages and appends as Arrow streams: what JSON shows, Arrow shows, and what JSON refuses, Arrow refuses."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.acceptance.topic import TopicApi
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

ARROW = "application/vnd.apache.arrow.stream"
JSON = {"Content-Type": "application/json"}


class Page:
    def __init__(self, body: bytes) -> None:
        reader = pa.ipc.open_stream(body)
        self.schema = reader.schema
        self.metadata = {name.decode(): json.loads(value) for name, value in reader.schema.metadata.items()}
        self.rows: list[dict[str, Any]] = reader.read_all().to_pylist()

    @property
    def seqs(self) -> list[int]:
        return [row["seq"] for row in self.rows]


def bulk(topic: TopicApi, **fields: Any) -> Page:
    body = json.dumps(fields).encode()
    headers = {"Content-Type": "application/json", "Accept": ARROW}
    answer = topic.api.send("POST", f"{topic.path}/diff", body, headers)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == ARROW
    return Page(answer.body)


def stream(**columns: list[Any]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_bulk_read_shows_what_json_shows(topic: TopicApi) -> None:
    topic.append_records(
        {"data": {"x": 1.0}, "tag": "t", "node": "n", "meta": {"m": [1]}},
        {"data": None},
        {"data": "täg", "tag": 'quo"te'},
    )
    page = bulk(topic, include_tags=True)
    expected = topic.diff(include_tags=True)
    assert page.schema.field("seq").type == pa.int64()
    assert page.schema.field("ts").type == pa.timestamp("us", "UTC")
    assert page.schema.names == ["seq", "ts", "node", "tag", "data", "meta"]
    for row, record in zip(page.rows, expected["records"], strict=True):
        assert row["seq"] == record["$seq"]
        assert row["ts"].timestamp() * 1000 == pytest.approx(record["$ts"])
        assert row["node"] == record.get("$node")
        assert row["tag"] == record.get("$tag")
        assert json.loads(row["data"]) == record["data"]
        assert (None if row["meta"] is None else json.loads(row["meta"])) == record.get("meta")
    for field in ("topic", "next_from_seq", "head_seq", "earliest_seq", "caught_up", "tombstone", "lag", "epoch"):
        assert page.metadata[field] == expected[field]


def test_bulk_read_leaves_out_what_was_not_asked_for(topic: TopicApi) -> None:
    topic.append_records({"data": 1, "tag": "t", "meta": {"m": 1}})
    (row,) = bulk(topic, include_meta=False).rows
    assert (row["tag"], row["meta"], row["data"]) == (None, None, "1")


def test_bulk_read_honours_deletes_nodes_tags_and_bounds(topic: TopicApi) -> None:
    topic.append_records(*[{"data": i, "tag": f"t{i % 3}", "node": f"n{i % 2}"} for i in range(600)])
    topic.remove(match="t0")
    topic.remove(before_seq=11)
    seqs = [seq for seq in range(11, 601) if (seq - 1) % 3]
    assert bulk(topic).seqs == seqs
    assert bulk(topic, node="n0").seqs == [seq for seq in seqs if (seq - 1) % 2]
    assert bulk(topic, filter=["tag", "Eq", "t1"]).seqs == [seq for seq in seqs if (seq - 1) % 3 == 1]
    assert bulk(topic, filter="t*").seqs == seqs
    page = bulk(topic, from_seq=100, to_seq=200)
    assert page.seqs == [seq for seq in seqs if 100 < seq <= 200]
    assert page.metadata["next_from_seq"] == 200
    assert page.metadata["caught_up"] is False


def test_bulk_read_goes_through_a_topic_without_gap_or_overlap(topic: TopicApi) -> None:
    for start in range(0, 3000, 300):
        topic.append(*range(start, start + 300))
    seen: list[int] = []
    at = 0
    while True:
        page = bulk(topic, from_seq=at, limit=700)
        seen += page.seqs
        at = page.metadata["next_from_seq"]
        if page.metadata["caught_up"]:
            break
    assert seen == list(range(1, 3001))


@pytest.mark.parametrize("as_arrow", [True, False], ids=["arrow", "json"])
def test_a_bounded_read_says_which_live_records_it_covers(topic: TopicApi, as_arrow: bool) -> None:
    topic.append_records(*[{"data": number, "tag": f"t{number}", "node": "n"} for number in range(1, 11)])
    topic.remove(match="t5")
    topic.remove(before_seq=3)

    def coverage(**fields: Any) -> tuple[int, int, int]:
        page = bulk(topic, **fields).metadata if as_arrow else topic.diff(**fields)
        return page["from_seq"], page["records_live"], page["next_from_seq"]

    assert coverage(from_seq=0, to_seq=10) == (0, 7, 10)
    assert coverage(from_seq=3, to_seq=6) == (3, 2, 6)
    assert coverage(from_seq=4, to_seq=5) == (4, 0, 5)
    assert coverage(from_seq=0, to_seq=10, node="n") == (0, 7, 10), "filtered records are live"


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_an_arrow_page_takes_about_as_many_bytes_as_asked_for(topic: TopicApi, extra: int) -> None:
    topic.append(*["x" * 100] * 50)
    record_bytes = topic.state()["bytes"] // 50
    page = bulk(topic, max_batch_bytes=10 * record_bytes + extra)
    assert len(page.seqs) == (9 if extra < 0 else 10)
    assert (page.metadata["next_from_seq"], page.metadata["caught_up"]) == (page.seqs[-1], False)


def test_bulk_read_tells_lost_records(topic: TopicApi) -> None:
    topic.configure(cap_records=3)
    for number in range(6):
        topic.append(number)
    page = bulk(topic)
    assert page.seqs == [4, 5, 6]
    assert page.metadata["tombstone"]["gap_from"] == 1
    assert page.metadata["tombstone"]["gap_to"] == 3
    assert page.metadata["tombstone"]["reason"] == "cap"
    assert page.metadata["tombstone"] == topic.diff()["tombstone"]


def test_bulk_read_of_an_absent_topic_is_not_found(topic: TopicApi) -> None:
    headers = {"Content-Type": "application/json", "Accept": ARROW}
    answer = topic.api.send("POST", "/v0/topics/absent-topic/diff", b"{}", headers)
    assert (answer.status, answer.code) == (404, "topic_not_found")


def test_arrow_append_stores_texts_byte_for_byte(topic: TopicApi) -> None:
    datas = ['{"a": 1.0}', "null", '"\\u0041"', "1e400", "[1,  2]"]
    body = stream(data=datas, tag=["x", None, "y", None, None], meta=['{"k":1}', None, None, None, None])
    answer = topic.api.send("POST", topic.path, body, {"Content-Type": ARROW})
    assert answer.status == 201, answer
    assert answer.json["seqs"] == [1, 2, 3, 4, 5]
    raw = topic.api.send("POST", f"{topic.path}/diff", b'{"include_tags":true}', {"Content-Type": "application/json"})
    for data in datas:
        assert f'"data":{data}'.encode() in raw.body
    assert b'"$tag":"x"' in raw.body
    assert b'"meta":{"k":1}' in raw.body


@pytest.mark.parametrize(
    "columns",
    [
        {"data": ["1", "{bad"]},
        {"data": ["1,2", '"a', 'b"']},
        {"data": ["1", None]},
        {"data": [""]},
        {"tag": ["x"]},
        {"data": [1, 2]},
        {"data": ["1"], "meta": ["[]"]},
        {"data": ["1"], "tag": ["x" * 257]},
        {"data": ["1"], "partition": [0]},
    ],
)
def test_arrow_append_refuses_what_json_would_and_writes_nothing(topic: TopicApi, columns: dict[str, Any]) -> None:
    answer = topic.api.send("POST", topic.path, stream(**columns), {"Content-Type": ARROW})
    if columns == {"data": [1, 2]}:
        # Numbers are cast to the texts they are written as, which are JSON.
        assert answer.status == 201
        return
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert topic.api.get(topic.path).status == 404


@pytest.mark.parametrize("body", [b"", b"garbage", stream(data=["1"])[:40]])
def test_broken_arrow_stream_is_a_bad_request(topic: TopicApi, body: bytes) -> None:
    answer = topic.api.send("POST", topic.path, body, {"Content-Type": ARROW})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert topic.api.get(topic.path).status == 404


def test_arrow_append_is_idempotent_by_header(topic: TopicApi) -> None:
    headers = {"Content-Type": ARROW, "Idempotency-Key": "k"}
    first = topic.api.send("POST", topic.path, stream(data=["1", "2"]), headers)
    again = topic.api.send("POST", topic.path, stream(data=["1", "2"]), headers)
    assert first.json["seqs"] == again.json["seqs"] == [1, 2]
    assert again.json["deduped"] is True


def test_pages_whose_budget_ends_with_a_segment_skip_nothing(tmp_path: Path) -> None:
    """On a default server the first page of this topic ends exactly where its first segment does."""
    count, size, per_request = 61_440, 1000, 128
    body = b'{"records":[%b]}' % b",".join([b'{"data":"%b"}' % (b"x" * (size - 2))] * per_request)
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path)})
    with running_server(settings) as url, Api(url) as api:
        topic = TopicApi(api, "t")
        for _ in range(count // per_request):
            assert api.send("POST", f"{topic.path}?return_seqs=false", body, JSON).status in (200, 201)
        seqs: list[int] = []
        cursor, caught_up = 0, False
        while not caught_up:
            page = bulk(topic, from_seq=cursor, limit=100_000)
            seqs += page.seqs
            cursor, caught_up = page.metadata["next_from_seq"], page.metadata["caught_up"]
            assert seqs[-1] == cursor
    assert seqs == list(range(1, count + 1))
