"""The fast path has the effect of the normal one, and is not taken when there is anything else to decide."""

import errno
import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from topics.broker.topics.fast_append import FastAppend
from topics.model.config import DEFAULT_CONFIG, ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch, decode_singles
from topics.storage.log.wal import HEADER_BYTES
from topics.testing.broker import BrokerBench

PLAIN = b'{"records":[{"data":%d}]}'
FULL = b'{"records":[{"data":%d,"tag":"t%d","meta":{"n":%d}}],"node":"web"}'
KEYED = b'{"records":[{"data":%d}],"idempotency_key":"k%d"}'


class PendingWrites:
    """Pending single-record writes to one topic."""

    def __init__(self, under_test: BrokerUnderTest, topic: str = "t", body: bytes = PLAIN) -> None:
        self.under_test = under_test
        self.body = body
        self.topic = topic
        self.fast_append = FastAppend(under_test.broker, topic)
        self.replies: list[tuple[int, list[int]]] = []
        self.timings: list[bytes] = []
        self.errors: list[TopicsError] = []

    def ride(self, *numbers: int) -> bool:
        """Whether they were taken."""
        return self.fast_append.write(self._batch(numbers), list(numbers), self.answer)

    def walk(self, *numbers: int) -> None:
        assert self.under_test.broker.join(self.topic, self._batch(numbers), list(numbers), self.answer)
        self.under_test.runtime.turn()

    def _batch(self, numbers: Sequence[int]) -> Any:
        return decode_singles([self.body.replace(b"%d", b"%d" % number) for number in numbers], self.under_test.limits)

    def answer(self, name: bytes, head_seq: int, timing: bytes, runs: Any, error: TopicsError | None) -> None:
        topic = self.under_test.broker.topic(self.topic)
        assert (name, head_seq) == (topic.name_bytes, topic.partitions[0].head_seq)
        if error is not None:
            self.errors.append(error)
            return
        self.timings.append(timing)
        self.replies += [(first_seq, list(asked)) for first_seq, asked in runs]


def broker_with_topic(**fields: Any) -> BrokerUnderTest:
    under_test = BrokerUnderTest()
    under_test.configure("t", **fields)
    under_test.append("t", 0)
    return under_test


def written(under_test: BrokerUnderTest) -> list[bytes]:
    """The frames in the log."""
    names = [f"wal/shard-00/{name}" for name in under_test.disk.list("wal/shard-00")]
    return [under_test.disk.open(name).read_at(HEADER_BYTES, 1 << 20) for name in sorted(names)]


def state(under_test: BrokerUnderTest) -> list[Any]:
    committer = under_test.broker.committer
    partition = under_test.broker.topic("t").partitions[0]
    return [
        (
            committer.next_lsn,
            committer.frames_total,
            committer.unsynced_records,
            committer.wal.last_lsn,
            under_test.broker.counts.appends,
        ),
        (partition.next_seq, partition.head_seq, partition.last_ts, partition.count, partition.bytes),
        (partition.pending_records, partition.pending_bytes, under_test.broker.topic("t").last_write_ts),
    ]


@pytest.mark.parametrize("body", [PLAIN, FULL, KEYED], ids=["plain", "full", "keyed"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"durability": "memory"}, {"type": "queue"}, {"cap_records": 4}, {"cap_bytes": 500}, {"ttl_ms": 8}],
    ids=str,
)
def test_log_replies_and_state_are_those_of_the_normal_path(fields: dict[str, Any], body: bytes) -> None:
    short, usual = broker_with_topic(**fields), broker_with_topic(**fields)
    for numbers in [(1, 2, 3), (4, 5), tuple(range(6, 80))]:
        for under_test in (short, usual):
            under_test.runtime.clock.advance(5)
        riders, walkers = PendingWrites(short, body=body), PendingWrites(usual, body=body)
        assert riders.ride(*numbers)
        walkers.walk(*numbers)
        assert riders.replies == walkers.replies
        for under_test in (short, usual):
            # Evictions are logged in the next turn.
            under_test.runtime.turn()
        assert state(short) == state(usual)
        assert [key for key, _ in short.broker.topic("t").dedupe.all()] == [
            key for key, _ in usual.broker.topic("t").dedupe.all()
        ]
        assert short.read("t") == usual.read("t")
        assert written(short) == written(usual)
    assert short.after_kill().read("t") == short.read("t")


