"""Writes that fail together give back their seqs before anybody is told: whoever writes again at once gets right ones."""

import errno
from typing import Any

from tests.broker.house import House
from topics.model.batch import decode_batch
from topics.model.errors import TopicsError


def test_whoever_writes_again_when_told_of_a_failure_gets_the_seqs_his_records_have() -> None:
    house = House()
    house.append("t", 0)
    outcomes: dict[str, Any] = {}

    def write(what: str, then: str = "", key: str = "") -> None:
        body = f'{{"records":[{{"data":"{what}"}}]' + (f',"idempotency_key":"{key}"}}' if key else "}")

        def reply(outcome: Any) -> None:
            outcomes[what] = outcome
            if then:
                write(then)

        house.broker.append("t", decode_batch(body.encode(), house.limits), reply)

    failing = [errno.ENOSPC]
    house.disk.fault = lambda _step, op, _path: failing.pop() if op == "write_at" and failing else None
    # Two groups of one turn, the later of which is told first; each answers with another write.
    write("a", then="d", key="k")
    write("b", then="c")
    house.runtime.run()
    assert isinstance(outcomes["a"], TopicsError)
    assert isinstance(outcomes["b"], TopicsError)
    told = {what: outcomes[what].first_seq for what in ("c", "d")}
    stored = {record["data"]: record["$seq"] for record in house.read("t") if record["data"] != 0}
    assert told == stored
    assert sorted(stored.values()) == [2, 3]
