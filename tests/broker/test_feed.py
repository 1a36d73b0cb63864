"""What a live reader is told, in which order, and when it is told that something is missing."""

import errno
import json

import pytest

from topics.broker.feed import CaughtUp, Feed, Frame, Gone, Lost, Records, Subscription
from topics.broker.reading import ReadRequest, read
from topics.broker.stages import CommitRequest, Write, commit
from topics.engine.render import View
from topics.model.batch import decode_batch, node_text
from topics.model.facts import Lost as LostFact
from topics.model.match import TagMatch
from topics.testing.broker import BrokerBench

STRONG = Subscription(eager=False)


@pytest.fixture
def bench() -> BrokerBench:
    return BrokerBench()


class Reader:
    """A feed that is told everything at once."""

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

    def told(self) -> list[object]:
        """Everything there is to tell now, in short."""
        frames = []
        while (frame := self.feed.next()) is not None:
            frames.append(short(frame))
        return frames

    def _hear(self) -> None:
        self.news += 1


def short(frame: Frame) -> object:
    name = frame.topic.name
    match frame:
        case Records():
            records = json.loads(b"[%b]" % frame.records)
            seqs = [record["$seq"] for record in records]
            assert all([frame.from_seq < seq <= frame.to_seq <= frame.head_seq for seq in seqs])
            return name, seqs
        case Lost():
            return name, frame.tombstone.reason, frame.tombstone.gap_from, frame.tombstone.gap_to
        case CaughtUp():
            return name, "caught up", frame.head_seq
        case Gone():
            return name, "gone", frame.head_seq
    raise AssertionError(frame)