def test_repeated_key_takes_the_normal_path() -> None:
    under_test = broker_with_topic()
    riders = PendingWrites(under_test, body=KEYED)
    assert riders.ride(1, 2)
    assert not riders.ride(3, 1)
    assert not riders.ride(4, 4)
    assert riders.ride(5, 6)


def test_keys_survive_a_kill() -> None:
    under_test = broker_with_topic()
    assert PendingWrites(under_test, body=KEYED).ride(1, 2, 3)
    recovered = under_test.after_kill()
    assert [(key, kept.first_seq, kept.count) for key, kept in recovered.broker.topic("t").dedupe.all()] == [
        ("k1", 2, 1),
        ("k2", 3, 1),
        ("k3", 4, 1),
    ]


def test_queued_evictions_are_written_before_the_next_records() -> None:
    under_test = broker_with_topic(cap_records=2)
    riders = PendingWrites(under_test)
    assert riders.ride(1, 2)
    assert riders.ride(3, 4)
    assert under_test.after_kill().datas("t", 0) == [3, 4]


def test_watchers_are_woken() -> None:
    under_test = broker_with_topic()
    looks: list[int] = []
    topic = under_test.broker.topic("t")
    under_test.broker.watch(topic, lambda: looks.append(topic.partitions[0].head_seq))
    assert PendingWrites(under_test).ride(1, 2)
    under_test.runtime.turn()
    assert looks == [3]


def test_segments_are_sealed_as_usual() -> None:
    under_test = broker_with_topic()
    riders = PendingWrites(under_test)
    for number in range(0, 400, 4):
        assert riders.ride(number, number + 1, number + 2, number + 3)
        under_test.runtime.run()
    assert under_test.broker.sealer.seals_total
    assert under_test.datas("t", 1) == list(range(400))


def test_the_log_is_synced_in_the_background() -> None:
    under_test = broker_with_topic()
    under_test.wait(1000)
    assert PendingWrites(under_test).ride(1, 2)
    under_test.wait(1000)
    assert under_test.after_power_cut().datas("t") == [0, 1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"durability": "fsync"},
        {"durability": "ephemeral"},
        {"cap_records": 100, "discard": "reject"},
        {"cap_bytes": 100_000, "discard": "reject"},
    ],
    ids=str,
)
def test_topics_with_something_to_decide_take_the_normal_path(fields: dict[str, Any]) -> None:
    under_test = broker_with_topic(**fields)
    assert_not_taken(under_test, PendingWrites(under_test))


def test_a_configuration_that_changes_is_noticed() -> None:
    under_test = broker_with_topic()
    riders = PendingWrites(under_test)
    assert riders.ride(1, 2)
    under_test.configure("t", durability="fsync")
    assert_not_taken(under_test, riders)
    under_test.configure("t", durability="disk")
    assert riders.ride(3, 4)


def test_a_topic_that_is_deleted_is_not_held() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    riders = PendingWrites(under_test)
    riders.walk(0)
    under_test.runtime.run()
    assert riders.ride(1, 2)
    topic = weakref.ref(under_test.broker.topic("t"))
    under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
    under_test.runtime.run()
    gc.collect()
    assert topic() is None
    assert not riders.ride(3, 4)


def test_a_quota_of_the_server_is_left_to_the_usual_way() -> None:
    under_test = BrokerUnderTest(limits=Limits(max_total_bytes=1 << 20))
    under_test.append("t", 0)
    assert_not_taken(under_test, PendingWrites(under_test))


def test_the_very_first_record_is_left_to_the_usual_way_which_syncs_it() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    assert_not_taken(under_test, PendingWrites(under_test))


def test_a_topic_that_is_not_there_is_left_to_the_usual_way() -> None:
    assert not PendingWrites(BrokerUnderTest()).ride(1, 2)


