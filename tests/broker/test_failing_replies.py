"""An error of ours in what one commit brings about costs the others of its turn nothing."""

import errno
from typing import Any

import pytest

from tests.broker.house import House
from topics.model.batch import decode_batch


def write(house: House, topic: str, reply: Any) -> None:
    house.broker.append(topic, decode_batch(b'{"records":[{"data":1}]}', house.limits), reply)


def broken(_outcome: Any) -> None:
    raise RuntimeError("whoever answers is broken")


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_the_others_of_a_turn_are_answered_and_the_log_goes_on(
    durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    house = House()
    for topic in ("a", "b", "c"):
        house.configure(topic, durability=durability)
        house.append(topic, 0)
    outcomes: list[Any] = []
    write(house, "a", outcomes.append)
    write(house, "b", broken)
    write(house, "c", outcomes.append)
    house.runtime.run()
    assert [outcome.first_seq for outcome in outcomes] == [2, 2]
    assert "whoever answers is broken" in caplog.text
    for topic in ("a", "b", "c"):
        assert house.append(topic, 2).first_seq == 3
        assert house.datas(topic) == [0, 1, 2]


def test_the_others_are_told_of_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    house = House()
    house.append("a", 0)
    house.append("b", 0)
    failing = [errno.ENOSPC]
    house.disk.fault = lambda _step, op, _path: failing.pop() if op == "write_at" and failing else None
    outcomes: list[Any] = []
    write(house, "a", outcomes.append)
    write(house, "b", broken)
    house.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["storage_full"]
    assert "whoever answers is broken" in caplog.text
    assert house.append("b", 1).first_seq == 2
