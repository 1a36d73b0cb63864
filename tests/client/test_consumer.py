"""Consumers: every message once acknowledged, acks as the mode says, sessions kept and lost, a clean leave."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from tests.client.conftest import make_client, write_lone_surrogate
from tests.served import server_settings
from topics.client import (
    AsyncClient,
    Client,
    Consumer,
    InvalidRequest,
    LostMessages,
    Message,
    PayloadMismatch,
    SessionLost,
    UndecodablePayload,
)
from topics.testing.server import running_server

SESSION_MS = 600


@pytest.fixture(scope="module")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server where a session ends soon after the last heartbeat."""
    settings = server_settings(tmp_path_factory.mktemp("groups"), TOPICS_CONSUMER_SESSION_MS=str(SESSION_MS))
    with running_server(settings) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


def offsets(client: Client, topic: str, group: str) -> dict[int, int]:
    """The next offset of the group in each partition."""
    sought = client.seek_group(topic, group, "earliest", dry_run=True)
    return {each.partition_id: each.previous_offset or 0 for each in sought.partitions}


def test_messages_are_decoded_and_acknowledged_once(client: Client, topic: str) -> None:
    client.append(topic, [{"n": number} for number in range(5)])
    with client.consumer(topic, group="g", follow=False, limit=2) as consumer:
        for message in consumer:
            assert isinstance(message, Message)
            assert (message.topic, message.partition, message.data) == (topic, 0, {"n": message.offset - 1})
            consumer.ack(message)
    assert offsets(client, topic, "g") == {0: 6}


def test_async_messages_are_decoded_and_acknowledged_once(client: Client, url: str, topic: str) -> None:
    client.append(topic, [{"n": number} for number in range(5)])

    async def consume() -> list[Any]:
        async with (
            AsyncClient(url) as other,
            other.consumer(topic, group="g", follow=False, limit=2, ack="each") as consumer,
        ):
            return [message.data["n"] async for message in consumer]

    assert asyncio.run(consume()) == [0, 1, 2, 3, 4]
    assert offsets(client, topic, "g") == {0: 6}


def test_unacknowledged_messages_do_not_come_again_in_the_session_and_do_in_the_next(
    client: Client, topic: str
) -> None:
    client.append(topic, list(range(10)))
    for _ in range(2):
        with client.consumer(topic, group="g", follow=False, limit=3) as consumer:
            assert [message.data for message in consumer] == list(range(10))


def test_ack_without_an_argument_acknowledges_everything_that_was_taken(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    for partition in (0, 1):
        client.append(topic, [1, 2], partition=partition)
    with client.consumer(topic, group="g", follow=False) as consumer:
        for number, _ in enumerate(consumer, 1):
            if number == 4:
                consumer.ack()
    assert offsets(client, topic, "g") == {0: 3, 1: 3}


def test_mode_each_leaves_the_message_whose_handling_failed(client: Client, topic: str) -> None:
    client.append(topic, [1, 2, 3])

    def divide() -> None:
        with client.consumer(topic, group="g", ack="each", follow=False) as consumer:
            for message in consumer:
                1 / (2 - message.data)

    with pytest.raises(ZeroDivisionError):
        divide()
    assert offsets(client, topic, "g") == {0: 2}


def test_mode_timed_acknowledges_at_its_interval_and_at_the_end(client: Client, topic: str) -> None:
    client.append(topic, [1, 2, 3])
    with client.consumer(topic, group="g", ack="timed", ack_interval_s=1000, follow=False) as consumer:
        next(consumer)
        next(consumer)
        assert offsets(client, topic, "g") == {0: 1}
    assert offsets(client, topic, "g") == {0: 2}, "the second message was not finished"
    with client.consumer(topic, group="g", ack="timed", ack_interval_s=0, follow=False) as consumer:
        next(consumer)
        next(consumer)
        assert offsets(client, topic, "g") == {0: 3}


def test_an_unknown_mode_is_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="explicit"):
        client.consumer("t", "g", ack="never")  # type: ignore[call-overload]


