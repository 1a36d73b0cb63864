"""Single records that come in one turn of the loop are one frame of the log, and each is answered as if it had been alone."""

import errno
import re
from typing import Any

from tests.server.house import House, error_of, in_house, raw
from tests.server.http.wire import Answer, Sink, parsed, until
from topics.broker.log.sync_policy import MIN_FAST_SYNCS
from topics.server.http.connection.connection import Connection

ONE = {"records": [{"data": {"n": 1}}]}


async def in_one_turn(house: House, *requests: bytes) -> list[Answer]:
    """Send each on a connection of its own before any of them can be answered."""
    sinks = []
    for request in requests:
        connection = Connection(house.listener)
        sink = Sink.plugged_into(connection)
        connection.data_received(request)
        sinks.append(sink)
    await until(lambda: all(sink.written for sink in sinks))
    return [parsed(sink.written) for sink in sinks]


async def records_of(house: House, topic: str) -> list[Any]:
    answer = await house.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": 0})
    return [record["data"] for record in answer.json["records"]]


def post(topic: str, body: Any, **options: Any) -> bytes:
    return raw("POST", f"/v0/topics/{topic}", body, **options)


def numbered(number: int) -> dict[str, Any]:
    return {"records": [{"data": number}]}


@in_house()
async def test_each_gets_its_own_seq_and_the_head_behind_all(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0))
    frames = house.broker.committer.frames_total
    answers = await in_one_turn(house, *[post("t", numbered(number)) for number in range(1, 21)])
    assert house.broker.committer.frames_total == frames + 1
    assert [answer.json["seqs"] for answer in answers] == [[seq] for seq in range(2, 22)]
    for seq, answer in enumerate(answers, 2):
        assert answer.status == 200
        assert set(answer.json["performance"]) == {"server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms"}
        rest = {name: value for name, value in answer.json.items() if name != "performance"}
        assert rest == {
            "topic": "t", "first_seq": seq, "last_seq": seq, "seqs": [seq], "head_seq": 21, "count": 1,
            "created": False, "deduped": False,
        }  # fmt: skip
    assert await records_of(house, "t") == list(range(21))


@in_house()
async def test_the_same_answer_has_the_same_shape_alone_and_together(house: House) -> None:
    """A write with a tag takes the other way; its answer differs in nothing but numbers."""
    await house.ask("POST", "/v0/topics/t", numbered(0))
    alone = await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1, "tag": "x"}]})
    (joined,) = await in_one_turn(house, post("t", numbered(2)))
    assert list(alone.json) == list(joined.json)
    assert list(alone.json["performance"]) == list(joined.json["performance"])
    assert alone.headers.keys() == joined.headers.keys()


@in_house()
async def test_single_records_batches_and_tagged_ones_keep_the_order_they_came_in(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0))
    batch = {"records": [{"data": 2}, {"data": 3}]}
    tagged = {"records": [{"data": 5, "tag": "five"}]}
    quiet = raw("POST", "/v0/topics/t?return_seqs=false", numbered(7))
    keyed = post("t", numbered(8), headers=("Idempotency-Key: k",))
    answers = await in_one_turn(
        house, post("t", numbered(1)), post("t", batch), post("t", numbered(4)), post("t", tagged),
        post("t", numbered(6)), quiet, keyed, post("t", numbered(9)),
    )  # fmt: skip
    assert [answer.json["first_seq"] for answer in answers] == [2, 3, 5, 6, 7, 8, 9, 10]
    assert "seqs" not in answers[5].json
    assert await records_of(house, "t") == list(range(10))
    seen = (await house.ask("POST", "/v0/topics/t/diff", {"from_seq": 0, "include_tags": True})).json["records"]
    assert [record.get("$tag") for record in seen].index("five") == 5
    again = await house.ask("POST", "/v0/topics/t", numbered(8), headers=("Idempotency-Key: k",))
    assert (again.json["deduped"], again.json["first_seq"]) == (True, 9)


