"""Rules about the producer of a commit."""

import pytest

from topics.engine.transactions.commit_request import CommitRequest, check_owner, check_repeat
from topics.model.errors import Conflict, Forbidden
from topics.model.facts import Fenced, Placed

FENCE = Fenced("p", 5, [Placed(None, "team-a/x", 0, 1, 1)], 1000, ["team-a/"], "digest")


def request(batch: int, digest: str | None) -> CommitRequest:
    return CommitRequest([], [], "p", batch, digest=digest)


def test_a_repeat_with_the_same_contents_or_without_a_digest_is_accepted() -> None:
    check_repeat(FENCE, request(5, "digest"))
    check_repeat(FENCE, request(4, None))


@pytest.mark.parametrize(("batch", "digest"), [(5, "other"), (4, "digest")])
def test_a_repeat_that_may_have_other_contents_is_a_conflict(batch: int, digest: str) -> None:
    with pytest.raises(Conflict, match=f"batch {batch}"):
        check_repeat(FENCE, request(batch, digest))


@pytest.mark.parametrize(
    ("prefixes", "allowed"), [(None, True), ([], True), (["team-a/"], True), (["team-"], True), (["team-b/"], False)]
)
def test_a_producer_belongs_to_keys_that_reach_all_names_of_its_owner(
    prefixes: list[str] | None, allowed: bool
) -> None:
    if allowed:
        check_owner(FENCE, prefixes)
    else:
        with pytest.raises(Forbidden):
            check_owner(FENCE, prefixes)
