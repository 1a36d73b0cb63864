"""Facts are tagged by numbers that are part of the format of the log."""

import typing

import msgspec
import pytest

from topics.model.facts import Appended, Deleted, Evicted, Fact, RoutesSet, TopicCreated, TopicDeleted, frees_space
from topics.model.records.page import make_page
from topics.model.tables.route import Route

ROUTE = Route("table", "Insert", "Full", 1)


def test_every_kind_of_fact_has_a_tag_of_its_own() -> None:
    tags = [kind.__struct_config__.tag for kind in typing.get_args(Fact)]
    assert len(tags) == len(set(tags))
    assert all(isinstance(tag, int) for tag in tags)


def test_tags_that_the_log_already_holds_do_not_change() -> None:
    kinds = {TopicCreated: 1, TopicDeleted: 3, Appended: 4, Deleted: 5, Evicted: 7, RoutesSet: 43}
    assert {kind: kind.__struct_config__.tag for kind in kinds} == kinds


def test_facts_are_encoded_as_arrays_that_begin_with_the_tag() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(TopicDeleted(9))) == [3, 9]


@pytest.mark.parametrize(
    ("facts", "frees"),
    [
        ([TopicDeleted(1)], True),
        ([Deleted(1, 0, b""), Evicted(1, 0, 5, 1)], True),
        ([RoutesSet(1, [], 2)], True),
        ([RoutesSet(1, [ROUTE], 2)], False),
        ([TopicDeleted(1), Appended(1, 0, make_page(1, 1, 5, b"1"))], False),
    ],
)
def test_only_facts_that_remove_something_may_be_written_on_a_full_disk(facts: list[Fact], frees: bool) -> None:
    assert frees_space(facts) is frees
