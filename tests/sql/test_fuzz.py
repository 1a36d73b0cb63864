"""No statement, however absurd, ends in anything but an answer or a refusal."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.fuzz import statements
from topics.api.errors import STATUS_OF
from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.model.errors import InvalidRequest, TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings
from topics.server.auth.authorization import EVERYONE
from topics.server.auth.permissions import Access
from topics.server.service import Service
from topics.server.sql.selects import SelectPool
from topics.server.sql.statements import Execution, Result
from topics.sql.parser import parse
from topics.sql.select import Reply, Request, SelectProcess
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

SETTINGS = StorageSettings(wal_file_bytes=1 << 20)


class NoSelects(SelectProcess):
    """A worker without an engine, which has its own tests: everything before it runs."""

    def run(self, request: Request, seconds: float = 0) -> Reply:
        return Reply(["x"], [[1]])


class ConnectedRequest:
    """The request of a client that does not disconnect."""

    def on_disconnect(self, callback: Callable[[], None]) -> None: ...


class StatementCall(Access):
    """A call of the SQL operation by a client that may do everything."""

    __slots__ = ("request",)

    def __init__(self, service: Service, broker: Broker) -> None:
        super().__init__(service, broker, EVERYONE)
        self.request = ConnectedRequest()


class Bench:
    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.service = Service()
        self.service.selects = SelectPool([NoSelects()])
        self.renew()

    def renew(self) -> None:
        """A fresh broker, so that a long run does not pile up what the statements made."""
        disk = FakeDisk()
        disk.make_directory("")
        self.broker = Broker(disk, self.runtime, recover(disk, SETTINGS), Limits(), SETTINGS)
        self.broker.start()
        self.runtime.run()
        body = b'{"records":[{"data":1},{"data":2},{"data":3}]}'
        self.broker.append("t", decode_batch(body, Limits()), lambda _: None)
        self.runtime.run()

    def run(self, text: str, params: list[Any]) -> Result | TopicsError:
        """What the statement ends in. Lets out every exception that is not a refusal."""
        got: list[Result | TopicsError] = []
        try:
            call: Any = StatementCall(self.service, self.broker)
            Execution(call, got.append).run(parse(text, params))
        except TopicsError as error:
            got.append(error)
        self.runtime.run()
        (outcome,) = got
        return outcome


def play(seed: int, count: int) -> dict[str, int]:
    bench = Bench()
    outcomes: dict[str, int] = {}
    for number, (text, params) in enumerate(statements(seed, count)):
        if number % 500 == 499:
            bench.renew()
        try:
            outcome = bench.run(text, params)
        except Exception as error:
            raise AssertionError(f"seed {seed}, statement {number}: {text!r} with {params!r}") from error
        word = outcome.code if isinstance(outcome, TopicsError) else "answer"
        if isinstance(outcome, TopicsError):
            assert STATUS_OF[outcome.code] in (400, 404, 409, 429), (seed, number, text, outcome)
        outcomes[word] = outcomes.get(word, 0) + 1
    return outcomes


def test_thousands_of_mutated_statements_end_in_an_answer_or_a_refusal() -> None:
    outcomes = play(seed=1, count=6000)
    # Both sides were tried.
    assert outcomes["answer"] > 300
    assert outcomes["invalid_request"] > 1000


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(10, 18))
def test_200_000_mutated_statements_end_in_an_answer_or_a_refusal(seed: int) -> None:
    assert sum(play(seed, 25_000).values()) == 25_000


def test_mutated_selects_never_stop_the_engine_for_the_next_one() -> None:
    process = SelectProcess()
    try:
        tried = 0
        for text, params in statements(seed=2, count=4000):
            try:
                statement = parse(text, params)
            except TopicsError:
                continue
            if type(statement).__name__ != "Select" or tried >= 30:
                continue
            tried += 1
            try:
                process.run(Request(statement.text, list(params), []))  # type: ignore[union-attr]
            except InvalidRequest:
                pass
        assert tried == 30
        assert process.run(Request("SELECT 1 AS one", [], [])).rows == [[1]]
    finally:
        process.close()
