"""Appends decoded together have the same responses as appends decoded alone."""

import asyncio
import errno
import json
import re
from random import Random
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.house import House, in_house, raw
from tests.server.http.wire import Answer, Sink, parsed, until
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch, decode_singles
from topics.server.auth.authorization import Caller, caller_of
from topics.server.http import Request
from topics.server.http.connection.connection import Connection
from topics.server.topics.pending_appends import MAX_BATCH_REQUESTS


class Writers:
    """Connections that write to one topic, each one request at a time."""

    def __init__(self, house: House, count: int, topic: str = "t", headers: tuple[str, ...] = ()) -> None:
        self.house = house
        self.topic = topic
        self.headers = headers
        # What the application was asked to handle.
        self.handled: list[Request] = []
        handle = house.listener.handle

        def observed(request: Request) -> None:
            self.handled.append(request)
            handle(request)

        house.listener.handle = observed  # type: ignore[method-assign]
        self.connections: list[tuple[Connection, Sink]] = []
        for _ in range(count):
            connection = Connection(house.listener)
            self.connections.append((connection, Sink.plugged_into(connection)))
        house.listener.handle = handle  # type: ignore[method-assign]

    def send(self, *bodies: Any) -> None:
        self.handled.clear()
        for (connection, sink), body in zip(self.connections, bodies, strict=False):
            sink.written = b""
            connection.data_received(raw("POST", f"/v0/topics/{self.topic}", body, headers=self.headers))

    async def turn(self, *bodies: Any) -> list[Answer]:
        """Each writer sends one of the bodies before any of them can be answered."""
        self.send(*bodies)
        sinks = [sink for _, sink in self.connections[: len(bodies)]]
        await until(lambda: all(sink.written for sink in sinks))
        return [parsed(sink.written) for sink in sinks]

    async def settle_in(self) -> "Writers":
        """Until they wait for each other."""
        for _ in range(3):
            await self.turn(*[numbered(0)] * len(self.connections))
        await self.turn(*[numbered(0)] * len(self.connections))
        return self


def numbered(number: int) -> dict[str, Any]:
    return {"records": [{"data": number}]}


