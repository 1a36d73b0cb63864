"""An exception in one commit or reply does not affect the others: each request is answered once, and nothing stays reserved."""

import errno
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import topics.broker.log.commit
import topics.broker.topics.append
from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.groups.groups import ack, drop_group, group_of, pin
from topics.broker.log.commit import Commit
from topics.broker.routers.routers import WantedRouter
from topics.broker.tables.archives import clear_archive, set_archive
from topics.broker.tables.tables import drop_table, put_table
from topics.broker.transactions.stages import commit, stage
from topics.engine.groups.group_requests import EARLIEST
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.records.batch import decode_batch
from topics.model.router import RouterChange
from topics.model.tables.archive import ArchiveOptions
from topics.model.tables.change import Defaults, decode_changes
from topics.model.tables.route import Route
from topics.model.tables.table import Table

Reply = Callable[[Any], None]
ONE = b'{"records":[{"data":1}]}'


def write(under_test: BrokerUnderTest, topic: str, reply: Reply, body: bytes = ONE) -> None:
    under_test.broker.append(topic, decode_batch(body, under_test.limits), reply)


def broken(_outcome: Any) -> None:
    raise RuntimeError("this reply is broken")


def table(number: int) -> Table:
    return Table(f"table{number}", "push", None, ("id",), {}, 0)


