"""Routes are compared by what they route, not by when they were created."""

from msgspec import structs

from topics.model.tables.route import ChangePosition, Route

ROUTE = Route("orders", "Insert", "Full", 7, filter_expr='"a" > 1')


def test_version_and_start_do_not_make_a_route_another_one() -> None:
    assert ROUTE.same_as(structs.replace(ROUTE, version=8, start="Earliest", starts_at=ChangePosition(1, (5,))))


def test_every_other_field_makes_a_route_another_one() -> None:
    for change in (
        {"table": "x"},
        {"op": "Delete"},
        {"payload_mode": "Key"},
        {"filter_expr": None},
        {"key_columns": ("id",)},
    ):
        assert not ROUTE.same_as(structs.replace(ROUTE, **change))


def test_a_partition_that_was_added_later_begins_with_its_first_change() -> None:
    position = ChangePosition(1, (5, 9))
    assert [position.first(partition) for partition in range(3)] == [5, 9, 1]
