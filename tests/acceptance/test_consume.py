"""Consumer groups over HTTP: where a poll begins, what it hands out, what an ack does, who gets which partition."""

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded, wait_until_past
from topics.server.ops.settings import load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

SESSION_MS = 400


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server where a member is given up soon."""
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("groups")),
        "TOPICS_CONSUMER_SESSION_MS": str(SESSION_MS),
        "TOPICS_DEFAULT_CONSUME_TIMEOUT": "20",
        "TOPICS_MAX_CONSUME_TIMEOUT": "40",
    }
    with running_server(load_settings(environment)) as url:
        yield url


class GroupApi:
    def __init__(self, topic: TopicApi, name: str) -> None:
        self.topic = topic
        self.api = topic.api
        self.name = name

    def ask(self, start: Any = "Earliest", timeout_seconds: int = 0, **fields: Any) -> Answer:
        body = {"topic": self.topic.name, "group_id": self.name, "timeout_seconds": timeout_seconds, **fields}
        if start is not None:
            body["start"] = start
        return self.api.post("/api/topics/consume", body)

    def consume(self, start: Any = "Earliest", **fields: Any) -> dict[str, Any]:
        found = succeeded(self.ask(start, **fields))
        assert {"messages", "next_offset", "has_more", "tombstone"} <= set(found)
        offsets = [message["offset"] for message in found["messages"]]
        assert offsets == sorted(set(offsets))
        if offsets:
            assert found["next_offset"] == offsets[-1] + 1
        return found

    def offsets(self, start: Any = "Earliest", **fields: Any) -> list[int]:
        return [message["offset"] for message in self.consume(start, **fields)["messages"]]

    def ack(self, upto_offset: int, **fields: Any) -> int:
        acked = succeeded(self.ask_ack(upto_offset, **fields))
        assert acked["success"] is True
        offset: int = acked["acknowledged_offset"]
        return offset

    def ask_ack(self, upto_offset: int, **fields: Any) -> Answer:
        body = {"topic": self.topic.name, "group_id": self.name, "upto_offset": upto_offset, **fields}
        return self.api.post("/api/topics/ack", body)

    def seek(self, to: Any, **fields: Any) -> list[dict[str, Any]]:
        body = {"topic": self.topic.name, "group_id": self.name, "to": to, **fields}
        partitions: list[dict[str, Any]] = succeeded(self.api.post("/api/topics/seek", body))["partitions"]
        return partitions


@pytest.fixture
def group(topic: TopicApi) -> GroupApi:
    return GroupApi(topic, "readers")


# Messages


def test_a_message_has_every_field_of_the_contract(topic: TopicApi, group: GroupApi) -> None:
    topic.append({"n": 1.0})
    ts = topic.diff()["records"][0]["$ts"]
    (message,) = group.consume()["messages"]
    assert message == {
        "topic_id": topic.name,
        "partition_id": 0,
        "offset": 1,
        "message_id": message["message_id"],
        "source_table": None,
        "op": "Insert",
        "ts": ts,
        "payload_mode": "Full",
        "payload": base64.b64encode(b'{"n": 1.0}').decode(),
    }


def test_a_change_event_is_recognized_by_its_meta(topic: TopicApi, group: GroupApi) -> None:
    meta = {"source_table": "chat.messages", "op": "delete", "payload_mode": "key", "message_id": "01J"}
    topic.append_records({"data": {"id": 7}, "meta": meta})
    (message,) = group.consume()["messages"]
    fields = {name: message[name] for name in ("source_table", "op", "payload_mode", "message_id")}
    assert fields == {"source_table": "chat.messages", "op": "Delete", "payload_mode": "Key", "message_id": "01J"}


def test_the_payload_is_byte_for_byte(topic: TopicApi, group: GroupApi) -> None:
    data = b'{"b":1e400,"a": "\\u0041","a":-0}'
    succeeded(topic.api.post(topic.path, b'{"records":[{"data":%b}]}' % data))
    assert base64.b64decode(group.consume()["messages"][0]["payload"]) == data


def test_message_ids_sort_like_offsets_and_stay_the_same(topic: TopicApi, group: GroupApi) -> None:
    for number in range(5):
        topic.append(number)
    ids = [message["message_id"] for message in group.consume()["messages"]]
    assert ids == sorted(set(ids))
    assert [message["message_id"] for message in group.consume()["messages"]] == ids


# Positions


def test_unacked_messages_come_again_and_acked_ones_do_not(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3, 4)
    assert group.offsets(limit=3) == group.offsets(limit=3) == [1, 2, 3]
    assert group.ack(2) == 2
    assert group.offsets() == [3, 4]


def test_a_member_that_names_what_it_received_gets_the_next_messages(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(partitions=2)
    topic.append(*range(4), partition=0)
    topic.append(*range(3), partition=1)
    member: dict[str, Any] = {"consumer_id": "a"}
    first, second = group.consume(limit=2, **member), group.consume(limit=2, **member)
    received = {"0": 2, "1": 2}
    assert {first["partition_id"], second["partition_id"]} == {0, 1}
    third, fourth = [group.consume(received=received, **member) for _ in range(2)]
    offsets = {each["partition_id"]: [message["offset"] for message in each["messages"]] for each in (third, fourth)}
    assert offsets == {0: [3, 4], 1: [3]}
    received = {"0": 4, "1": 3}
    assert group.offsets(received=received, **member) == []
    assert group.ack(2, partition_id=0, **member) == 2
    assert group.offsets(**member) in ([3, 4], [1, 2, 3]), "without it the poll begins behind the ack"
    group.seek("Earliest")
    assert group.offsets(received=received, **member)[0] == 1, "a seek counts more"


def test_what_was_received_counts_only_in_the_session_that_received_it(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    assert group.offsets(consumer_id="a") == [1, 2, 3]
    succeeded(group.api.post("/api/topics/leave", {"topic": topic.name, "group_id": group.name, "consumer_id": "a"}))
    assert group.offsets(consumer_id="a", received={"0": 3}) == [1, 2, 3]


def test_a_loss_behind_received_messages_does_not_ack_them(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(cap_records=2)
    topic.append(1, 2)
    assert group.offsets(consumer_id="a") == [1, 2]
    topic.append(3, 4, 5, 6)
    topic.remove(before_seq=7)
    found = group.consume(consumer_id="a", received={"0": 2})
    assert (found["messages"], found["tombstone"]["gap_from"]) == ([], 3)
    received = {"0": found["tombstone"]["gap_to"]}
    assert group.consume(consumer_id="a", received=received)["tombstone"] is None
    topic.append(7)
    assert group.consume(consumer_id="a")["tombstone"]["gap_from"] == 1, "the messages before the loss were not acked"


def test_latest_is_pinned_by_the_first_poll(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2)
    assert group.offsets("Latest") == []
    topic.append(3)
    assert group.offsets("Latest") == [3]
    assert group.offsets("Earliest") == [3]


def test_an_offset_is_inclusive_and_never_goes_behind_an_ack(topic: TopicApi, group: GroupApi) -> None:
    topic.append(*range(6))
    assert group.offsets({"Offset": 3}) == [3, 4, 5, 6]
    assert group.ack(4) == 4
    assert group.offsets({"Offset": 2}) == [5, 6]
    assert group.offsets({"Offset": 6}) == [6]


def test_an_offset_beyond_the_end_waits_for_it(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    found = group.consume({"Offset": 3})
    assert (found["messages"], found["next_offset"], found["has_more"], found["tombstone"]) == ([], 3, False, None)
    topic.append(2, 3)
    assert group.offsets({"Offset": 3}) == [3]


@pytest.mark.parametrize("word", ["earliest", "EARLIEST", "Earliest", None])
def test_earliest_however_it_is_written_and_by_default(topic: TopicApi, group: GroupApi, word: str | None) -> None:
    topic.append(1)
    assert group.offsets(word) == [1]


def test_an_older_ack_never_rewinds_and_answers_the_position(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    assert [group.ack(3), group.ack(1), group.ack(0), group.ack(3)] == [3, 3, 3, 3]
    assert group.offsets() == []


def test_an_ack_past_the_end_is_refused(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    refusal = refused(group.ask_ack(2), 400, "invalid_request")
    assert refusal.detail == {"upto_offset": 2, "last_offset": 1}
    assert group.offsets() == [1]


def test_an_ack_needs_no_poll_before_it(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    assert group.ack(2) == 2
    assert group.offsets() == [3]


def test_next_offset_and_has_more_are_exact(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    found = group.consume(limit=2)
    assert (found["next_offset"], found["has_more"]) == (3, True)
    found = group.consume(limit=3)
    assert (found["next_offset"], found["has_more"]) == (4, False)


def test_there_is_no_more_when_the_rest_was_deleted(topic: TopicApi, group: GroupApi) -> None:
    topic.append_records({"data": 1}, {"data": 2, "tag": "gone"}, {"data": 3, "tag": "gone"})
    topic.remove(match="gone")
    found = group.consume(limit=1)
    assert (found["next_offset"], found["has_more"]) == (2, False)


def test_groups_are_independent_and_odd_names_never_mix(topic: TopicApi) -> None:
    topic.append(1, 2, 3)
    names = ["a", "a ", "A", "a/0", "a\u0000b", "a%2F0", "ä", "'; drop", '"', "\U0001f600", "a:1"]
    for number, name in enumerate(names):
        if number % 2:
            GroupApi(topic, name).ack(2)
    assert [GroupApi(topic, name).offsets() for name in names] == [
        [3] if number % 2 else [1, 2, 3] for number in range(len(names))
    ]


def test_a_recreated_topic_inherits_no_group(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2)
    group.ack(2)
    topic.drop()
    topic.append(1)
    assert group.offsets() == [1]


def test_a_group_below_the_floor_gets_the_exact_range_that_it_lost(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(cap_records=3)
    topic.append(1, 2)
    group.ack(1)
    for number in range(3, 9):
        topic.append(number)
    found = group.consume()
    assert [message["offset"] for message in found["messages"]] == [6, 7, 8]
    tombstone = found["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (2, 5, "cap")
    group.ack(8)
    assert group.consume()["tombstone"] is None


def test_a_group_that_lost_everything_gets_a_tombstone_and_then_waits(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(ttl_ms=30)
    group.topic.append(1, 2, 3)
    group.offsets({"Offset": 1})
    wait_until_past(topic.state()["last_write_ts"] + 30)
    found = group.consume({"Offset": 1})
    assert found["messages"] == []
    assert (found["tombstone"]["gap_from"], found["tombstone"]["gap_to"], found["next_offset"]) == (1, 3, 4)
    found = group.consume({"Offset": 1})
    assert (found["tombstone"], found["next_offset"]) == (None, 4)


def test_a_new_group_gets_no_tombstone_for_earlier_losses(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(cap_records=1)
    topic.append(1)
    topic.append(2)
    found = group.consume()
    assert (found["tombstone"], [message["offset"] for message in found["messages"]]) == (None, [2])


def test_positions_and_acks_on_every_class_of_topic(topic: TopicApi) -> None:
    for durability in ("ephemeral", "memory", "disk", "fsync"):
        each = TopicApi(topic.api, f"{topic.name}-{durability}")
        each.configure(durability=durability)
        each.append(1, 2)
        group = GroupApi(each, "g")
        assert (group.offsets(limit=1), group.ack(1), group.offsets()) == ([1], 1, [2])


# Long polls


def test_a_poll_is_woken_by_the_append(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    group.ack(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(group.offsets, timeout_seconds=20)
        let_polls_arrive(topic.api)
        topic.append(2)
        assert waiting.result(10) == [2]


def test_a_poll_ends_empty_a_little_before_its_time(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    group.ack(1)
    took = []
    # A busy machine may add what it likes, but not every time.
    while not took or (took[-1] >= 1.0 and len(took) < 10):
        started = time.monotonic()
        assert group.consume(timeout_seconds=1)["messages"] == []
        took.append(time.monotonic() - started)
    assert 0.5 < took[-1] < 1.0, took


def test_the_wait_can_be_asked_for_by_a_header(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    group.ack(1)
    started = time.monotonic()
    body = {"topic": topic.name, "group_id": group.name}
    succeeded(topic.api.post("/api/topics/consume", body, {"Prefer": "respond-async, wait=0"}))
    assert time.monotonic() - started < 5


def test_500_open_polls_leave_the_server_free_and_are_all_woken(topic: TopicApi, group: GroupApi) -> None:
    topic.append(0)
    group.ack(1)
    body = json.dumps({"topic": topic.name, "group_id": group.name, "timeout_seconds": 30}).encode()
    head = b"POST /api/topics/consume HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    sockets = [socket.create_connection((topic.api.host, topic.api.port), timeout=30) for _ in range(500)]
    try:
        for each in sockets:
            each.sendall(head % len(body) + body)
        started = time.monotonic()
        other = TopicApi(topic.api, topic.name + "-other")
        for number in range(50):
            other.append(number)
        assert time.monotonic() - started < 5
        topic.append(1)
        assert all([each.recv(12) == b"HTTP/1.1 200" for each in sockets])
    finally:
        for each in sockets:
            each.close()


def test_a_hung_up_client_frees_its_poll(topic: TopicApi, group: GroupApi) -> None:
    topic.append(0)
    group.ack(1)
    body = json.dumps({"topic": topic.name, "group_id": group.name, "consumer_id": "a", "timeout_seconds": 30}).encode()
    head = b"POST /api/topics/consume HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection((topic.api.host, topic.api.port), timeout=30) as client:
        client.sendall(head % len(body) + body)
        let_polls_arrive(topic.api)
    # Its session runs out only when its poll is noticed to be over.
    assert group.offsets(consumer_id="b", timeout_seconds=0) in ([], [1])
    topic.append(1)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(group.offsets, consumer_id="b", timeout_seconds=20).result(30) == [2]


def test_deleting_the_topic_ends_its_polls(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    group.ack(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(group.ask, timeout_seconds=20)
        let_polls_arrive(topic.api)
        topic.drop()
        refused(waiting.result(10), 404, "topic_not_found")


def test_stopping_the_server_ends_polls_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("stopping"))}
    with ThreadPoolExecutor(1) as pool:
        with running_server(load_settings(environment)) as url:
            topic = TopicApi(Api(url), "t")
            topic.append(1)
            group = GroupApi(topic, "g")
            group.ack(1)
            waiting = pool.submit(group.consume, timeout_seconds=30)
            let_polls_arrive(topic.api)
            started = time.monotonic()
        assert waiting.result(5)["messages"] == []
        assert time.monotonic() - started < 5
        topic.api.close()


# Sharing


def test_partitions_are_logs_of_their_own(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(partitions=3)
    topic.append("a", partition=0)
    topic.append("b", "c", partition=2)
    assert [group.offsets(partition_id=number) for number in range(3)] == [[1], [], [1, 2]]
    assert group.ack(1, partition_id=2) == 1
    assert group.offsets(partition_id=2) == [2]
    assert group.offsets(partition_id=0) == [1]


def test_members_share_the_partitions_without_overlap(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(partitions=4)
    for number in range(4):
        topic.append(*[f"{number}-{each}" for each in range(5)], partition=number)
    seen: dict[str, set[tuple[int, int]]] = {"a": set(), "b": set()}

    def work(consumer_id: str) -> None:
        for _ in range(60):
            found = group.consume(consumer_id=consumer_id, limit=2, timeout_seconds=0)
            for message in found["messages"]:
                seen[consumer_id].add((message["partition_id"], message["offset"]))
            if found["messages"]:
                group.ack(found["next_offset"] - 1, partition_id=found["partition_id"], consumer_id=consumer_id)
            if len(seen["a"]) + len(seen["b"]) == 20:
                return

    # Both are members before either begins.
    group.consume("Earliest", consumer_id="a", limit=1)
    group.consume("Earliest", consumer_id="b", limit=1)
    threads = [threading.Thread(target=work, args=(each,)) for each in ("a", "b")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert seen["a"] & seen["b"] == set()
    assert seen["a"] | seen["b"] == {(number, offset) for number in range(4) for offset in range(1, 6)}
    assert seen["a"]
    assert seen["b"]


def test_what_a_dead_member_had_not_acked_goes_to_the_living(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    assert group.offsets(consumer_id="dies") == [1, 2, 3]
    assert group.offsets(consumer_id="lives") == []
    started = time.monotonic()
    assert group.offsets(consumer_id="lives", timeout_seconds=20) == [1, 2, 3]
    assert time.monotonic() - started < 10


def test_a_member_that_leaves_is_replaced_at_once(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    assert group.offsets(consumer_id="a") == [1]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(group.offsets, consumer_id="b", timeout_seconds=20)
        let_polls_arrive(topic.api)
        body = {"topic": topic.name, "group_id": group.name, "consumer_id": "a"}
        assert succeeded(topic.api.post("/api/topics/leave", body))["success"] is True
        assert waiting.result(10) == [1]
    assert succeeded(topic.api.post("/api/topics/leave", body))["success"] is False


def test_a_partition_in_another_members_hands_is_not_given(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    assert group.offsets(consumer_id="a", partition_id=0) == [1]
    assert refused(group.ask(consumer_id="b", partition_id=0), 409, "partition_owned").detail == {"partition_id": 0}
    refused(group.ask(), 409, "partition_owned")


def test_an_ack_after_the_session_expired_is_a_conflict_and_moves_nothing(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    assert group.offsets(consumer_id="slow") == [1, 2, 3]
    wait_until_past(time.time_ns() // 1_000_000 + SESSION_MS)
    answer = refused(group.ask_ack(3, consumer_id="slow"), 409, "session_expired")
    assert answer.detail == {"consumer_id": "slow", "group_id": group.name}
    assert group.offsets(consumer_id="next", limit=2) == [1, 2]
    refused(group.ask_ack(3, consumer_id="slow"), 409, "session_expired")
    assert group.ack(2, consumer_id="next") == 2
    # What was acked meanwhile does not make the expired session valid.
    refused(group.ask_ack(2, consumer_id="slow"), 409, "session_expired")
    assert group.offsets(consumer_id="next") == [3]


def test_an_ack_of_a_consumer_that_never_polled_or_has_left_is_a_conflict(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    refused(group.ask_ack(1, consumer_id="stranger"), 409, "session_expired")
    assert group.offsets(consumer_id="a") == [1]
    refused(group.ask_ack(1, consumer_id="stranger"), 409, "session_expired")
    body = {"topic": topic.name, "group_id": group.name, "consumer_id": "a"}
    assert succeeded(topic.api.post("/api/topics/leave", body))["success"] is True
    refused(group.ask_ack(1, consumer_id="a"), 409, "session_expired")
    assert group.offsets() == [1]


def test_a_member_acks_only_the_partitions_it_owns(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(partitions=2)
    topic.append("zero", partition=0)
    topic.append("one", partition=1)
    assert group.offsets(consumer_id="a", partition_id=0) == [1]
    assert group.offsets(consumer_id="b", partition_id=1) == [1]
    answer = refused(group.ask_ack(1, partition_id=0, consumer_id="b"), 409, "partition_owned")
    assert answer.detail == {"partition_id": 0}
    assert group.ack(1, partition_id=0, consumer_id="a") == 1
    # A repeat moves nothing and is answered, also when another member owns the partition by now.
    assert group.ack(1, partition_id=0, consumer_id="b") == 1


def test_an_ack_of_no_session_does_not_move_a_partition_that_a_live_member_owns(
    topic: TopicApi, group: GroupApi
) -> None:
    topic.configure(partitions=2)
    topic.append("zero", "zero", partition=0)
    topic.append("one", partition=1)
    assert group.offsets(consumer_id="a", partition_id=0) == [1, 2]
    statement = f"ACK \"{topic.name}\" GROUP '{group.name}' PARTITION 0 UPTO OFFSET"
    for answer in (group.ask_ack(2, partition_id=0), sql(topic, f"{statement} 2")):
        assert refused(answer, 409, "partition_owned").detail == {"partition_id": 0}
    assert group.ack(1, partition_id=0, consumer_id="a") == 1
    # A repeat moves nothing. A partition without an owner can be moved.
    assert group.ack(1, partition_id=0) == 1
    assert succeeded(sql(topic, f"{statement} 1"))["rows"] == [[1]]
    assert group.offsets(consumer_id="a", partition_id=0) == [2]
    assert group.ack(1, partition_id=1) == 1
    wait_until_past(time.time_ns() // 1_000_000 + SESSION_MS)
    assert succeeded(sql(topic, f"{statement} 2"))["rows"] == [[2]]


# SQL


def sql(topic: TopicApi, statement: str) -> Answer:
    return topic.api.post("/api/sql", {"sql": statement})


def test_sql_does_not_consume_a_partition_that_a_live_member_owns(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(partitions=2)
    topic.append("zero", partition=0)
    topic.append("one", partition=1)
    assert group.offsets(consumer_id="a", partition_id=0) == [1]
    consume = f"CONSUME FROM \"{topic.name}\" GROUP '{group.name}'"
    for statement in (consume, f"{consume} PARTITION 0"):
        assert refused(sql(topic, statement), 409, "partition_owned").detail == {"partition_id": 0}
    assert [row[2] for row in succeeded(sql(topic, f"{consume} PARTITION 1"))["rows"]] == [1]
    wait_until_past(time.time_ns() // 1_000_000 + SESSION_MS)
    assert [row[2] for row in succeeded(sql(topic, consume))["rows"]] == [1]


def test_sql_moves_a_group_behind_records_that_are_all_lost(topic: TopicApi, group: GroupApi) -> None:
    topic.configure(ttl_ms=30)
    topic.append(1, 2, 3)
    consume = f"CONSUME FROM \"{topic.name}\" GROUP '{group.name}' FROM OFFSET 1"
    assert len(succeeded(sql(topic, consume))["rows"]) == 3
    wait_until_past(topic.state()["last_write_ts"] + 30)
    found = succeeded(sql(topic, consume))
    assert (found["rows"], found["next_offset"]) == ([], 4)
    assert (found["tombstone"]["gap_from"], found["tombstone"]["gap_to"]) == (1, 3)
    found = succeeded(sql(topic, consume))
    assert (found["tombstone"], found["next_offset"]) == (None, 4)


# Seeking


def test_seek_moves_a_group_back_and_forth(topic: TopicApi, group: GroupApi) -> None:
    topic.append(*range(5))
    group.ack(4)
    (outcome,) = group.seek("Earliest")
    assert outcome.pop("lag_seconds") >= 0
    assert outcome == {"partition_id": 0, "previous_offset": 5, "next_offset": 1, "lag_records": 5}
    assert group.offsets() == [1, 2, 3, 4, 5]
    group.seek({"Offset": 3})
    assert group.offsets() == [3, 4, 5]
    group.seek("Latest")
    assert group.offsets() == []
    group.seek({"Timestamp": "2000-01-01T00:00:00Z"})
    assert group.offsets() == [1, 2, 3, 4, 5]
    group.seek({"Timestamp": 1 << 60})
    assert group.offsets() == []


def test_a_dry_run_changes_nothing(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1, 2, 3)
    group.ack(2)
    (outcome,) = group.seek("Earliest", dry_run=True)
    assert (outcome["previous_offset"], outcome["next_offset"], outcome["lag_records"]) == (3, 1, 3)
    assert group.offsets() == [3]


def test_seek_goes_to_the_record_of_a_time(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    ts = topic.diff()["records"][0]["$ts"]
    wait_until_past(ts)
    topic.append(2)
    group.ack(0)
    group.offsets()
    group.seek({"Timestamp": ts + 1})
    assert group.offsets() == [2]


# Bad input


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": None},
        {"group_id": ""},
        {"group_id": "x" * 256},
        {"group_id": 5},
        {"start": "Middle"},
        {"start": {"Offset": -1}},
        {"start": {"Offset": "1"}},
        {"start": {"Offset": 1 << 64}},
        {"start": {"Offset": 1, "Other": 2}},
        {"start": {}},
        {"start": []},
        {"limit": 0},
        {"limit": -1},
        {"limit": 1.5},
        {"limit": "1"},
        {"limit": 1 << 64},
        {"partition_id": 1},
        {"partition_id": -1},
        {"partition_id": 1 << 40},
        {"timeout_seconds": -1},
        {"timeout_seconds": "1"},
        {"consumer_id": ""},
        {"consumer_id": "x" * 256},
        {"topic": "a b"},
        {"topic": None},
    ],
)
def test_a_bad_consume_is_refused_and_pins_nothing(topic: TopicApi, group: GroupApi, fields: dict[str, Any]) -> None:
    topic.append(1)
    body = {"topic": topic.name, "group_id": group.name, "timeout_seconds": 0} | fields
    refused(topic.api.post("/api/topics/consume", body), 400, "invalid_request")
    assert group.offsets("Latest") == []


@pytest.mark.parametrize("limit", [1 << 40, (1 << 64) - 1])
def test_a_huge_limit_is_the_largest_one(topic: TopicApi, group: GroupApi, limit: int) -> None:
    topic.append(*range(1500))
    found = group.consume(limit=limit)
    assert (len(found["messages"]), found["has_more"]) == (1000, True)


def test_an_unknown_topic_is_404_and_not_created(topic: TopicApi, group: GroupApi) -> None:
    refused(group.ask(), 404, "topic_not_found")
    refused(group.ask_ack(1), 404, "topic_not_found")
    assert not topic.exists()


def test_an_unknown_group_cannot_be_moved(topic: TopicApi, group: GroupApi) -> None:
    topic.append(1)
    body = {"topic": topic.name, "group_id": "absent", "to": "Latest"}
    refused(topic.api.post("/api/topics/seek", body), 404, "group_not_found")


@pytest.mark.parametrize("to", [{}, {"Offset": 1, "Timestamp": 1}, {"Offset": 99}, {"Timestamp": "soon"}, "now"])
def test_a_bad_seek_is_refused(topic: TopicApi, group: GroupApi, to: Any) -> None:
    topic.append(1)
    group.offsets()
    body = {"topic": topic.name, "group_id": group.name, "to": to}
    refused(topic.api.post("/api/topics/seek", body), 400, "invalid_request")


@pytest.mark.parametrize("root", ["/api", "/v1/api"])
def test_both_roots_and_both_words_for_the_topic(topic: TopicApi, root: str) -> None:
    topic.append(1)
    body = {"topic_id": topic.name, "group_id": root, "timeout_seconds": 0}
    assert len(succeeded(topic.api.post(f"{root}/topics/consume", body))["messages"]) == 1
    body = {"topic_id": topic.name, "group_id": root, "upto_offset": 1}
    assert succeeded(topic.api.post(f"{root}/topics/ack", body))["acknowledged_offset"] == 1


@pytest.mark.parametrize("path", ["consume", "ack", "seek", "leave"])
def test_media_type_and_method_are_checked(api: Api, path: str) -> None:
    assert api.send("POST", f"/api/topics/{path}", b"{}").code == "unsupported_media_type"
    assert api.get(f"/api/topics/{path}").code == "method_not_allowed"


# Waiting for the server


def let_polls_arrive(api: Api) -> None:
    """Give requests sent on other connections the time to reach the server. What is tested holds if they do not."""
    for _ in range(20):
        api.get("/v0/health")
        time.sleep(0.005)