class Operations:
    """Every operation that is answered by a commit, on topics of one class. Each may be asked for again and again."""

    def __init__(self, under_test: BrokerUnderTest, durability: str) -> None:
        self.under_test = under_test
        self.broker = under_test.broker
        self.numbers = itertools.count(1)
        for name in ("log", "other", "source", "dest", "grouped"):
            under_test.configure(name, durability=durability)
            under_test.append(name, 0)
        under_test.configure("queue", type="queue", durability=durability, lease_ms=3_600_000, leases_durable=True)
        under_test.ask(pin, self.broker, self.broker.topic("grouped"), self.group(), [self.grouped()], EARLIEST)

    def grouped(self) -> Any:
        return self.broker.topic("grouped").partitions[0]

    def group(self) -> Any:
        return group_of(self.broker, self.broker.topic("grouped"), "g")

    def append(self, reply: Reply) -> None:
        write(self.under_test, "log", reply)

    def append_with_key(self, reply: Reply) -> None:
        write(self.under_test, "log", reply, b'{"records":[{"data":1}],"idempotency_key":"k%d"}' % next(self.numbers))

    def create_by_append(self, reply: Reply) -> None:
        write(self.under_test, f"new-{next(self.numbers)}", reply)

    def create(self, reply: Reply) -> None:
        number = next(self.numbers)
        self.broker.create_topic(f"made-{number}", ConfigChange(), f"alias-{number}", if_absent=True, reply=reply)

    def configure(self, reply: Reply) -> None:
        self.broker.configure("other", ConfigChange(cap_records=1000 + next(self.numbers)), reply)

    def delete(self, reply: Reply) -> None:
        self.under_test.configure("deleted")
        self.broker.delete_topic("deleted", if_empty=False, reply=reply)

    def delete_records(self, reply: Reply) -> None:
        self.broker.delete_records("log", 1, None, 0, reply)

    def set_alias(self, reply: Reply) -> None:
        self.broker.set_alias("other", f"other-{next(self.numbers)}", reply)

    def change_routes(self, reply: Reply) -> None:
        self.broker.change_routes("other", lambda _, version: [Route("t", "Insert", "Key", version)], reply)

    def set_archive(self, reply: Reply) -> None:
        set_archive(self.broker, "log", ArchiveOptions(f"s3://lake/{next(self.numbers)}"), reply)

    def clear_archive(self, reply: Reply) -> None:
        self.under_test.ask(set_archive, self.broker, "dest", ArchiveOptions("s3://lake/dest"))
        clear_archive(self.broker, "dest", reply)

    def put_table(self, reply: Reply) -> None:
        put_table(self.broker, table(next(self.numbers)), reply)

    def drop_table(self, reply: Reply) -> None:
        known = table(next(self.numbers))
        self.under_test.ask(put_table, self.broker, known)
        drop_table(self.broker, known.name, reply)

    def create_router(self, reply: Reply) -> None:
        number = next(self.numbers)
        self.broker.routers.put(WantedRouter(f"r-{number}", f"from-{number}", f"to-{number}"), reply)

    def configure_router(self, reply: Reply) -> None:
        number = next(self.numbers)
        self.under_test.ask(self.broker.routers.put, WantedRouter(f"r-{number}", "source", "dest"))
        change = RouterChange(preserve_tag=False)
        self.broker.routers.put(WantedRouter(f"r-{number}", "source", "dest", change), reply)

    def delete_router(self, reply: Reply) -> None:
        name = f"r-{next(self.numbers)}"
        self.under_test.ask(self.broker.routers.put, WantedRouter(name, "source", "dest"))
        self.broker.routers.delete(name, reply)

    def stage(self, reply: Reply) -> None:
        batch = decode_batch(ONE, self.under_test.limits)
        stage(self.broker, f"stage-{next(self.numbers)}", self.broker.topic("log"), [batch], reply)

    def commit(self, reply: Reply) -> None:
        writes = [Write(name, decode_batch(ONE, self.under_test.limits)) for name in ("log", "grouped")]
        commit(self.broker, CommitRequest([], writes, "p", next(self.numbers)), reply)

    def change_table(self, reply: Reply) -> None:
        number = next(self.numbers)
        event = {"op": "c", "key": {"id": number}, "after": {"n": number}, "source": "s", "position": number}
        events = decode_changes(msgspec.json.encode([event]), Defaults(1), 100)
        assert events.changes
        self.broker.changes.append("t", events, reply)

    def ack_group(self, reply: Reply) -> None:
        self.under_test.append("grouped", 1)
        ack(self.broker, self.broker.topic("grouped"), "g", self.grouped(), self.grouped().head_seq, reply)

    def drop_group(self, reply: Reply) -> None:
        self.under_test.ask(pin, self.broker, self.broker.topic("log"), group_of(self.broker, self.broker.topic("log"), "h"),
                       [self.broker.topic("log").partitions[0]], EARLIEST)  # fmt: skip
        drop_group(self.broker, self.broker.topic("log"), "h", reply)

    def claim(self, reply: Reply) -> None:
        self.under_test.append("queue", "job")
        self.broker.queues.claim("queue", 0, "n", 1, None, 0, reply)

    def _held(self) -> int:
        self.under_test.append("queue", "job")
        outcomes: list[Any] = []
        self.broker.queues.claim("queue", 0, "n", 1, None, 0, outcomes.append)
        self.under_test.runtime.run()
        seqs: list[int] = outcomes[0].delivery.seqs
        return seqs[0]

    def ack_job(self, reply: Reply) -> None:
        self.broker.queues.ack("queue", 0, "n", [self._held()], None, reply)

    def nack_job(self, reply: Reply) -> None:
        self.broker.queues.nack("queue", 0, "n", [self._held()], None, 0, reply)

    def extend_job(self, reply: Reply) -> None:
        self.broker.queues.extend("queue", 0, "n", [self._held()], None, 7_200_000, reply)


ALL = [name for name in vars(Operations) if not name.startswith("_") and name not in ("grouped", "group")]


def answered(operation: Callable[[Reply], None], outcomes: list[Any]) -> None:
    """Ask; a refusal at once is an answer as well."""
    try:
        operation(outcomes.append)
    except TopicsError as error:
        outcomes.append(error)