def test_nothing_is_taken_before_what_was_decided_earlier() -> None:
    under_test = broker_with_topic()
    under_test.broker.append("t", decode_batch(b'{"records":[{"data":1}]}', under_test.limits), lambda outcome: None)
    assert_not_taken(under_test, PendingWrites(under_test))
    under_test.runtime.run()
    # Also if it is about another topic of the same log.
    under_test.append("other", 0)
    under_test.broker.append(
        "other", decode_batch(b'{"records":[{"data":1}]}', under_test.limits), lambda outcome: None
    )
    assert_not_taken(under_test, PendingWrites(under_test))


def test_nothing_overtakes_what_waits_for_a_sync() -> None:
    under_test = broker_with_topic(durability="fsync")
    under_test.broker.append("t", decode_batch(b'{"records":[{"data":1}]}', under_test.limits), lambda outcome: None)
    under_test.runtime.turn()
    partition = under_test.broker.topic("t").partitions[0]
    assert partition.waiting_sync == 1
    # The class it was written under has been another one.
    topic = under_test.broker.topic("t")
    topic.config = msgspec.structs.replace(topic.config, durability="disk")
    assert_not_taken(under_test, PendingWrites(under_test))
    # What waits need not be a write.
    under_test.runtime.run()
    partition.waiting_sync = 1
    assert_not_taken(under_test, PendingWrites(under_test))


def test_nothing_overtakes_seqs_that_were_handed_out() -> None:
    under_test = broker_with_topic()
    # As by a commit over several topics that waits for its sync.
    under_test.broker.topic("t").partitions[0].next_seq += 2
    assert_not_taken(under_test, PendingWrites(under_test))


def test_no_more_is_readable_without_a_sync_than_the_margin_allows() -> None:
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SMALL, margin=8))
    under_test.append("t", 0)
    riders = PendingWrites(under_test)
    taken = 0
    while riders.ride(taken, taken + 1):
        taken += 2
        assert under_test.broker.committer.unsynced_records <= 8
    assert taken
    under_test.runtime.run()
    assert riders.ride(1, 2), "the sync has made room"


def test_a_log_that_takes_nothing_is_left_to_the_usual_way_which_tells_why() -> None:
    under_test = broker_with_topic()
    under_test.broker.committer.wal.failed = True
    riders = PendingWrites(under_test)
    assert_not_taken(under_test, riders)
    riders.walk(1, 2)
    assert [error.code for error in riders.errors] == ["read_only"]


def test_a_write_that_fails_leaves_nothing_and_the_usual_way_tells_why() -> None:
    under_test = broker_with_topic()
    under_test.disk.fault = lambda _step, op, _path: errno.ENOSPC if op == "write_at" else None
    riders = PendingWrites(under_test)
    assert_not_taken(under_test, riders)
    riders.walk(1, 2)
    assert [error.code for error in riders.errors] == ["storage_full"]
    under_test.disk.fault = None
    assert riders.ride(3, 4)
    assert under_test.datas("t") == [0, 3, 4]
    assert under_test.after_kill().datas("t") == [0, 3, 4]


def test_notes_that_could_not_be_written_come_first() -> None:
    under_test = broker_with_topic()
    under_test.append("capped", 0, config={"cap_records": 1})
    writes = iter(range(100))
    under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" and next(writes) == 1 else None
    under_test.append("capped", 1)
    under_test.disk.fault = None
    assert under_test.broker.committer.unwritten_notes
    assert_not_taken(under_test, PendingWrites(under_test))


def test_write_inside_a_reply_does_not_overtake_queued_writes() -> None:
    under_test = broker_with_topic()
    under_test.append("first", 0)
    under_test.append("second", 0)
    riders = PendingWrites(under_test)
    taken: list[bool] = []
    again: Callable[[Any], None] = lambda _outcome: taken.append(riders.ride(1, 2))  # noqa: E731
    for name in ("first", "second"):
        under_test.broker.append(name, decode_batch(b'{"records":[{"data":1}]}', under_test.limits), again)
    under_test.runtime.run()
    assert taken == [False, False]
    assert riders.ride(1, 2)