@in_house()
async def test_failed_log_write_fails_all_joined_appends_and_uses_no_seq(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0))
    house.disk.fault = lambda _step, op, path: errno.ENOSPC if op == "write_at" and "/wal/" in f"/{path}" else None
    answers = await in_one_turn(house, *[post("t", numbered(number)) for number in range(1, 5)])
    assert [(answer.status, error_of(answer)["code"]) for answer in answers] == [(503, "storage_full")] * 4
    house.disk.fault = None
    answers = await in_one_turn(house, *[post("t", numbered(number)) for number in range(1, 5)])
    assert [answer.json["first_seq"] for answer in answers] == [2, 3, 4, 5]
    assert await records_of(house, "t") == list(range(5))


@in_house()
async def test_a_client_that_is_gone_takes_no_answer_from_the_others(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0))
    gone = Connection(house.listener)
    sink = Sink.plugged_into(gone)
    gone.data_received(post("t", numbered(1)))
    gone.connection_lost(None)
    answers = await in_one_turn(house, post("t", numbered(2)), post("t", numbered(3)))
    assert [answer.json["first_seq"] for answer in answers] == [3, 4]
    assert sink.written == b""
    assert await records_of(house, "t") == [0, 1, 2, 3]


@in_house()
async def test_joined_append_echoes_its_request_id_and_connection_close(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0))
    plain, named, last = await in_one_turn(
        house,
        post("t", numbered(1)),
        post("t", numbered(2), headers=("X-Request-Id: mine",)),
        post("t", numbered(3), headers=("Connection: close",)),
    )
    assert named.headers["x-request-id"] == "mine"
    assert "x-request-id" not in plain.headers
    assert last.headers["connection"] == "close"
    assert [answer.json["first_seq"] for answer in (plain, named, last)] == [2, 3, 4]


@in_house(API_KEYS="k", MAX_INFLIGHT_PER_KEY="2")
async def test_the_slots_of_a_key_are_given_back(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0), key="k")
    for _ in range(3):
        answers = await in_one_turn(house, *[post("t", numbered(1), key="k") for _ in range(3)])
        assert [answer.status for answer in answers] == [200, 200, 429]


@in_house()
async def test_a_capped_topic_decides_about_each(house: House) -> None:
    await house.ask("PUT", "/v0/topics/t", {"cap_records": 3, "discard": "reject"})
    answers = await in_one_turn(house, *[post("t", numbered(number)) for number in range(5)])
    assert [answer.status for answer in answers] == [200, 200, 200, 422, 422]
    assert await records_of(house, "t") == [0, 1, 2]


@in_house()
async def test_pipelined_single_records_are_answered_in_order(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0))
    connection = Connection(house.listener)
    sink = Sink.plugged_into(connection)
    connection.data_received(b"".join([post("t", numbered(number)) for number in range(1, 6)]))
    await until(lambda: sink.written.count(b"first_seq") == 5)
    assert re.findall(rb'"first_seq":(\d+)', sink.written) == [b"2", b"3", b"4", b"5", b"6"]


@in_house()
async def test_a_thousand_synced_records_behind_each_other_are_answered_while_others_are_served(house: House) -> None:
    await house.ask("PUT", "/v0/topics/t", {"durability": "fsync"})
    for number in range(MIN_FAST_SYNCS):
        await house.ask("POST", "/v0/topics/t", numbered(number))
    connection = Connection(house.listener)
    sink = Sink.plugged_into(connection)
    connection.data_received(b"".join([post("t", numbered(number)) for number in range(1000)]))
    other = await house.ask("GET", "/v0/topics/t")
    assert other.status == 200
    assert sink.written.count(b"first_seq") < 1000, "no request waited for all of them"
    await until(lambda: sink.written.count(b"first_seq") == 1000)
    seqs = [int(seq) for seq in re.findall(rb'"first_seq":(\d+)', sink.written)]
    assert seqs == list(range(MIN_FAST_SYNCS + 1, MIN_FAST_SYNCS + 1001))
    assert (await house.ask("GET", "/v0/topics/t")).json["count"] == MIN_FAST_SYNCS + 1000
