"""A source may send its changes again from wherever it likes: each is in the change topic once, in the order per key."""

import itertools
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.broker.transactions.test_stages import Site, disk_with_root
from topics.broker.tables.changes import ChangesKept
from topics.broker.tables.tables import drop_table as forget
from topics.broker.tables.tables import put_table
from topics.engine.tables.source_positions import MAX_DIGESTS_PER_POSITION, MAX_SOURCES_PER_TABLE
from topics.model.errors import TopicFull
from topics.model.tables.change import Defaults, decode_changes
from topics.model.tables.table import Table
from topics.testing.disk.fake_disk import PowerCut

TABLE, TOPIC = "chat.messages", "changes:chat.messages"


def event(number: int, position: Any = None, key: int = 1, **more: Any) -> dict[str, Any]:
    return {"op": "update", "key": {"id": key}, "after": {"id": key, "n": number}, "position": position, **more}


def send(site: Site, *events: Any) -> ChangesKept:
    decoded = decode_changes(msgspec.json.encode(events), Defaults(1), 100_000)
    kept: ChangesKept = site.outcome(lambda reply: site.broker.changes.append(TABLE, decoded, reply))
    return kept


def numbers(site: Site, partition: int = 0) -> list[int]:
    texts: list[Any] = site.texts(TOPIC, partition)
    return [text["after"]["n"] if text["after"] else -1 for text in texts]


def test_a_repeat_is_suppressed_and_what_is_new_beside_it_is_not() -> None:
    site = Site(disk_with_root())
    first = send(site, event(1, 10), event(2, 20))
    assert (first.appended, first.duplicates) == (2, 0)
    again = send(site, event(1, 10), event(2, 20), event(3, 30))
    assert (again.appended, again.duplicates) == (1, 2)
    assert (again.placed[0].first_seq, again.placed[0].count) == (3, 1)
    assert numbers(site) == [1, 2, 3]
    assert site.broker.topic(TOPIC).config.durability == "fsync"


def test_events_with_the_same_position_are_distinguished_over_requests() -> None:
    site = Site(disk_with_root())
    send(site, event(1, 10, key=1), event(2, 10, key=2))
    kept = send(site, event(2, 10, key=2), event(3, 10, key=3), event(4, 11))
    assert (kept.appended, kept.duplicates) == (2, 1)
    assert numbers(site) == [1, 2, 3, 4]


def test_sources_have_independent_positions() -> None:
    site = Site(disk_with_root())
    send(site, event(1, 100, source="a"))
    assert send(site, event(2, 5, source="b")).appended == 1
    assert send(site, event(3, 99, source="a")).duplicates == 1
    assert send(site, event(4), event(4)).appended == 2, "without a position nothing is known about repeats"
    assert numbers(site) == [1, 2, 4, 4]


def test_a_position_of_another_kind_is_refused_and_the_rest_taken() -> None:
    site = Site(disk_with_root())
    kept = send(site, event(1, 1), event(2, "x"), {"op": "?"}, event(3, 2))
    assert [refused.index for refused in kept.refused] == [1, 2]
    assert numbers(site) == [1, 3]


def test_tombstones_and_refused_events_alone_make_no_topic() -> None:
    site = Site(disk_with_root())
    kept = send(site, None, {"op": "?"})
    assert (kept.appended, kept.tombstones, len(kept.refused)) == (0, 1, 1)
    assert TOPIC not in site.broker.state.topics


def test_changes_of_a_key_stay_in_order_in_one_partition_and_a_truncate_is_in_all() -> None:
    site = Site(disk_with_root())
    site.create(TOPIC, partitions=4)
    send(site, *[event(number, number, key=number % 10) for number in range(100)])
    send(site, {"op": "truncate", "position": 100})
    send(site, *[event(number, number, key=number % 10) for number in range(101, 200)])
    seen: dict[int, int] = {}
    for partition in range(4):
        found = numbers(site, partition)
        assert found.count(-1) == 1
        at = found.index(-1)
        assert all([number < 100 for number in found[:at]])
        assert all([number > 100 for number in found[at + 1 :]])
        for key in range(10):
            mine = [number for number in found if number % 10 == key and number >= 0]
            assert mine == sorted(mine)
            if mine:
                assert key not in seen
                seen[key] = len(mine)
    assert sum(seen.values()) == 199
    assert len(set(seen)) == 10


