"""The commands of a socket when writes have to wait."""

import json
from typing import Any

import msgspec
import pytest

from topics.api.live import COMMANDS, AckMessage, ErrorMessage, PongMessage, SubscribedMessage, UnsubscribedMessage
from topics.api.operation import MAX_CONTROL_BODY_BYTES
from topics.broker.topics.feed import Feed
from topics.server.auth.authorization import EVERYONE
from topics.server.auth.permissions import Access
from topics.server.live.commands import MAX_PENDING_PUBLISHES, Commands
from topics.server.service import Service
from topics.server.topics.throttle import Throttle
from topics.testing.broker import BrokerBench


class Scene:
    def __init__(self) -> None:
        self.bench = BrokerBench()
        self.bench.configure("low", priority=-100)
        # Who has to wait has waited too long at the next look, unless it is let in before.
        self.throttle = Throttle(lag_ms=10, wait_ms=0)
        self.throttle.start(self.bench.runtime)
        self.sent: list[dict[str, Any]] = []
        self.idle = 0
        broker = self.bench.broker
        service = Service()
        service.throttle = self.throttle
        access = Access(service, broker, EVERYONE)
        self.commands = Commands(access, Feed(broker), self._send, lambda: None, self._on_idle)

    def add(self, **command: Any) -> None:
        self.commands.add(json.dumps(command).encode())

    def publish(self, request_id: int, **fields: Any) -> None:
        self.add(op="publish", request_id=request_id, topic="low", records=[{"data": request_id}], **fields)

    def answers(self) -> list[tuple[str, int]]:
        self.bench.runtime.run()
        return [(message["op"], message["request_id"]) for message in self.sent]

    def press(self) -> None:
        """So late that writes of low priority have to wait."""
        for _ in range(5):
            self.throttle.observe(1000.0)
        assert self.throttle.closed

    def _send(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    def _on_idle(self) -> None:
        self.idle += 1


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_publish_that_is_parked_holds_up_what_is_behind_it(scene: Scene) -> None:
    scene.press()
    scene.publish(1)
    scene.publish(2)
    scene.add(op="ping", request_id=3)
    assert scene.commands.waiting
    assert scene.answers() == []
    scene.throttle.stop()
    assert scene.answers() == [("ack", 1), ("ack", 2), ("pong", 3)]
    assert [message.get("last_seq") for message in scene.sent] == [1, 2, None]
    assert scene.idle == 1


def test_ack_of_a_parked_publish_has_its_waiting_time(scene: Scene) -> None:
    scene.publish(1)
    scene.press()
    scene.publish(2)
    scene.bench.runtime.clock.advance(7)
    scene.throttle.stop()
    assert scene.answers() == [("ack", 1), ("ack", 2)]
    assert [message["performance"]["throttle_wait_ms"] for message in scene.sent] == [0.0, 7.0]


def test_a_publish_that_waited_too_long_is_refused_and_the_next_has_its_turn(scene: Scene) -> None:
    scene.press()
    # Others who matter more take the few places there are.
    for _ in range(5000):
        assert scene.throttle.park(-1, 0, lambda waited_ms: None, lambda error: None, lambda: False)
    scene.publish(1)
    scene.add(op="ping", request_id=2)
    scene.throttle.observe(1000.0)
    assert scene.answers() == [("error", 1), ("pong", 2)]
    assert scene.sent[0]["code"] == "throttled"


def test_a_publish_that_insists_is_not_refused(scene: Scene) -> None:
    scene.press()
    scene.publish(1, disable_backpressure=True)
    scene.throttle.observe(1000.0)
    scene.throttle.stop()
    assert scene.answers() == [("ack", 1)]


def test_publishes_under_way_are_bounded_and_the_rest_has_its_turn(scene: Scene) -> None:
    for number in range(MAX_PENDING_PUBLISHES + 10):
        scene.publish(number)
    assert scene.commands.waiting
    assert scene.answers() == [("ack", number) for number in range(MAX_PENDING_PUBLISHES + 10)]
    assert not scene.commands.waiting


def test_nothing_is_sent_after_the_socket_is_gone(scene: Scene) -> None:
    scene.press()
    scene.publish(1)
    scene.add(op="ping", request_id=2)
    scene.commands.stop()
    scene.throttle.stop()
    scene.bench.runtime.run()
    assert [message["op"] for message in scene.sent] in ([], ["ack"])
    assert scene.bench.broker.topic("low").partitions[0].head_seq == 1


def large(request_id: int, **fields: Any) -> dict[str, Any]:
    """A publish that is decoded in steps."""
    records = [{"data": "x" * 1000, "tag": str(number)} for number in range(600)]
    return {"op": "publish", "request_id": request_id, "topic": "low", "records": records, **fields}


def test_commands_behind_a_large_publish_are_answered_after_it(scene: Scene) -> None:
    scene.publish(1)
    scene.add(**large(2))
    scene.add(**large(3))
    scene.publish(4)
    scene.add(op="ping", request_id=5)
    assert scene.answers() == [("ack", 1), ("ack", 2), ("ack", 3), ("ack", 4), ("pong", 5)]
    assert [message.get("last_seq") for message in scene.sent] == [1, 601, 1201, 1202, None]


@pytest.mark.parametrize(
    "fields",
    [
        {"records": [{"data": "x" * 400_000}, {"no_data": 1}]},
        {"records": [{"data": "x" * 40}] * 10_001},
        {"topic": 7},
        {"idempotency_key": "k" * 5000},
        {"op": "unknown", "x": "y" * 600_000},
        {"records": "x" * 300_000},
    ],
    ids=["bad record", "too many records", "bad topic", "long key", "unknown op", "no list"],
)
def test_large_message_that_is_refused_is_answered_with_its_request_id(scene: Scene, fields: dict[str, Any]) -> None:
    scene.add(**large(7, **fields))
    scene.publish(8)
    assert scene.answers() == [("error", 7), ("ack", 8)]


def test_large_message_that_is_not_a_publish_is_carried_out_up_to_its_limit(scene: Scene) -> None:
    scene.add(op="ping", request_id=1, padding="x" * 500_000)
    scene.add(op="ping", request_id=2, padding="x" * (MAX_CONTROL_BODY_BYTES + 1))
    scene.add(op="ping", padding="x" * (MAX_CONTROL_BODY_BYTES - 100), request_id=3)
    assert scene.answers() == [("pong", 1), ("error", 2), ("pong", 3)]


def test_large_publish_with_a_lone_surrogate_is_appended(scene: Scene) -> None:
    message = json.dumps(large(1)).replace('"data": "x', '"data": "\\ud800', 1)
    scene.commands.add(message.encode())
    assert scene.answers() == [("ack", 1)]


COMMANDS_AND_ANSWERS: list[tuple[dict[str, Any], type]] = [
    ({"op": "subscribe", "topic": "low", "request_id": [1]}, SubscribedMessage),
    ({"op": "subscribe", "topics": {"low": {"tail": True}}}, SubscribedMessage),
    ({"op": "unsubscribe", "topic": "low", "request_id": 1}, UnsubscribedMessage),
    ({"op": "publish", "topic": "low", "records": [{"data": 1}], "request_id": "a"}, AckMessage),
    ({"op": "ping"}, PongMessage),
    ({"op": "subscribe", "topic": "absent", "request_id": 2}, ErrorMessage),
    ({"op": "other"}, ErrorMessage),
]


@pytest.mark.parametrize(("command", "declared"), COMMANDS_AND_ANSWERS)
def test_answers_have_the_declared_fields(scene: Scene, command: dict[str, Any], declared: type) -> None:
    scene.add(**command)
    scene.bench.runtime.run()
    (answer,) = scene.sent
    # Raises for a field of another type, or one that is missing.
    msgspec.json.decode(json.dumps(answer).encode(), type=declared)
    assert set(answer) - {"op"} <= set(declared.__struct_fields__)
    assert answer.get("request_id") == command.get("request_id")


def test_every_command_declares_its_message_and_its_answer() -> None:
    for op, command in COMMANDS.items():
        assert command.request is not None
        assert command.request.__struct_config__.tag == op
        assert command.response is not None
    assert {declared for _, declared in COMMANDS_AND_ANSWERS} == {
        ErrorMessage,
        *[command.response for command in COMMANDS.values()],
    }
