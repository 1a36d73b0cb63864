"""What a live reader is frames, in which order, and when it is frames that something is missing."""

import errno
import json

import pytest

from topics.broker.topics.feed import Feed
from topics.broker.topics.read import ReadRequest, read
from topics.broker.transactions.stages import commit
from topics.engine.partitions.reading import plan_read
from topics.engine.partitions.render import View
from topics.engine.topics.live_frames import CaughtUp, GapFrame, Gone, LiveFrame, Records, Subscription
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.facts import Lost as LostFact
from topics.model.records.batch import decode_batch, node_text
from topics.model.records.match import TagMatch
from topics.testing.broker import BrokerBench

STRONG = Subscription(eager=False)


@pytest.fixture
def bench() -> BrokerBench:
    return BrokerBench()


class Reader:
    """A feed that is frames everything at once."""

    def __init__(self, bench: BrokerBench, **cursors: int) -> None:
        self.bench = bench
        self.news = 0
        self.feed = Feed(bench.broker)
        for name, cursor in cursors.items():
            self.add(name, cursor)

    def add(self, name: str, cursor: int = 0, subscription: Subscription | None = None) -> None:
        self.feed.add(self.bench.broker.topic(name), cursor, subscription or Subscription())

    def open(self) -> "Reader":
        self.feed.open(self._hear)
        return self

    def frames(self) -> list[object]:
        """Everything there is to tell now, in short."""
        frames = []
        while (frame := self.feed.next()) is not None:
            frames.append(short(frame))
        return frames

    def _hear(self) -> None:
        self.news += 1


def short(frame: LiveFrame) -> object:
    name = frame.topic.name
    match frame:
        case Records():
            records = json.loads(b"[%b]" % frame.records)
            seqs = [record["$seq"] for record in records]
            assert all([frame.from_seq < seq <= frame.to_seq <= frame.head_seq for seq in seqs])
            return name, seqs
        case GapFrame():
            return name, frame.tombstone.reason, frame.tombstone.gap_from, frame.tombstone.gap_to
        case CaughtUp():
            return name, "caught up", frame.head_seq
        case Gone():
            return name, "gone", frame.head_seq
    raise AssertionError(frame)