def test_requests_at_the_same_time_are_decided_one_after_the_other() -> None:
    site = Site(disk_with_root())
    outcomes: list[Any] = []
    for _ in range(5):
        decoded = decode_changes(msgspec.json.encode([event(1, 1), event(2, 2)]), Defaults(1), 10)
        site.broker.changes.append(TABLE, decoded, outcomes.append)
    for _ in range(20):
        site.runtime.run()
        site.runtime.clock.advance(1)
    assert [each.appended for each in outcomes] == [2, 0, 0, 0, 0]
    assert numbers(site) == [1, 2]


def test_a_refused_commit_leaves_the_mark_where_it_was() -> None:
    site = Site(disk_with_root())
    site.create(TOPIC, cap_records=2, discard="reject")
    send(site, event(1, 1), event(2, 2))
    with pytest.raises(TopicFull):
        send(site, event(3, 3))
    site.outcome(lambda reply: site.broker.delete_records(TOPIC, 3, None, 0, reply))
    assert send(site, event(3, 3)).appended == 1


def test_marks_go_with_their_topic() -> None:
    site = Site(disk_with_root())
    send(site, event(1, 10))
    site.outcome(lambda reply: site.broker.delete_topic(TOPIC, if_empty=False, reply=reply))
    assert send(site, event(2, 5)).appended == 1
    assert len(site.broker.state.source_positions.by_topic) == 1


def test_what_is_remembered_of_sources_is_bounded() -> None:
    site = Site(disk_with_root())
    kept = send(site, *[event(1, 1, source=f"s{number}") for number in range(MAX_SOURCES_PER_TABLE + 1)])
    assert (kept.appended, [refused.index for refused in kept.refused]) == (
        MAX_SOURCES_PER_TABLE,
        [MAX_SOURCES_PER_TABLE],
    )
    site = Site(disk_with_root())
    send(site, *[event(1, 1, key=number) for number in range(MAX_DIGESTS_PER_POSITION + 10)])
    (position,) = site.broker.state.source_positions.by_topic[site.broker.topic(TOPIC).id].values()
    assert len(position.digests) == MAX_DIGESTS_PER_POSITION


def story(site: Site, acked: list[int], start: int = 1) -> None:
    """A source that sends its changes from `start` on, some of them twice."""
    for number in range(start, 13, 2):
        send(site, *[event(each, [each // 3, each], key=each % 3) for each in range(max(1, number - 2), number + 2)])
        acked.append(number + 1)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(("survive", "seed"), [("none", 0), ("all", 0), ("random", 1)])
def test_no_change_is_lost_or_twice_after_a_power_cut_at_any_step(partitions: int, survive: Any, seed: int) -> None:
    for step in itertools.count(1):
        disk = disk_with_root(seed=seed)
        disk.cut_at = disk.steps + step
        acked: list[int] = []
        try:
            site = Site(disk)
            site.create(TOPIC, partitions=partitions, durability="disk")
            story(site, acked)
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        site = Site(disk.after_power_cut(survive=survive, seed=seed))
        topic = site.broker.state.topics.get(TOPIC)
        if topic is None:
            continue
        done = max(acked, default=0)
        story(site, [], start=done - 1 if done > 2 else 1)
        found = sorted([number for partition in topic.partitions for number in numbers(site, partition.number)])
        assert found == list(range(1, 13)), f"cut at step {step}"
    assert step > 30


@pytest.mark.parametrize(("survive", "seed"), [("none", 0), ("random", 1)])
def test_known_tables_survive_a_power_cut_at_any_step(survive: Any, seed: int) -> None:
    def table(number: int) -> Table:
        return Table(f"t{number % 3}", "push", None, (f"c{number}",), {}, number)

    for step in itertools.count(1):
        disk = disk_with_root(seed=seed)
        disk.cut_at = disk.steps + step
        acked: dict[str, Table] = {}
        under_way = ""
        try:
            site = Site(disk)
            for number in range(12):
                # Something else to write, so that snapshots are taken in between.
                send(site, event(number, number, text="x" * 200))
                under_way = f"t{number % 3}"
                if number % 4 == 3 and under_way in acked:
                    site.outcome(partial(forget, site.broker, under_way))
                    del acked[under_way]
                else:
                    site.outcome(partial(put_table, site.broker, table(number)))
                    acked[under_way] = table(number)
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        found = Site(disk.after_power_cut(survive=survive, seed=seed)).broker.state.tables.by_name
        assert {name: each for name, each in found.items() if name != under_way} == {
            name: each for name, each in acked.items() if name != under_way
        }
    assert step > 30
