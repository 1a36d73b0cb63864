"""A change of a router keeps the options that it does not name."""

from topics.model.records.match import TagMatch
from topics.model.router import RouterChange, RouterOptions, filter_tuple


def test_a_change_keeps_the_options_it_does_not_name() -> None:
    options = RouterOptions(preserve_node=False, filter=TagMatch("a", True))
    changed = RouterChange(preserve_tag=False).applied(options)
    assert changed == RouterOptions(preserve_node=False, preserve_tag=False, filter=TagMatch("a", True))


def test_a_filter_is_removed_by_null() -> None:
    assert RouterChange(filter=None).applied(RouterOptions(filter=TagMatch("a", True))).filter is None


def test_filters_are_shown_as_the_api_takes_them() -> None:
    assert filter_tuple(None) is None
    assert filter_tuple(TagMatch("a", False)) == ["tag", "Eq", "a"]
    assert filter_tuple(TagMatch("a", True)) == ["tag", "Glob", "a*"]