def reserved(under_test: BrokerUnderTest) -> list[Any]:
    """Whatever is kept for commits under way."""
    broker = under_test.broker
    held = [broker.busy, broker.keys_in_flight, broker.committing, broker.aliases_in_flight, broker.archives_in_flight]
    waiting = [broker.committer.commits, broker.committer.waiting]
    partitions = [partition for topic in broker.state.by_id.values() for partition in topic.partitions]
    counts = [(each.pending_records, each.pending_bytes, each.waiting_sync) for each in partitions]
    return [*[each for each in (*held, *waiting) if each], *[each for each in counts if any(each)], *[each for each in [broker.state.creating] if each]]  # fmt: skip


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_the_others_of_a_turn_are_answered_and_the_log_goes_on(
    durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    under_test = BrokerUnderTest()
    for topic in ("a", "b", "c"):
        under_test.configure(topic, durability=durability)
        under_test.append(topic, 0)
    outcomes: list[Any] = []
    write(under_test, "a", outcomes.append)
    write(under_test, "b", broken)
    write(under_test, "c", outcomes.append)
    under_test.runtime.run()
    assert [outcome.first_seq for outcome in outcomes] == [2, 2]
    assert "this reply is broken" in caplog.text
    for topic in ("a", "b", "c"):
        assert under_test.append(topic, 2).first_seq == 3
        assert under_test.datas(topic) == [0, 1, 2]


def test_other_replies_get_the_error_when_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    under_test = BrokerUnderTest()
    under_test.append("a", 0)
    under_test.append("b", 0)
    failing = [errno.ENOSPC]
    under_test.disk.fault = lambda _step, op, _path: failing.pop() if op == "write_at" and failing else None
    outcomes: list[Any] = []
    write(under_test, "a", outcomes.append)
    write(under_test, "b", broken)
    under_test.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["storage_full"]
    assert "this reply is broken" in caplog.text
    assert under_test.append("b", 1).first_seq == 2


@pytest.mark.parametrize("failing", [False, True])
def test_later_writes_of_the_same_group_are_answered_when_an_earlier_reply_raises(failing: bool) -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    if failing:
        under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" else None
    outcomes: list[Any] = []
    write(under_test, "t", broken)
    write(under_test, "t", outcomes.append)
    under_test.runtime.run()
    under_test.disk.fault = None
    assert [isinstance(outcome, TopicsError) for outcome in outcomes] == [failing]
    assert under_test.append("t", 2).first_seq == (2 if failing else 4)


@pytest.mark.parametrize("failing", [False, True])
def test_a_repeated_write_is_answered_when_the_reply_of_the_first_one_raises(failing: bool) -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    if failing:
        under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" else None
    body = b'{"records":[{"data":1}],"idempotency_key":"k"}'
    outcomes: list[Any] = []
    write(under_test, "t", broken, body)
    write(under_test, "t", outcomes.append, body)
    write(under_test, "t", broken, body)
    write(under_test, "t", outcomes.append, body)
    under_test.runtime.run()
    under_test.disk.fault = None
    assert [isinstance(outcome, TopicsError) for outcome in outcomes] == [failing] * 2
    write(under_test, "t", outcomes.append, body)
    under_test.runtime.run()
    assert (outcomes[-1].first_seq, outcomes[-1].deduped) == (2, not failing)


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("name", ALL)
def test_nothing_stays_reserved_when_a_reply_raises(name: str, durability: str, failing: bool) -> None:
    under_test = BrokerUnderTest()
    operations = Operations(under_test, durability)
    operation = getattr(operations, name)
    outcomes: list[Any] = []
    operation(broken)
    if failing:
        under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" else None
    under_test.runtime.run()
    under_test.disk.fault = None
    under_test.wait(20_000)
    assert not reserved(under_test)
    answered(operation, outcomes)
    under_test.runtime.run()
    assert len(outcomes) == 1
    assert not isinstance(outcomes[0], TopicsError), outcomes[0]


def test_a_reply_that_raises_is_given_an_internal_error_so_that_its_client_does_not_wait() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    outcomes: list[Any] = []

    def renders_errors_only(outcome: Any) -> None:
        if not isinstance(outcome, TopicsError):
            raise TypeError("cannot render this")
        outcomes.append(outcome)

    write(under_test, "t", renders_errors_only)
    under_test.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["internal"]


def test_a_watcher_that_raises_does_not_keep_others_from_being_called() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    called: list[int] = []

    def raises() -> None:
        raise RuntimeError("this watcher is broken")

    topic = under_test.broker.topic("t")
    under_test.broker.watch(topic, raises)
    under_test.broker.watch(topic, lambda: called.append(1))
    for _ in range(2):
        under_test.append("t", 1)
    assert called == [1, 1]


def subclasses(kind: type[Commit] = Commit) -> list[type[Commit]]:
    return [each for direct in kind.__subclasses__() for each in (direct, *subclasses(direct))]


@pytest.mark.parametrize("step", ["encode", "written", "apply", "rollback", "reply", "release"])
@pytest.mark.parametrize("name", ALL)
def test_every_request_is_answered_once_whatever_raises_in_a_commit(
    name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of other commits of the turn; and the log goes on."""
    under_test = BrokerUnderTest()
    operations = Operations(under_test, "fsync")
    operations.append(lambda _: None)
    under_test.runtime.run()
    outcomes: list[list[Any]] = [[], [], []]
    raised: list[str] = []
    write(under_test, "other", outcomes[0].append)
    answered(getattr(operations, name), outcomes[1])
    write(under_test, "log", outcomes[2].append)
    submitted = {type(each) for each in under_test.broker.committer.commits}
    if step == "rollback":
        under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" else None
    for kind in submitted:
        method = getattr(kind, step)

        def fails(self: Commit, *arguments: Any, kind: type[Commit] = kind, right: Any = method) -> Any:
            if step in ("reply", "release"):
                # Steps of ours that never raise half-way: at most when they are done.
                right(self, *arguments)
            if kind.__name__ not in raised:
                raised.append(kind.__name__)
                raise RuntimeError(f"{kind.__name__}.{step} is broken")
            return None if step in ("reply", "release") else right(self, *arguments)

        monkeypatch.setattr(kind, step, fails)
    under_test.runtime.run()
    under_test.disk.fault = None
    monkeypatch.undo()
    under_test.wait(100)
    assert [len(each) for each in outcomes] == [1, 1, 1]
    assert raised
    assert not under_test.broker.committer.commits
    assert not under_test.broker.committer.waiting
    assert not under_test.broker.committer.read_only
    under_test.append("source", 1)
    assert under_test.after_kill().datas("source")[-1] == 1


def test_what_cannot_be_encoded_fails_its_write_and_nothing_of_it_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_test = BrokerUnderTest()
    for topic in ("a", "b"):
        under_test.append(topic, 0)
    outcomes: list[Any] = []
    write(under_test, "a", outcomes.append)
    write(under_test, "b", outcomes.append, b'{"records":[{"data":1}],"idempotency_key":"k"}')
    right = topics.broker.topics.append.encode_append

    def fails(lsn: int, synced: int, topic_id: int, partition: int, page: Any, key: bytes | None) -> bytes:
        if key is not None:
            raise MemoryError
        return right(lsn, synced, topic_id, partition, page, key)

    monkeypatch.setattr(topics.broker.topics.append, "encode_append", fails)
    under_test.runtime.run()
    monkeypatch.undo()
    assert [outcome.code for outcome in outcomes] == ["internal", "internal"]
    assert not reserved(under_test)
    assert [under_test.append(topic, 2).first_seq for topic in ("a", "b")] == [2, 2]
    assert [under_test.after_kill().datas(topic) for topic in ("a", "b")] == [[0, 2], [0, 2]]


def test_a_note_that_cannot_be_encoded_does_not_stop_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=2)
    under_test.append("t", 0, 1)
    monkeypatch.setattr(topics.broker.log.commit, "frame_of", lambda *_: 1 / 0)
    # The note of the eviction is written in a later turn than the record.
    under_test.append("t", 2)
    monkeypatch.undo()
    assert under_test.append("t", 3).first_seq == 4
    assert under_test.after_kill().datas("t") == [2, 3]
