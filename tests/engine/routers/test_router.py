"""Routes between topics: which cycles they make, and what is remembered of records that go around one."""

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.routers.router import MAX_HOPS, Hops, Router, Routers
from topics.model.facts import RouterCreated
from topics.model.router import RouterOptions


def router(router_id: int, source: int, dest: int, name: str = "") -> Router:
    name = name or f"{source}->{dest}"
    return Router(RouterCreated(router_id, name, source, dest, RouterOptions(), [0], [0], 1))


def routers(*edges: tuple[int, int]) -> Routers:
    table = Routers()
    for number, (source, dest) in enumerate(edges, 1):
        table.add(router(number, source, dest))
    return table


def test_a_route_that_leads_back_is_found_with_its_cycle() -> None:
    table = routers((1, 2), (2, 3), (2, 4))
    assert table.cycle_with(3, 1) == [1, 2, 3, 1]
    assert table.cycle_with(2, 1) == [1, 2, 1]
    assert table.cycle_with(1, 5) is None
    assert table.cycle_with(1, 2) is None, "it is there already"
    assert table.cycle_with(4, 3) is None


def test_routers_know_the_cycle_they_are_in_and_when_it_is_broken() -> None:
    table = routers((1, 2), (2, 3), (3, 1), (2, 9))
    assert {each.name: each.cycle for each in table.by_id.values()} == {"1->2": 3, "2->3": 3, "3->1": 3, "2->9": 0}
    table.copied(2, 0, 1, 5, 1)
    twin = router(8, 3, 1, "twin")
    table.add(twin)
    assert twin.cycle == 3
    table.remove(3)
    assert table.by_id[1].cycle == 3, "the twin still closes it"
    table.remove(8)
    assert [each.cycle for each in table.by_id.values()] == [0, 0, 0]
    assert table.hops == {}


def test_a_long_cycle_ends_at_the_cap() -> None:
    table = routers(*[(number, number % 100 + 1) for number in range(1, 101)])
    assert table.by_id[1].cycle == 100
    assert table.by_id[1].max_hops == MAX_HOPS


def test_a_name_belongs_to_its_newest_router() -> None:
    table = Routers()
    table.add(router(2, 1, 2, "r"))
    table.add(router(1, 3, 4, "r"))
    assert table.by_name["r"].id == 2
    table.remove(1)
    assert table.by_name["r"].id == 2
    assert table.names == ["r"]
    table.remove(2)
    assert (table.names, table.by_name, table.by_source, table.by_dest) == ([], {}, {}, {})


def test_a_snapshot_keeps_everything() -> None:
    table = routers((1, 2), (2, 1), (1, 5))
    table.by_id[1].advance(0, 7, 5)
    table.copied(2, 0, 3, 4, 1)
    table.copied(1, 0, 3, 3, bytes([1, 2, 1]))
    again = Routers()
    again.restore(table.capture())
    assert again.capture() == table.capture()
    assert (again.by_id[1].cursors, again.by_id[1].forwarded_total) == ([7], 5)
    assert [each.cycle for each in again.by_id.values()] == [2, 2, 0]
    kept = again.hops_of(1, 0)
    assert kept is not None
    assert kept.of([2, 3, 4, 5, 6]) == bytes([0, 1, 2, 1, 0])


def test_advancing_twice_counts_once() -> None:
    one = router(1, 1, 2)
    for _ in range(2):
        one.advance(0, 10, 4)
    assert (one.cursors, one.forwarded_total) == ([10], 4)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=6)), max_size=20),
    st.integers(0, 60),
)
def test_hops_are_remembered_for_each_record(runs: list[tuple[int, list[int]]], below: int) -> None:
    hops = Hops()
    expected: dict[int, int] = {}
    seq = 0
    for gap, values in runs:
        first = seq + gap
        uniform = len(set(values)) == 1
        for _ in range(2):  # the second time changes nothing
            hops.add(first, len(values), values[0] if uniform else bytes(values))
        expected |= dict(enumerate(values, first))
        seq = first + len(values) - 1
    everything = range(1, seq + 3)
    assert list(hops.of(everything)) == [expected.get(each, 0) for each in everything]
    hops.prune(below)
    later = range(max(1, below), seq + 3)
    assert list(hops.of(later)) == [expected.get(each, 0) for each in later]
    some = [each for each in everything if each % 3]
    hops_again = [each for each in some if each >= below]
    assert list(hops.of(hops_again)) == [expected.get(each, 0) for each in hops_again]


def test_what_everybody_has_looked_at_is_forgotten() -> None:
    table = routers((1, 2), (2, 1))
    for seq in range(1, 1001, 2):
        table.copied(2, 0, seq, 1, 1)
        table.by_id[2].advance(0, seq, 0)
    kept = table.hops_of(2, 0)
    assert kept is not None
    assert len(kept) < 200