async def records_of(house: House, topic: str = "t") -> dict[int, Any]:
    records: dict[int, Any] = {}
    from_seq, caught_up = 0, False
    while not caught_up:
        page = (await house.ask("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq})).json
        records |= {record["$seq"]: record["data"] for record in page["records"]}
        from_seq, caught_up = page["next_from_seq"], page["caught_up"]
    return records


@in_house()
async def test_joined_appends_each_get_their_own_seq(house: House) -> None:
    writers = await Writers(house, 8).settle_in()
    assert not writers.handled, "no request was handled alone"
    frames = house.broker.committer.frames_total
    answers = await writers.turn(*[numbered(number) for number in range(1, 9)])
    assert house.broker.committer.frames_total == frames + 1
    assert not writers.handled
    records = await records_of(house)
    for number, answer in enumerate(answers, 1):
        assert answer.status == 200
        assert [records[seq] for seq in answer.json["seqs"]] == [number]
        assert answer.json["head_seq"] == max(records)


@in_house()
async def test_appends_of_a_lone_writer_are_written_without_calling_the_handler(house: House) -> None:
    writers = await Writers(house, 8).settle_in()
    for number in range(3):
        frames = house.broker.committer.frames_total
        (answer,) = await writers.turn(numbered(number))
        assert not writers.handled
        assert house.broker.committer.frames_total == frames + 1
        assert (await records_of(house))[answer.json["first_seq"]] == number


@in_house()
async def test_append_after_one_of_another_form_is_written_without_calling_the_handler(house: House) -> None:
    writers = await Writers(house, 1).settle_in()
    batch = {"records": [{"data": 1}, {"data": 2}]}
    for bodies, handled in [(batch, 1), (batch, 1), (numbered(3), 1), (numbered(4), 0)]:
        await writers.turn(bodies)
        assert len(writers.handled) == handled
    assert list((await records_of(house)).values())[-6:] == [1, 2, 1, 2, 3, 4]


@in_house()
async def test_more_writers_than_are_read_at_once_are_all_answered(house: House) -> None:
    writers = await Writers(house, MAX_BATCH_REQUESTS + 50).settle_in()
    answers = await writers.turn(*[numbered(number) for number in range(MAX_BATCH_REQUESTS + 50)])
    records = await records_of(house)
    assert [records[answer.json["first_seq"]] for answer in answers] == list(range(MAX_BATCH_REQUESTS + 50))


# What is not one plain record, or not JSON, or only looks like one when something precedes or follows it.
STRANGE = [
    b"",
    b"null",
    b"{",
    b"[]",
    b'{"records":[]}',
    b'{"records":[{"data":1},{"data":2}]}',
    b'{"records":[{"data":1,"tag":"t"}]}',
    b'{"records":[{"data":1}],"node":"n"}',
    b'{"records":[{"data":1}],"idempotency_key":null}',
    b'{"records":[{"data":1}],"partition":0}',
    b'{"records":[{"data":1}],"create":false}',
    b'{\n "records": [\n  {"data": 1}\n ]\n}',
    b'{"records":[{"data":1}]}\n',
    b'{"records":[{"data":1}]}\n{"records":[{"data":2}]}',
    b'{"records":[{"data":1}]}{"records":[{"data":2}]}',
    b'{"records":[{"data":1}]} {"records":[{"data":2}]}',
    b'{"records":[{"data":1}]}\r{"records":[{"data":2}]}',
    b'{"records":[{"data":1}]},{"records":[{"data":2}]}',
    b'{"records":[{"data":1}]},',
    b'{"records":[{"data":[1',
    b'2]}]}',
    b',2]}]}',
    b'{"records":[{"data":"',
    b'"}]}',
    b' {"records" : [ {"data" : "spaced" } ] } ',
    '{"records":[{"data":"zwölf"}]}'.encode(),
    '{"records":[{"data":"zwölf"}]}'.encode("latin-1"),
    b'{"records":[{"data":"\xc3',
    b'\xb6"}]}',
    b'{"records":[{"data":"\\ud800"}]}',
    b'{"records":[{"data":NaN}]}',
    b'{"records":[{"data":01}]}',
    b'{"records":[{"data":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
    b'{"records":[{"data":1,"data":2}]}',
    b'{"records":[{}]}',
    b'{"records":[{"data":1}],"records":[{"data":2}]}',
    b'{"records":[{"data":"' + b"x" * 600 + b'"}]}',
    b'\xef\xbb\xbf{"records":[{"data":1}]}',
]  # fmt: skip


def without_times(answer: Answer) -> tuple[int, Any]:
    """What it says besides where the records are and how long it took."""
    said = json.loads(answer.body)
    for name in ("performance", "seqs", "first_seq", "last_seq", "head_seq", "topic"):
        said.pop(name, None)
    return answer.status, said


async def compare(house: House, bodies: list[bytes]) -> None:
    """Each body is answered and kept in a crowd as it is alone."""
    writers = await Writers(house, max(len(bodies), 4), topic="crowd").settle_in()
    before = await records_of(house, "crowd")
    answers = await writers.turn(*bodies)
    records = await records_of(house, "crowd")
    await house.ask("POST", "/v0/topics/alone", numbered(0))
    appended = 0
    for body, answer in zip(bodies, answers, strict=True):
        alone = await house.ask("POST", "/v0/topics/alone", body)
        assert without_times(answer) == without_times(alone), body
        if answer.status == 200:
            kept = await records_of(house, "alone")
            assert [records[seq] for seq in answer.json["seqs"]] == [kept[seq] for seq in alone.json["seqs"]]
            appended += answer.json["count"]
    assert len(records) == len(before) + appended
    await writers.turn(*[numbered(1)] * len(bodies))


@pytest.mark.parametrize("strange", STRANGE)
def test_a_strange_body_among_plain_ones_is_answered_as_if_it_were_alone(strange: bytes) -> None:
    in_house(MAX_RECORD_BYTES="500")(_compare_scenario)(
        bodies=[b'{"records":[{"data":"a"}]}', strange, b'{"records":[{"data":"b"}]}', b'{"records":[{"data":"c"}]}']
    )


@pytest.mark.parametrize(
    ("begun", "ended"),
    [
        (b'{"records":[{"data":1}]}\n{"records":[{"data":[1', b",2]}]}"),
        (b'{"records":[{"data":1}]}\n{"records":[{"data":', b"2}]}"),
        (b'{"records":[{"data":1}]}\n{"records":[', b'{"data":2}]}'),
        (b'{"records":[{"data":[1', b',2]}]}\n{"records":[{"data":1}]}'),
        (b'{"records":[{"data":1}]} {"records":[{"data":2}]}', b""),
        (b'{"records":[{"data":1}]', b'}{"records":[{"data":2}]}'),
        (b'{"records":[{"data":1}]},{"records":[{"data":[1', b"2]}]}"),
        (b'{"records":[{"data":1}]},{"records":[{"data":[1', b'{"records":[{"data":2}]}]}]}'),
    ],
)
def test_a_body_is_not_completed_by_that_of_another_client(begun: bytes, ended: bytes) -> None:
    in_house()(_compare_scenario)(bodies=[begun, ended, b'{"records":[{"data":"a"}]}', b'{"records":[{"data":"b"}]}'])


TEXTS = st.lists(
    st.sampled_from(
        [b'{"records":[{"data":', b"}]}", b"1", b"[1", b"2]", b'"', b",", b" ", b"\n", b"\t", b"{", b"}", b"]", b""]
    ),
    max_size=9,
).map(b"".join)


@settings(max_examples=2000, deadline=None)
@given(
    st.lists(TEXTS, min_size=2, max_size=5),
    st.sampled_from([b",", b"\n", b" ", b""]),
    st.randoms(use_true_random=False),
)
def test_wherever_texts_are_cut_only_whole_bodies_are_read_together(
    bodies: list[bytes], between: bytes, random: Random
) -> None:
    limits = Limits()
    whole = [b'{"records":[{"data":%d}]}' % number for number in range(len(bodies))]
    cut = between.join(whole)
    places = sorted(random.choices(range(len(cut) + 1), k=len(whole) - 1))
    pieces = [cut[start:end] for start, end in zip([0, *places], [*places, len(cut)], strict=True)]
    for each in (bodies, pieces, [*whole, *bodies], [*pieces, *whole]):
        batch = decode_singles(each, limits)
        if batch is not None:
            assert batch.data.split(b"\0") == [decode_batch(body, limits).data for body in each]
            assert [decode_batch(body, limits).count for body in each] == [1] * len(each)
    assert decode_singles(whole, limits) is not None


def test_bodies_that_only_begin_and_end_like_whole_ones_are_not_read_together() -> None:
    """Two values in two bodies, and as long together; but where one body ends no value does."""
    nested = b'{"records":[{"data":[{"q":[{}]},{"records":[{"data":1}]}]}]}'
    cut = nested.index(b',{"records"')
    bodies = [b'{"records":[{"data":0}]},' + nested[:cut], nested[cut + 1 :]]
    assert all([body.startswith(b'{"records":[{"data":') and body.endswith(b"}]}") for body in bodies])
    assert decode_singles([b",".join(bodies[:1]), bodies[1]], Limits()) is None
    assert decode_singles([b'{"records":[{"data":0}]}', nested], Limits()) is not None


def test_a_body_with_the_byte_that_separates_records_is_not_read_together_with_others() -> None:
    plain = b'{"records":[{"data":1}]}'
    for strange in (b'{"records":[{"data":"\0"}]}', plain + b"\0" + plain, plain + b"\0"):
        assert decode_singles([plain, strange], Limits()) is None


def test_bodies_of_any_spelling_are_read_together() -> None:
    spelled = [b'{"records": [{"data": {"a": 1}}]}', b'{"records":[{"data":2}]}', b'{ "records":[ {"data":3 } ] }']
    batch = decode_singles(spelled, Limits())
    assert batch is not None
    assert batch.data.split(b"\0") == [b'{"a": 1}', b"2", b"3"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(STRANGE), st.just(b'{"records":[{"data":"a"}]}')), min_size=2, max_size=8))