def test_members_share_the_partitions_and_nothing_is_taken_twice(client: Client, topic: str) -> None:
    client.create(topic, partitions=4)
    handle = client.topic(topic)
    for number in range(40):
        handle.append(number)
    counts = {each.partition: each.count for each in client.info(topic).partitions}
    assert set(counts.values()) == {10}, "records without a key are spread over the partitions"
    taken: list[tuple[str, int, Any]] = []
    started = threading.Barrier(2)
    consumers: list[Consumer[Any]] = []

    def consume(name: str) -> None:
        with client.consumer(topic, group="g", follow=True, limit=5, poll_s=1, name=name, ack="each") as consumer:
            consumers.append(consumer)
            consumer.poll()
            consumer.seek("earliest")
            started.wait(20)
            for message in consumer:
                taken.append((name, message.partition, message.data))
                if len(taken) >= 40:
                    for each in consumers:
                        each.stop()

    threads = [threading.Thread(target=consume, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted([data for _, _, data in taken]) == list(range(40))
    assert {name for name, _, _ in taken} == {"a", "b"}


def test_seek_goes_to_the_beginning_an_offset_and_a_time(client: Client, topic: str) -> None:
    client.append(topic, list(range(5)))
    with client.consumer(topic, group="g", follow=False, ack="each") as consumer:
        assert [message.data for message in consumer] == [0, 1, 2, 3, 4]
        for to, first in (("earliest", 0), (4, 3), ("-1h", 0), ("2020-01-01", 0)):
            consumer.seek(to)
            assert next(consumer).data == first
        consumer.seek("latest")
        assert list(consumer) == []
        with pytest.raises(InvalidRequest, match="-1h"):
            consumer.seek("yesterday")


def test_lost_messages_are_values(client: Client, topic: str) -> None:
    client.create(topic, cap_records=2)
    client.append(topic, [1])
    with client.consumer(topic, group="g", follow=False) as consumer:
        next(consumer)
    client.append(topic, [2, 3, 4])
    with client.consumer(topic, group="g", follow=False) as consumer:
        lost, *rest = list(consumer)
        assert isinstance(lost, LostMessages)
        assert (lost.gap_from, lost.gap_to, lost.partition) == (1, 2, 0)
        assert [message.data for message in rest] == [3, 4]
        consumer.ack(lost)
    assert offsets(client, topic, "g") == {0: 3}


@pytest.fixture
def fenced(kind: str, short_sessions: str) -> Iterator[Any]:
    """A client, sync or async, of the server with short sessions."""
    client = make_client(kind, short_sessions)
    yield client
    client.close()


def test_heartbeats_keep_the_session_while_a_message_is_handled(fenced: Any, short_sessions: str, topic: str) -> None:
    fenced.append(topic, [1, 2])
    with fenced.consumer(topic, group="g", heartbeat_s=0.1, follow=False) as consumer:
        message = next(consumer)
        ends_at = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < ends_at:
            fenced.health()
        consumer.ack(message)
    with Client(short_sessions) as client:
        assert offsets(client, topic, "g") == {0: 2}


def test_a_consumer_whose_session_ended_raises_session_lost_and_can_go_on(fenced: Any, topic: str) -> None:
    fenced.append(topic, [1, 2])
    with fenced.consumer(topic, group="g", heartbeat_s=1000, follow=False) as consumer:
        message = next(consumer)
        fenced.leave_group(topic, "g", consumer.name)
        with pytest.raises(SessionLost):
            consumer.ack(message)
        assert [each.data for each in consumer] == [1, 2], "it joins again and gets what was not acknowledged"


def test_a_fenced_consumer_gets_session_lost_from_its_heartbeat(fenced: Any, topic: str) -> None:
    fenced.append(topic, [1, 2])
    with fenced.consumer(topic, group="g", heartbeat_s=0.05, follow=False) as consumer:
        next(consumer)
        fenced.leave_group(topic, "g", consumer.name)

        def ack_until_it_fails() -> None:
            ends_at = time.monotonic() + 20
            while time.monotonic() < ends_at:
                consumer.ack()

        with pytest.raises(SessionLost):
            ack_until_it_fails()


def test_leaving_gives_the_partition_to_another_member_at_once(kind: str, url: str, topic: str) -> None:
    client = make_client(kind, url)
    client.append(topic, [1])
    with client.consumer(topic, group="g", follow=False) as first:
        assert next(first).data == 1
    with client.consumer(topic, group="g", follow=False) as second:
        assert next(second).data == 1, "the session of the first would last 30 s"
    client.close()


class Struct(msgspec.Struct):
    sku: str


@dataclass
class Data:
    sku: str


class Model(pydantic.BaseModel):
    sku: str


@pytest.mark.parametrize("kind", [Struct, Data, Model], ids=["msgspec", "dataclass", "pydantic"])
def test_payloads_are_decoded_into_the_type_and_a_misfit_names_its_record(
    client: Client, topic: str, kind: Any
) -> None:
    client.append(topic, [{"sku": "MUG"}, {"sku": 7}, {"sku": "CUP"}])
    reading = client.read(topic, type=kind)
    first = next(reading)
    assert isinstance(first.data, kind)  # type: ignore[union-attr]
    with pytest.raises(PayloadMismatch, match="seq 2"):
        next(reading)
    with client.consumer(topic, group="g", type=kind, follow=False) as consumer:
        assert next(consumer).data == kind(sku="MUG")
        with pytest.raises(PayloadMismatch, match="seq 2"):
            next(consumer)
        assert next(consumer).data == kind(sku="CUP"), "one that does not fit holds back no other"


def test_async_read_decodes_into_the_type(url: str, client: Client, topic: str) -> None:
    client.append(topic, [{"sku": "MUG"}])

    async def read() -> list[Any]:
        async with AsyncClient(url) as other:
            return [item async for item in other.topic(topic).read(type=Data)]

    assert [item.data for item in asyncio.run(read())] == [Data("MUG")]


PROGRAM = """
import asyncio, sys
from topics.client import AsyncClient, Client

def consume(url, topic):
    with Client(url) as client, client.consumer(topic, group="g", name="program") as consumer:
        for message in consumer:
            print("got", message.data, flush=True)
            consumer.ack(message)
    print("left", flush=True)

async def consume_async(url, topic):
    async with AsyncClient(url) as client, client.consumer(topic, group="g", name="program") as consumer:
        async for message in consumer:
            print("got", message.data, flush=True)
            await consumer.ack(message)
    print("left", flush=True)

kind, url, topic = sys.argv[1:]
consume(url, topic) if kind == "sync" else asyncio.run(consume_async(url, topic))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_iteration_and_leaves_the_group(
    kind: str, client: Client, url: str, topic: str, number: signal.Signals
) -> None:
    client.append(topic, [1])
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), kind, url, topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "got 1\n"
    os.kill(program.pid, number)
    output, errors = program.communicate(timeout=30)
    assert (output, errors, program.returncode) == ("left\n", "", 0)
    assert client.leave_group(topic, "g", "program").success is False, "it has left by itself"


def test_a_stopped_consumer_ends(client: Client, topic: str) -> None:
    client.append(topic, [1, 2, 3])
    with client.consumer(topic, group="g") as consumer:
        taken = []
        for message in consumer:
            taken.append(message.data)
            consumer.stop()
    assert taken == [1, 2, 3], "what was fetched is delivered first"


PAYLOADS = {
    "replace": [1, {"a": "x\ufffdy"}, "\U0001f600"],
    "raw": [1, rb'{"a":"x\ud800y"}', "\U0001f600"],
}


@pytest.mark.parametrize("choice", ["replace", "raw"])
def test_a_message_with_a_lone_surrogate_is_delivered_as_asked_and_acknowledged(
    kind: str, url: str, topic: str, choice: Any
) -> None:
    write_lone_surrogate(url, topic)

    async def consume() -> list[Any]:
        async with (
            AsyncClient(url, lone_surrogates=choice) as other,
            other.consumer(topic, group="g", follow=False, ack="each") as consumer,
        ):
            return [message.data async for message in consumer]

    with Client(url, lone_surrogates=choice) as client:
        if kind == "async":
            found = asyncio.run(consume())
        else:
            with client.consumer(topic, group="g", follow=False, ack="each") as consumer:
                found = [message.data for message in consumer if isinstance(message, Message)]
        assert found == PAYLOADS[choice]
        assert offsets(client, topic, "g") == {0: 4}


def test_a_message_with_a_lone_surrogate_raises_when_asked_and_the_next_ones_are_delivered(
    url: str, topic: str
) -> None:
    write_lone_surrogate(url, topic)
    with (
        Client(url, lone_surrogates="error") as client,
        client.consumer(topic, group="g", follow=False) as consumer,
    ):
        assert next(consumer).data == 1  # type: ignore[union-attr]
        with pytest.raises(UndecodablePayload, match="record 2"):
            next(consumer)
        assert next(consumer).data == "\U0001f600"  # type: ignore[union-attr]
