"""The commands of a socket when writes have to wait."""

import json
from typing import Any

import pytest

from topics.broker.feed import Feed
from topics.broker.throttle import Throttle
from topics.server.access import EVERYONE
from topics.server.commands import PUBLISHES_MOST, Commands
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
        self.commands = Commands(broker, self.throttle, EVERYONE, Feed(broker), self._send, lambda: None, self._on_idle)

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
    for number in range(PUBLISHES_MOST + 10):
        scene.publish(number)
    assert scene.commands.waiting
    assert scene.answers() == [("ack", number) for number in range(PUBLISHES_MOST + 10)]
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