def test_no_mixture_of_bodies_is_read_as_anything_but_its_parts(bodies: list[bytes]) -> None:
    in_house(MAX_RECORD_BYTES="500")(_compare_scenario)(bodies=bodies)


async def _compare_scenario(house: House, bodies: list[bytes]) -> None:
    await compare(house, bodies)


@in_house()
async def test_failed_log_write_fails_all_joined_appends_and_uses_no_seq(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    head = max(await records_of(house))
    house.disk.fault = lambda _step, op, path: errno.ENOSPC if op == "write_at" and "/wal/" in f"/{path}" else None
    answers = await writers.turn(*[numbered(number) for number in range(6)])
    assert [(answer.status, answer.json["error"]["code"]) for answer in answers] == [(503, "storage_full")] * 6
    house.disk.fault = None
    answers = await writers.turn(*[numbered(number) for number in range(6)])
    assert [answer.json["first_seq"] for answer in answers] == [head + 1 + number for number in range(6)]


@in_house()
async def test_those_whose_topic_is_deleted_in_the_same_turn_write_to_its_successor(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    writers.send(*[numbered(number) for number in range(6)])
    deleted: list[Any] = []
    house.broker.delete_topic("t", if_empty=False, reply=deleted.append)
    await until(lambda: all(sink.written for _, sink in writers.connections))
    answers = [parsed(sink.written) for _, sink in writers.connections]
    assert deleted
    assert sorted(answer.json["first_seq"] for answer in answers) == [1, 2, 3, 4, 5, 6]
    assert sorted((await records_of(house)).values()) == [0, 1, 2, 3, 4, 5]


@in_house()
async def test_append_with_a_head_from_before_a_recovery_goes_to_the_broker_that_serves_now(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    head = max(await records_of(house))
    house.disk = house.disk.after_kill()
    house.recover()
    answers = await writers.turn(*[numbered(number) for number in range(6)])
    assert sorted(answer.json["first_seq"] for answer in answers) == [head + 1 + number for number in range(6)]
    records = await records_of(house)
    assert [records[answer.json["first_seq"]] for answer in answers] == list(range(6))


@in_house()
async def test_a_cap_that_came_in_between_is_kept(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    held = len(await records_of(house))
    await house.ask("PUT", "/v0/topics/t", {"cap_records": held + 2, "discard": "reject"})
    answers = await writers.turn(*[numbered(number) for number in range(6)])
    assert [answer.status for answer in answers] == [200, 200, 422, 422, 422, 422]


@in_house()
async def test_clients_that_are_gone_take_no_answer_from_the_others(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    writers.send(*[numbered(number) for number in range(6)])
    for connection, _ in writers.connections[:2]:
        connection.connection_lost(None)
    await until(lambda: all(sink.written for _, sink in writers.connections[2:]))
    records = await records_of(house)
    for number, (_, sink) in enumerate(writers.connections):
        if number < 2:
            assert sink.written == b""
        else:
            assert records[parsed(sink.written).json["first_seq"]] == number


@in_house()
async def test_a_server_that_stops_still_answers_those_who_wait_and_closes(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    writers.send(*[numbered(number) for number in range(6)])
    for connection, _ in writers.connections:
        connection.drain()
    await until(lambda: all(sink.ended for _, sink in writers.connections))
    for _, sink in writers.connections:
        answer = parsed(sink.written)
        assert (answer.status, answer.headers["connection"]) == (200, "close")


@in_house()
async def test_stopping_server_refuses_new_appends(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    house.service.stopping = True
    answers = await writers.turn(*[numbered(number) for number in range(6)])
    assert [answer.status for answer in answers] == [503] * 6
    house.service.stopping = False


def split_answers(written: bytes) -> list[Answer]:
    answers = []
    while written:
        head, _, rest = written.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        answers.append(parsed(head + b"\r\n\r\n" + rest[:length]))
        written = rest[length:]
    return answers


def any_requests(chance: Random, number: int) -> list[tuple[bytes, Any]]:
    """What a writer may send at once, each with what it must be answered: a status, or the data of the record."""
    plain = raw("POST", "/v0/topics/t", numbered(100_000 + number))
    broken = raw("POST", "/v0/topics/t", json.dumps(numbered(100_000 + number)).encode()[:-1] + b"x")
    tagged = raw("POST", "/v0/topics/t", {"records": [{"data": 200_000 + number, "tag": "a"}]})
    longer = raw("POST", "/v0/topics/t", numbered(10**9 + number))
    stranger = raw("POST", "/v0/topics/other", numbered(100_000 + number))
    choices: list[list[tuple[bytes, Any]]] = [
        *[[(plain, 100_000 + number)]] * 6,
        [(broken, 400)],
        [(tagged, 200_000 + number)],
        [(longer, 10**9 + number)],
        [(stranger, None)],
        [(plain, 100_000 + number), (longer, 10**9 + number)],
        [(plain, 100_000 + number), (broken, 400), (tagged, 200_000 + number)],
        [(raw("GET", "/v0/topics/t"), None)],
    ]
    return chance.choice(choices)


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("seed", range(4))
@in_house()
async def test_whatever_a_writer_sends_next_is_answered_as_what_it_is(house: House, seed: int, durability: str) -> None:
    await house.ask("PUT", "/v0/topics/t", {"durability": durability})
    chance = Random(seed)
    writers = await Writers(house, 6).settle_in()
    expected: dict[int, Any] = {}
    rounds = 60
    for round_number in range(rounds):
        due = []
        rests = []
        for position, (connection, sink) in enumerate(writers.connections):
            sink.written = b""
            requests = any_requests(chance, round_number * 10 + position)
            text = b"".join([request for request, _ in requests])
            cut = chance.randrange(1, len(text)) if chance.random() < 0.2 else len(text)
            connection.data_received(text[:cut])
            rests.append((connection, text[cut:]))
            due.append((sink, [wanted for _, wanted in requests]))
            if chance.random() < 0.1:
                await asyncio.sleep(0)
        for connection, rest in rests:
            if rest:
                connection.data_received(rest)
        await until(lambda due=due: all(len(split_answers(sink.written)) == len(wanted) for sink, wanted in due))
        for sink, wanted in due:
            for answer, want in zip(split_answers(sink.written), wanted, strict=True):
                assert answer.status == (want if want == 400 else 200 if answer.status != 201 else 201)
                if want not in (None, 400):
                    assert answer.json["count"] == 1
                    assert answer.json["first_seq"] not in expected
                    expected[answer.json["first_seq"]] = want
    records = await records_of(house)
    assert {seq: data for seq, data in records.items() if data} == expected
    assert not any(connection.closed for connection, _ in writers.connections)


@in_house()
async def test_a_connection_that_writes_with_others_is_not_idle(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    before = perf_counter()
    await writers.turn(*[numbered(number) for number in range(6)])
    for connection, _ in writers.connections:
        assert connection.since >= before
        connection.sweep(before + connection.limits.keep_alive_timeout)
        assert not connection.closed


@in_house(SLOW_MS="60000")
async def test_disconnected_appends_are_not_slow_for_having_written_before(house: House) -> None:
    writers = await Writers(house, 6).settle_in()
    slow: list[Request] = []
    house.listener.slow = lambda request, _status, _body: slow.append(request)
    for connection, _ in writers.connections:
        # Only the first request of a turn gets a timestamp; those of the others may be hours old.
        connection.fast_path.repeated[0].received_at -= 3600
        connection.slow_seconds = 60
    writers.send(*[numbered(number) for number in range(6)])
    assert not writers.handled
    writers.connections[1][0].connection_lost(None)
    writers.connections[2][0].drain()
    await until(lambda: all(sink.written for _, sink in writers.connections[2:]))
    assert slow == []


WITH_KEY = ("Authorization: Bearer k",)


def caller_of_all(writers: Writers) -> Caller:
    """Whose key they have; known once they were handled."""
    return caller_of(writers.handled[0])


@in_house(API_KEYS="k", MAX_INFLIGHT_PER_KEY="6")
async def test_writers_with_a_key_wait_for_each_other_too_and_each_holds_a_slot(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0), key="k")
    writers = Writers(house, 6, headers=WITH_KEY)
    await writers.turn(*[numbered(0)] * 6)
    caller = caller_of_all(writers)
    await writers.settle_in()
    for _ in range(3):
        writers.send(*[numbered(number) for number in range(6)])
        assert not writers.handled
        assert caller.inflight == 6
        await until(lambda: all(sink.written for _, sink in writers.connections))
        assert caller.inflight == 0


@in_house(API_KEYS="k", MAX_INFLIGHT_PER_KEY="4")
async def test_a_key_without_a_free_slot_is_refused_and_every_slot_comes_back(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0), key="k")
    writers = Writers(house, 6, headers=WITH_KEY)
    for _ in range(4):
        answers = await writers.turn(*[numbered(number) for number in range(6)])
        assert [answer.status for answer in answers] == [200, 200, 200, 200, 429, 429]
    caller = caller_of_all(writers)
    # What is no plain write is handled after all, and counted once.
    answers = await writers.turn(*[numbered(1)] * 2, b"{", numbered(2))
    assert [answer.status for answer in answers] == [200, 200, 400, 200]
    assert caller.inflight == 0
    await writers.turn(*[numbered(1)] * 4)
    writers.send(*[numbered(number) for number in range(4)])
    writers.connections[3][0].connection_lost(None)
    assert caller.inflight == 3
    await until(lambda: all(sink.written for _, sink in writers.connections[:3]))
    assert caller.inflight == 0


@in_house(API_KEYS="k", MAX_INFLIGHT_PER_KEY="4")
async def test_a_writer_who_is_gone_before_the_throttle_keeps_it_waiting_holds_no_slot(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0), key="k")
    writers = Writers(house, 4, headers=WITH_KEY)
    await writers.turn(*[numbered(0)] * 4)
    caller = caller_of_all(writers)
    await writers.settle_in()
    writers.send(numbered(1), numbered(2), numbered(3), b"{")
    assert not writers.handled
    writers.connections[0][0].connection_lost(None)
    throttle = house.service.throttle
    throttle.runtime = house.runtime
    for _ in range(30):
        throttle.observe(80.0)
    await until(lambda: throttle.parked == 4)
    throttle.stop()
    await until(lambda: all(sink.written for _, sink in writers.connections[1:]))
    assert caller.inflight == 0


@in_house(API_KEYS="k", MAX_INFLIGHT_PER_KEY="4")
async def test_no_more_wait_than_their_key_has_slots(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", numbered(0), key="k")
    some = await Writers(house, 4, headers=WITH_KEY).settle_in()
    others = await Writers(house, 4, headers=WITH_KEY).settle_in()
    some.send(*[numbered(1)] * 4)
    refused = await others.turn(*[numbered(2)] * 4)
    assert [answer.status for answer in refused] == [429] * 4
    await until(lambda: all(sink.written for _, sink in some.connections))
    assert [parsed(sink.written).status for _, sink in some.connections] == [200] * 4


@in_house()
async def test_fsync_append_is_acknowledged_only_after_its_sync(house: House) -> None:
    await house.ask("PUT", "/v0/topics/t", {"durability": "fsync"})
    writers = await Writers(house, 8).settle_in()
    for round_number in range(30):
        answers = await writers.turn(*[numbered(round_number) for _ in range(8)])
        assert all(answer.json["performance"]["fsync_ms"] >= 0 for answer in answers)
        assert house.broker.state.topics["t"].partitions[0].head_seq == answers[0].json["head_seq"]
        assert not house.broker.committer.wal.dirty