def test_what_comes_while_riders_are_answered_is_written_behind_them() -> None:
    under_test = broker_with_topic()
    riders = PendingWrites(under_test)
    order: list[str] = []
    answer = riders.answer

    def answered(*replies: Any) -> None:
        under_test.broker.append(
            "t",
            decode_batch(b'{"records":[{"data":9}]}', under_test.limits),
            lambda outcome: order.append(str(outcome.first_seq)),
        )
        under_test.broker.committer.flush()
        order.append("riders")
        answer(*replies)

    riders.answer = answered  # type: ignore[method-assign]
    assert riders.ride(1, 2)
    under_test.runtime.run()
    assert order == ["riders", "4"]
    assert under_test.datas("t") == [0, 1, 2, 9]


def test_a_topic_that_is_being_changed_is_left_to_the_usual_way() -> None:
    under_test = broker_with_topic()
    under_test.broker.configure("t", ConfigChange(ttl_ms=1000), lambda outcome: None)
    under_test.runtime.turn()
    assert_not_taken(under_test, PendingWrites(under_test))
    under_test.runtime.run()


def test_a_topic_made_again_is_another_one() -> None:
    under_test = BrokerUnderTest()
    riders = PendingWrites(under_test)
    for _ in range(3):
        under_test.append("t", 0)
        topic = under_test.broker.topic("t")
        topic.config = DEFAULT_CONFIG
        before = under_test.broker.committer.wal.last_lsn
        assert riders.ride(1, 2)
        assert under_test.broker.committer.wal.last_lsn > before
        under_test.runtime.run()
        assert under_test.after_kill().datas("t") == [0, 1, 2]
        under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
        assert not riders.ride(3, 4)


def test_times_do_not_run_backwards() -> None:
    under_test = broker_with_topic()
    partition = under_test.broker.topic("t").partitions[0]
    later = partition.last_ts = under_test.runtime.now_ms() + 5000
    assert PendingWrites(under_test).ride(1, 2)
    assert [record["$ts"] for record in under_test.read("t", 1)] == [later] * 2


def test_records_wait_when_memory_is_full_of_what_is_being_sealed() -> None:
    under_test = broker_with_topic()
    under_test.broker.sealer.full = True
    assert_not_taken(under_test, PendingWrites(under_test))


def test_reply_that_raises_does_not_affect_other_writes() -> None:
    under_test = broker_with_topic()
    riders = PendingWrites(under_test)

    def fails(*_replies: Any) -> None:
        raise RuntimeError("a bug of ours")

    riders.answer = fails  # type: ignore[method-assign]
    assert riders.ride(1, 2)
    under_test.append("t", 3)
    assert under_test.datas("t") == [0, 1, 2, 3]
    assert not under_test.broker.committer.notifying


def assert_not_taken(under_test: BrokerUnderTest, riders: PendingWrites) -> None:
    before = state(under_test), written(under_test), list(riders.replies)
    assert not riders.ride(100, 101)
    assert (state(under_test), written(under_test), riders.replies) == before
    assert not riders.errors


def bench_with_a_record() -> BrokerBench:
    bench = BrokerBench()
    bench.configure("t", durability="disk")
    bench.append("t", b"0")
    return bench


def test_requests_are_answered_with_an_error_when_their_records_cannot_be_applied() -> None:
    bench = bench_with_a_record()

    def raises(*_: Any, **__: Any) -> None:
        raise MemoryError("planted")

    bench.broker.state.append = raises  # type: ignore[method-assign]
    replies: list[Any] = []
    batch = decode_singles([b'{"records":[{"data":1}]}'], bench.limits)
    assert FastAppend(bench.broker, "t").write(batch, ["request"], lambda *reply: replies.append(reply))
    ((_name, _head, _timing, runs, error),) = replies
    assert runs == ((2, ["request"]),)
    assert error is not None
    assert error.code == "internal"


def test_exception_of_the_log_leaves_no_seq_reserved_and_nothing_more_is_written() -> None:
    bench = bench_with_a_record()

    def raises(*_: Any) -> None:
        raise ValueError("planted")

    bench.broker.committer.wal.write = raises  # type: ignore[method-assign]
    batch = decode_singles([b'{"records":[{"data":1}]}'], bench.limits)
    with pytest.raises(ValueError, match="planted"):
        FastAppend(bench.broker, "t").write(batch, ["request"], lambda *_: None)
    partition = bench.broker.topic("t").partitions[0]
    assert partition.next_seq == partition.head_seq + 1
    assert bench.broker.committer.wal.failed