def test_a_reader_gets_the_backlog_then_caught_up_then_what_is_new_without_further_words(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2")
    reader = Reader(bench, a=0).open()
    assert reader.told() == [("a", [1, 2]), ("a", "caught up", 2)]
    bench.append("a", b"3")
    assert reader.news == 1
    assert reader.told() == [("a", [3])]
    assert reader.told() == []


def test_an_empty_topic_is_caught_up_at_once(bench: BrokerBench) -> None:
    bench.configure("a")
    assert Reader(bench, a=0).open().told() == [("a", "caught up", 0)]


def test_a_backlog_comes_in_frames_of_the_limit_and_caught_up_comes_again_after_each(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", b"3")
    reader = Reader(bench)
    reader.add("a", 0, Subscription(limit=2))
    reader.open()
    assert reader.told() == [("a", [1, 2]), ("a", [3]), ("a", "caught up", 3)]
    bench.append("a", b"4", b"5", b"6")
    assert reader.told() == [("a", [4, 5]), ("a", [6]), ("a", "caught up", 6)]
    bench.append("a", b"7", b"8")
    assert reader.told() == [("a", [7, 8])]


def test_a_frame_holds_at_least_one_record_however_small_the_budget(bench: BrokerBench) -> None:
    bench.append("a", b'"%b"' % (b"x" * 500), b'"%b"' % (b"y" * 500))
    reader = Reader(bench)
    reader.add("a", 0, Subscription(budget=10))
    assert reader.open().told() == [("a", [1]), ("a", [2]), ("a", "caught up", 2)]


def test_what_was_written_while_the_reader_could_take_nothing_comes_in_one_frame(bench: BrokerBench) -> None:
    bench.configure("a")
    reader = Reader(bench, a=0).open()
    reader.told()
    for _ in range(100):
        bench.append("a", b"0")
    assert reader.told() == [("a", list(range(1, 101)))]


def test_topics_take_turns_frame_by_frame(bench: BrokerBench) -> None:
    for name in ("a", "b"):
        bench.append(name, b"1", b"2")
    reader = Reader(bench)
    for name in ("a", "b"):
        reader.add(name, 0, Subscription(limit=1))
    told = reader.open().told()
    assert told[:4] == [("a", [1]), ("b", [1]), ("a", [2]), ("b", [2])]
    assert sorted(told[4:]) == [("a", "caught up", 2), ("b", "caught up", 2)]


def test_a_reader_gets_no_records_of_its_own_node_and_is_caught_up_all_the_same(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", node="me")
    view = View(without_nodes=frozenset([node_text("me")]))
    reader = Reader(bench)
    reader.add("a", 0, Subscription(view))
    assert reader.open().told() == [("a", "caught up", 2)]
    bench.append("a", b"3", node="me")
    assert reader.told() == []
    bench.append("a", b"4", node="you")
    assert reader.told() == [("a", [4])]
    assert reader.feed.places["a"].cursor == 4


def test_a_topic_that_does_not_filter_nodes_is_told_whole(bench: BrokerBench) -> None:
    bench.configure("a", dedupe_node=False)
    bench.append("a", b"1", node="me")
    reader = Reader(bench)
    reader.add("a", 0, Subscription(View(without_nodes=frozenset([node_text("me")]))))
    assert reader.open().told() == [("a", [1]), ("a", "caught up", 1)]


def test_records_deleted_on_purpose_leave_no_trace(bench: BrokerBench) -> None:
    bench.append("a", b"1", tag="x")
    bench.append("a", b"2", tag="y")
    bench.append("a", b"3", tag="x")
    reader = Reader(bench, a=0).open()
    bench.delete_records("a", tag="x")
    assert reader.told() == [("a", [2]), ("a", "caught up", 3)]


def test_who_comes_too_late_is_told_so_and_goes_on_behind_the_gap(bench: BrokerBench) -> None:
    bench.configure("a", cap_records=2)
    for _ in range(5):
        bench.append("a", b"0")
    reader = Reader(bench, a=0).open()
    assert reader.told() == [("a", "from_seq_too_old", 1, 3), ("a", [4, 5]), ("a", "caught up", 5)]


def test_a_live_reader_that_falls_off_is_told_why(bench: BrokerBench) -> None:
    bench.configure("a", cap_records=2)
    reader = Reader(bench, a=0).open()
    reader.told()
    for _ in range(5):
        bench.append("a", b"0")
    assert reader.told() == [("a", "cap", 1, 3), ("a", [4, 5]), ("a", "caught up", 5)]


def test_a_reader_that_was_stuck_is_told_that_it_was_too_late(bench: BrokerBench) -> None:
    bench.configure("a", cap_records=2)
    bench.append("a", b"0")
    reader = Reader(bench, a=0).open()
    reader.told()
    for _ in range(5):
        bench.append("a", b"0")
    reader.feed.stalled()
    assert reader.told() == [("a", "from_seq_too_old", 2, 4), ("a", [5, 6]), ("a", "caught up", 6)]


def test_a_reader_that_was_stuck_on_a_topic_without_limits_misses_nothing(bench: BrokerBench) -> None:
    bench.append("a", b"0")
    reader = Reader(bench, a=0).open()
    reader.told()
    for _ in range(5):
        bench.append("a", b"0")
    reader.feed.stalled()
    assert reader.told() == [("a", [2, 3, 4, 5, 6])]


def test_expiry_is_told_as_ttl_and_needs_no_write_to_be_noticed(bench: BrokerBench) -> None:
    bench.configure("a", ttl_ms=1000)
    reader = Reader(bench, a=0).open()
    reader.told()
    bench.append("a", b"1", b"2")
    bench.clock.advance(1001)
    assert reader.told() == [("a", "ttl", 1, 2), ("a", "caught up", 2)]


def test_a_cursor_beyond_the_head_is_told_that_the_topic_is_another_one(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=50).open()
    assert reader.told() == [("a", "recreated", 51, 0), ("a", [1]), ("a", "caught up", 1)]


def test_a_topic_deleted_while_watched_is_told_once_and_its_namesake_stays_silent(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2")
    bench.append("b", b"1")
    reader = Reader(bench, a=0, b=0).open()
    reader.told()
    news = reader.news
    bench.delete_topic("a")
    assert reader.news == news + 1
    assert reader.told() == [("a", "gone", 2)]
    bench.append("a", b"9")
    bench.append("b", b"2")
    assert reader.told() == [("b", [2])]


def test_a_topic_deleted_while_nobody_listened_is_told_when_somebody_does(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.told()
    reader.feed.close()
    bench.delete_topic("a")
    assert reader.open().told() == [("a", "gone", 1)]
    reader.feed.close()
    assert reader.open().told() == []


def test_a_topic_made_again_while_nobody_listened_goes_on_behind_a_tombstone(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2")
    reader = Reader(bench, a=0).open()
    reader.told()
    reader.feed.close()
    bench.delete_topic("a")
    bench.append("a", b"1", b"2", b"3")
    assert reader.open().told() == [("a", "recreated", 3, 0), ("a", [1, 2, 3]), ("a", "caught up", 3)]


def test_a_closed_feed_keeps_its_places_and_costs_no_wake(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.told()
    reader.feed.close()
    news = reader.news
    bench.append("a", b"2")
    assert reader.news == news
    assert not bench.broker.watchers
    assert reader.open().told() == [("a", [2]), ("a", "caught up", 2)]


def test_rewinding_goes_back_and_never_forward(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", b"3")
    reader = Reader(bench, a=2).open()
    reader.told()
    reader.feed.close()
    reader.feed.rewind({"a": 1, "unknown": 0}, 0)
    assert reader.open().told() == [("a", [2, 3]), ("a", "caught up", 3)]
    reader.feed.close()
    reader.feed.rewind({"a": 100}, 0)
    assert reader.open().told() == [("a", "caught up", 3)]


def test_a_reader_that_has_not_seen_the_end_of_a_topic_is_told_again(bench: BrokerBench) -> None:
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.told()
    bench.delete_topic("a")
    assert reader.told() == [("a", "gone", 1)]
    reader.feed.close()
    bench.append("a", b"9")
    reader.feed.rewind({"a": 1}, 0)
    assert reader.open().told() == [("a", "gone", 1)]


def test_a_reader_that_has_not_seen_that_a_topic_is_another_one_is_told_again(bench: BrokerBench) -> None:
    bench.append("a", b"1", b"2", b"3")
    reader = Reader(bench, a=0).open()
    reader.told()
    reader.feed.close()
    bench.delete_topic("a")
    bench.append("a", b"1", b"2", b"3", b"4", b"5")
    told = [("a", "recreated", 4, 0), ("a", [1, 2, 3, 4, 5]), ("a", "caught up", 5)]
    assert reader.open().told() == told
    reader.feed.close()
    reader.feed.rewind({"a": 3}, 0)
    assert reader.open().told() == told
    reader.feed.close()
    reader.feed.rewind({"a": 3}, 1)
    assert reader.open().told() == [("a", [4, 5]), ("a", "caught up", 5)]


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
    assert Reader(bench, a=0).open().told()[0] == ("a", [1, 2])
    bench.delete_records("a", tag="x")
    assert Reader(bench, a=0).open().told()[0] == ("a", [2])


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
        assert reader.open().told() == [("a", "caught up", 0)]
    outcome = written_but_not_synced(bench, "a", b"1", b"2")
    assert eventual.told() == [("a", [1, 2])]
    assert strong.told() == []
    bench.runtime.run()
    assert len(outcome) == 1
    assert eventual.told() == []
    assert strong.told() == [("a", [1, 2])]


def test_unsynced_records_keep_to_limit_budget_and_view(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    limited, small, filtered = Reader(bench), Reader(bench), Reader(bench)
    limited.add("a", 0, Subscription(limit=2))
    small.add("a", 0, Subscription(budget=1))
    filtered.add("a", 0, Subscription(View(without_nodes=frozenset([node_text("me")]))))
    for reader in (limited, small, filtered):
        reader.open().told()
    bench.submit("a", b'{"records":[{"data":1,"node":"me"},{"data":2},{"data":3,"node":"me"}]}')
    bench.runtime.turn()
    assert limited.told() == [("a", [1, 2]), ("a", [3]), ("a", "caught up", 3)]
    assert small.told() == [("a", [1]), ("a", [2]), ("a", [3]), ("a", "caught up", 3)]
    assert filtered.told() == [("a", [2])]
    assert filtered.feed.places["a"].cursor == 3


def test_that_a_topic_is_another_one_is_told_before_what_is_not_synced_yet(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    reader = Reader(bench, a=0).open()
    reader.told()
    reader.feed.close()
    bench.delete_topic("a")
    bench.configure("a", durability="fsync")
    written_but_not_synced(bench, "a", b"1")
    assert reader.open().told() == [("a", "recreated", 1, 0), ("a", [1]), ("a", "caught up", 1)]


def test_who_was_told_what_is_not_synced_yet_may_go_on_from_there_in_any_way(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.told()
    written_but_not_synced(bench, "a", b"2", b"3")
    assert reader.told() == [("a", [2, 3])]
    for cursor in (2, 3):
        answer = read(bench.broker, ReadRequest("a", cursor, 10, 1000, View()))
        assert (answer.nothing, answer.read.next_from_seq, answer.read.tombstone) == (True, cursor, None)
        plan = bench.broker.topic("a").partitions[0].plan(cursor, 10, 1000)
        assert (plan.runs, plan.next_from_seq, plan.tombstone) == ([], cursor, None)
    strong = Reader(bench)
    strong.add("a", 3, STRONG)
    assert strong.open().told() == [("a", "caught up", 1)]
    bench.runtime.run()
    assert strong.told() == []
    bench.append("a", b"4")
    assert strong.told() == [("a", [4])]
    assert read(bench.broker, ReadRequest("a", 5, 10, 1000, View())).read.tombstone is not None


@pytest.mark.parametrize("producer", ["p", None])
def test_nothing_is_told_before_the_records_of_a_commit_in_front_of_it(
    bench: BrokerBench, producer: str | None
) -> None:
    bench.configure("a", durability="disk" if producer else "fsync")
    bench.append("a", b"1")
    eventual, strong = Reader(bench, a=0), Reader(bench)
    strong.add("a", 0, STRONG)
    for reader in (eventual, strong):
        reader.open().told()
    batch = decode_batch(b'{"records":[{"data":2},{"data":3}]}', bench.limits)
    committed: list[object] = []
    commit(bench.broker, CommitRequest([], [Write("a", batch)], producer, 1 if producer else 0), committed.append)
    written = bench.submit("a", b'{"records":[{"data":4}]}')
    bench.runtime.turn()
    assert (committed, written) == ([], [])
    told = eventual.told()
    bench.runtime.run()
    assert (len(committed), len(written)) == (1, 1)
    told += eventual.told()
    assert [seq for _, seqs in told for seq in seqs] == [2, 3, 4]  # type: ignore[misc]
    assert strong.told() == [("a", [2, 3, 4])]


def test_nothing_is_told_before_a_loss_in_front_of_it(bench: BrokerBench) -> None:
    """A router tells its dest what it came too late for, and the sync of that is waited for."""
    topic = bench.configure("a", durability="fsync")
    bench.append("a", b"1")
    reader = Reader(bench, a=0).open()
    reader.told()
    partition = topic.partitions[0]
    hole = LostFact(topic.id, 0, 2, 3, 1)
    partition.next_seq = 4
    written_but_not_synced(bench, "a", b"4")
    assert reader.told() == []
    partition.apply_lost(hole)
    bench.runtime.run()
    gap, records, _ = reader.told()
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
    sync, done = bench.runtime._aside.popleft()
    covered = sync()
    # Written by the way, with that of another topic, before it is known that the others are synced.
    bench.submit("a", b'{"records":[{"data":4}]}')
    bench.submit("b", b'{"records":[{"data":1}]}')
    bench.runtime.turn()
    first = Reader(bench, a=0).open()
    assert first.told()[:2] == [("a", [1, 2]), ("a", [3, 4])]
    done(covered, None)
    assert (len(deleted), bench.broker.topic("a").partitions[0].head_seq) == (1, 3)
    assert Reader(bench, a=0).open().told()[:2] == [("a", [2, 3]), ("a", [4])]


def test_a_sync_that_fails_leaves_strong_readers_without_the_record(bench: BrokerBench) -> None:
    bench.configure("a", durability="fsync")
    strong, eventual = Reader(bench), Reader(bench, a=0)
    strong.add("a", 0, STRONG)
    for reader in (strong, eventual):
        reader.open().told()
    outcome = written_but_not_synced(bench, "a", b"1")
    assert eventual.told() == [("a", [1])]
    bench.disk.fault = lambda step, op, path: errno.EIO if op == "sync_data" else None
    bench.runtime.run()
    assert len(outcome) == 1
    assert strong.told() == []
    assert eventual.told() == []
    assert bench.broker.topic("a").partitions[0].unsynced == []