def test_a_reader_gets_the_backlog_then_caught_up_then_what_is_new_without_further_words(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2")
    reader = Reader(bench, a=0).open()
    assert reader.frames() == [("a", [1, 2]), ("a", "caught up", 2)]
    bench.append("a", b"3")
    assert reader.news == 1
    assert reader.frames() == [("a", [3])]
    assert reader.frames() == []


def test_an_empty_topic_is_caught_up_at_once(bench: BrokerBench) -> None:
    bench.configure("a")
    assert Reader(bench, a=0).open().frames() == [("a", "caught up", 0)]


def test_a_backlog_comes_in_frames_of_the_limit_and_caught_up_comes_again_after_each(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", b"3")
    reader = Reader(bench)
    reader.add("a", 0, Subscription(limit=2))
    reader.open()
    assert reader.frames() == [("a", [1, 2]), ("a", [3]), ("a", "caught up", 3)]
    bench.append("a", b"4", b"5", b"6")
    assert reader.frames() == [("a", [4, 5]), ("a", [6]), ("a", "caught up", 6)]
    bench.append("a", b"7", b"8")
    assert reader.frames() == [("a", [7, 8])]


def test_a_frame_holds_at_least_one_record_however_small_the_budget(bench: BrokerBench) -> None:
    bench.append("a", b'"%b"' % (b"x" * 500), b'"%b"' % (b"y" * 500))
    reader = Reader(bench)
    reader.add("a", 0, Subscription(budget=10))
    assert reader.open().frames() == [("a", [1]), ("a", [2]), ("a", "caught up", 2)]


def test_what_was_written_while_the_reader_could_take_nothing_comes_in_one_frame(bench: BrokerBench) -> None:
    bench.configure("a")
    reader = Reader(bench, a=0).open()
    reader.frames()
    for _ in range(100):
        bench.append("a", b"0")
    assert reader.frames() == [("a", list(range(1, 101)))]


def test_topics_take_turns_frame_by_frame(bench: BrokerBench) -> None:
    for name in ("a", "b"):
        bench.append(name, b"1", b"2")
    reader = Reader(bench)
    for name in ("a", "b"):
        reader.add(name, 0, Subscription(limit=1))
    frames = reader.open().frames()
    assert frames[:4] == [("a", [1]), ("b", [1]), ("a", [2]), ("b", [2])]
    assert sorted(frames[4:]) == [("a", "caught up", 2), ("b", "caught up", 2)]


def test_a_reader_gets_no_records_of_its_own_node_and_is_caught_up_all_the_same(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", node="me")
    view = View(without_nodes=frozenset([node_text("me")]))
    reader = Reader(bench)
    reader.add("a", 0, Subscription(view))
    assert reader.open().frames() == [("a", "caught up", 2)]
    bench.append("a", b"3", node="me")
    assert reader.frames() == []
    bench.append("a", b"4", node="you")
    assert reader.frames() == [("a", [4])]
    assert reader.feed.places["a"].cursor == 4


def test_topic_without_dedupe_node_delivers_all_records(bench: BrokerBench) -> None:
    bench.configure("a", dedupe_node=False)
    bench.append("a", b"1", node="me")
    reader = Reader(bench)
    reader.add("a", 0, Subscription(View(without_nodes=frozenset([node_text("me")]))))
    assert reader.open().frames() == [("a", [1]), ("a", "caught up", 1)]


def test_records_deleted_on_purpose_leave_no_trace(bench: BrokerBench) -> None:
    bench.append("a", b"1", tag="x")
    bench.append("a", b"2", tag="y")
    bench.append("a", b"3", tag="x")
    reader = Reader(bench, a=0).open()
    bench.delete_records("a", tag="x")
    assert reader.frames() == [("a", [2]), ("a", "caught up", 3)]


def test_late_reader_gets_a_tombstone_and_continues_after_the_gap(bench: BrokerBench) -> None:
    bench.configure("a", cap_records=2)
    for _ in range(5):
        bench.append("a", b"0")
    reader = Reader(bench, a=0).open()
    assert reader.frames() == [("a", "from_seq_too_old", 1, 3), ("a", [4, 5]), ("a", "caught up", 5)]


def test_live_reader_behind_the_floor_gets_a_tombstone_with_the_reason(bench: BrokerBench) -> None:
    bench.configure("a", cap_records=2)
    reader = Reader(bench, a=0).open()
    reader.frames()
    for _ in range(5):
        bench.append("a", b"0")
    assert reader.frames() == [("a", "cap", 1, 3), ("a", [4, 5]), ("a", "caught up", 5)]


def test_stalled_reader_gets_a_tombstone_from_seq_too_old(bench: BrokerBench) -> None:
    bench.configure("a", cap_records=2)
    bench.append("a", b"0")
    reader = Reader(bench, a=0).open()
    reader.frames()
    for _ in range(5):
        bench.append("a", b"0")
    reader.feed.stalled()
    assert reader.frames() == [("a", "from_seq_too_old", 2, 4), ("a", [5, 6]), ("a", "caught up", 6)]


def test_a_reader_that_was_stuck_on_a_topic_without_limits_misses_nothing(bench: BrokerBench) -> None:
    bench.append("a", b"0")
    reader = Reader(bench, a=0).open()
    reader.frames()
    for _ in range(5):
        bench.append("a", b"0")
    reader.feed.stalled()
    assert reader.frames() == [("a", [2, 3, 4, 5, 6])]


def test_expiry_is_reported_as_ttl_without_a_write(bench: BrokerBench) -> None:
    bench.configure("a", ttl_ms=1000)
    reader = Reader(bench, a=0).open()
    reader.frames()
    bench.append("a", b"1", b"2")
    bench.clock.advance(1001)
    assert reader.frames() == [("a", "ttl", 1, 2), ("a", "caught up", 2)]


def test_cursor_beyond_the_head_gets_a_tombstone_recreated(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=50).open()
    assert reader.frames() == [("a", "recreated", 0, 0), ("a", [1]), ("a", "caught up", 1)]


def test_topic_deleted_while_watched_is_reported_once_and_a_new_topic_of_that_name_is_not(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2")
    bench.append("b", b"1")
    reader = Reader(bench, a=0, b=0).open()
    reader.frames()
    news = reader.news
    bench.delete_topic("a")
    assert reader.news == news + 1
    assert reader.frames() == [("a", "gone", 2)]
    bench.append("a", b"9")
    bench.append("b", b"2")
    assert reader.frames() == [("b", [2])]


def test_topic_deleted_while_the_feed_is_closed_is_reported_when_it_opens(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.frames()
    reader.feed.close()
    bench.delete_topic("a")
    assert reader.open().frames() == [("a", "gone", 1)]
    reader.feed.close()
    assert reader.open().frames() == []


def test_topic_created_again_while_the_feed_is_closed_continues_after_a_tombstone(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2")
    reader = Reader(bench, a=0).open()
    reader.frames()
    reader.feed.close()
    bench.delete_topic("a")
    bench.append("a", b"1", b"2", b"3")
    assert reader.open().frames() == [("a", "recreated", 0, 0), ("a", [1, 2, 3]), ("a", "caught up", 3)]


def test_a_closed_feed_keeps_its_places_and_costs_no_wake(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.frames()
    reader.feed.close()
    news = reader.news
    bench.append("a", b"2")
    assert reader.news == news
    assert not bench.broker.watchers
    assert reader.open().frames() == [("a", [2]), ("a", "caught up", 2)]


def test_rewinding_goes_back_and_never_forward(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", b"3")
    reader = Reader(bench, a=2).open()
    reader.frames()
    reader.feed.close()
    reader.feed.rewind({"a": 1, "unknown": 0}, 0)
    assert reader.open().frames() == [("a", [2, 3]), ("a", "caught up", 3)]
    reader.feed.close()
    reader.feed.rewind({"a": 100}, 0)
    assert reader.open().frames() == [("a", "caught up", 3)]


def test_deletion_of_a_topic_is_delivered_again_to_a_reader_that_missed_it(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.frames()
    bench.delete_topic("a")
    assert reader.frames() == [("a", "gone", 1)]
    reader.feed.close()
    bench.append("a", b"9")
    reader.feed.rewind({"a": 1}, 0)
    assert reader.open().frames() == [("a", "gone", 1)]


def test_tombstone_recreated_is_delivered_again_to_a_reader_that_missed_it(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", b"3")
    reader = Reader(bench, a=0).open()
    reader.frames()
    reader.feed.close()
    bench.delete_topic("a")
    bench.append("a", b"1", b"2", b"3", b"4", b"5")
    frames = [("a", "recreated", 0, 0), ("a", [1, 2, 3, 4, 5]), ("a", "caught up", 5)]
    assert reader.open().frames() == frames
    reader.feed.close()
    reader.feed.rewind({"a": 3}, 0)
    assert reader.open().frames() == frames
    reader.feed.close()
    reader.feed.rewind({"a": 3}, 1)
    assert reader.open().frames() == [("a", [4, 5]), ("a", "caught up", 5)]


def test_readers_at_the_same_place_with_the_same_wishes_get_the_same_frame(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    one, two, other = Reader(bench, a=0), Reader(bench, a=0), Reader(bench)
    other.add("a", 0, Subscription(View(tags=True)))
    first = one.open().feed.next()
    assert two.open().feed.next() is first
    assert other.open().feed.next() is not first


def test_a_frame_is_not_shared_across_a_delete(bench: BrokerBench) -> None:
    bench.append("a", b"1", tag="x")
    bench.append("a", b"2", tag="y")
    assert Reader(bench, a=0).open().frames()[0] == ("a", [1, 2])
    bench.delete_records("a", tag="x")
    assert Reader(bench, a=0).open().frames()[0] == ("a", [2])


# Strong and eventual


def written_but_not_synced(bench: BrokerBench, name: str, *datas: bytes) -> list[object]:
    """The log has the write; its sync has not come yet."""
    bodies = b",".join([b'{"data":%b}' % data for data in datas])
    outcome = bench.submit(name, b'{"records":[%b]}' % bodies)
    bench.runtime.turn()
    assert bench.runtime.waiting_aside == 1
    assert outcome == []
    return outcome


def test_an_eventual_reader_gets_what_the_log_has_before_it_is_synced_and_a_strong_one_after(
    bench: BrokerBench,
) -> None:
    bench.configure("a", durability="fsync")
    eventual, strong = Reader(bench, a=0), Reader(bench)
    strong.add("a", 0, STRONG)
    for reader in (eventual, strong):
        assert reader.open().frames() == [("a", "caught up", 0)]
    outcome = written_but_not_synced(bench, "a", b"1", b"2")
    assert eventual.frames() == [("a", [1, 2])]
    assert strong.frames() == []
    bench.runtime.run()
    assert len(outcome) == 1
    assert eventual.frames() == []
    assert strong.frames() == [("a", [1, 2])]


def test_unsynced_records_keep_to_limit_budget_and_view(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    limited, small, filtered = Reader(bench), Reader(bench), Reader(bench)
    limited.add("a", 0, Subscription(limit=2))
    small.add("a", 0, Subscription(budget=1))
    filtered.add("a", 0, Subscription(View(without_nodes=frozenset([node_text("me")]))))
    for reader in (limited, small, filtered):
        reader.open().frames()
    bench.submit("a", b'{"records":[{"data":1,"node":"me"},{"data":2},{"data":3,"node":"me"}]}')
    bench.runtime.turn()
    assert limited.frames() == [("a", [1, 2]), ("a", [3]), ("a", "caught up", 3)]
    assert small.frames() == [("a", [1]), ("a", [2]), ("a", [3]), ("a", "caught up", 3)]
    assert filtered.frames() == [("a", [2])]
    assert filtered.feed.places["a"].cursor == 3


def test_tombstone_recreated_precedes_unsynced_records(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    reader = Reader(bench, a=0).open()
    reader.frames()
    reader.feed.close()
    bench.delete_topic("a")
    bench.configure("a", durability="fsync")
    written_but_not_synced(bench, "a", b"1")
    assert reader.open().frames() == [("a", "recreated", 0, 0), ("a", [1]), ("a", "caught up", 1)]


def test_cursor_of_unsynced_records_is_accepted_by_every_read(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.frames()
    written_but_not_synced(bench, "a", b"2", b"3")
    assert reader.frames() == [("a", [2, 3])]
    for cursor in (2, 3):
        answer = read(bench.broker, ReadRequest("a", cursor, 10, 1000, View()))
        assert (answer.nothing, answer.read.next_from_seq, answer.read.tombstone) == (True, cursor, None)
        plan = plan_read(bench.broker.topic("a").partitions[0], cursor, 10, 1000)
        assert (plan.runs, plan.next_from_seq, plan.tombstone) == ([], cursor, None)
    strong = Reader(bench)
    strong.add("a", 3, STRONG)
    assert strong.open().frames() == [("a", "caught up", 1)]
    bench.runtime.run()
    assert strong.frames() == []
    bench.append("a", b"4")
    assert strong.frames() == [("a", [4])]
    assert read(bench.broker, ReadRequest("a", 5, 10, 1000, View())).read.tombstone is not None


@pytest.mark.parametrize("producer", ["p", None])
def test_no_record_is_delivered_before_those_of_an_earlier_commit(bench: BrokerBench, producer: str | None) -> None:
    bench.configure("a", durability="disk" if producer else "fsync")
    bench.append("a", b"1")
    eventual, strong = Reader(bench, a=0), Reader(bench)
    strong.add("a", 0, STRONG)
    for reader in (eventual, strong):
        reader.open().frames()
    batch = decode_batch(b'{"records":[{"data":2},{"data":3}]}', bench.limits)
    committed: list[object] = []
    commit(bench.broker, CommitRequest([], [Write("a", batch)], producer, 1 if producer else 0), committed.append)
    written = bench.submit("a", b'{"records":[{"data":4}]}')
    bench.runtime.turn()
    assert (committed, written) == ([], [])
    frames = eventual.frames()
    bench.runtime.run()
    assert (len(committed), len(written)) == (1, 1)
    frames += eventual.frames()
    assert [seq for _, seqs in frames for seq in seqs] == [2, 3, 4]  # type: ignore[misc]
    assert strong.frames() == [("a", [2, 3, 4])]


def test_no_record_is_delivered_before_an_earlier_gap(bench: BrokerBench) -> None:
    """A router tells its dest what it came too late for, and the sync of that is waited for."""
    topic = bench.configure("a", durability="fsync")
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.frames()
    partition = topic.partitions[0]
    hole = LostFact(topic.id, 0, 2, 3, 1)
    partition.next_seq = 4
    written_but_not_synced(bench, "a", b"4")
    assert reader.frames() == []
    partition.apply_lost(hole)
    bench.runtime.run()
    gap, records, _ = reader.frames()
    assert gap[2:] == (2, 3)  # type: ignore[index]
    assert records == ("a", [4])


def test_a_frame_is_not_shared_across_a_sync_and_a_delete(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    bench.append("a", b"1", tag="x")
    bench.append("a", b"2", tag="y")
    bench.append("b", b"0")
    deleted: list[object] = []
    bench.submit("a", b'{"records":[{"data":3}]}')
    bench.broker.delete_records("a", None, TagMatch("x", False), 0, deleted.append)
    bench.runtime.turn()
    sync, done = bench.runtime.take_thread_work()
    covered = sync()
    # Written by the way, with that of another topic, before it is known that the others are synced.
    bench.submit("a", b'{"records":[{"data":4}]}')
    bench.submit("b", b'{"records":[{"data":1}]}')
    bench.runtime.turn()
    first = Reader(bench, a=0).open()
    assert first.frames()[:2] == [("a", [1, 2]), ("a", [3, 4])]
    done(covered, None)
    assert (len(deleted), bench.broker.topic("a").partitions[0].head_seq) == (1, 3)
    assert Reader(bench, a=0).open().frames()[:2] == [("a", [2, 3]), ("a", [4])]


def test_a_sync_that_fails_leaves_strong_readers_without_the_record(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    strong, eventual = Reader(bench), Reader(bench, a=0)
    strong.add("a", 0, STRONG)
    for reader in (strong, eventual):
        reader.open().frames()
    outcome = written_but_not_synced(bench, "a", b"1")
    assert eventual.frames() == [("a", [1])]
    bench.disk.fault = lambda step, op, path: errno.EIO if op == "sync_data" else None
    bench.runtime.run()
    assert len(outcome) == 1
    assert strong.frames() == []
    assert eventual.frames() == []
    assert bench.broker.topic("a").partitions[0].unsynced == []
