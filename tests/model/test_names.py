"""Names of topics and routers."""

import pytest

from topics.model.errors import InvalidRequest
from topics.model.names import check_router_name, check_topic_name


@pytest.mark.parametrize("name", ["a", "Z", "0", "a" * 255, "a.b_c:d-e", "9..", "a-"])
def test_valid_names_of_topics_are_valid_for_routers_too(name: str) -> None:
    assert check_topic_name(name) == check_router_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a" * 256, "-a", ".a", "_a", ":a", "a b", "a/b", "a\n", "\na", "é", "a\0", "a%20"]
)
def test_invalid_names(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_topic_name(name)
    with pytest.raises(InvalidRequest):
        check_router_name(name)


def test_only_a_router_may_have_an_arrow_in_its_name() -> None:
    assert check_router_name("a->b") == "a->b"
    with pytest.raises(InvalidRequest):
        check_topic_name("a->b")
    with pytest.raises(InvalidRequest):
        check_router_name(">a")
