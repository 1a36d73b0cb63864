"""Barriers: other shards are synced before a commit about logs of several shards is written to one of them.

A log keeps its records in the frames of one shard, so a power cut takes the newest of them and nothing before. A commit
over several topics stands in one shard alone. It would survive a cut that takes what the others had before it, and leave a
gap; so that is made safe first. What comes after the commit waits until the commit is safe.
"""

from collections.abc import Callable, Iterable

from topics.broker.committer import Commit, Committer, Lane
from topics.model.errors import TopicsError

Then = Callable[[TopicsError | None], None]


class Barrier(Commit):
    """Nothing but a sync of a shard."""

    __slots__ = ("_passed",)

    def __init__(self, passed: Then) -> None:
        super().__init__()
        self.sync = True
        self._passed = passed

    def apply(self) -> None:
        self._passed(None)

    def fail(self, error: TopicsError) -> None:
        self._passed(error)


def other_lanes(committer: Committer, lane: Lane, topic_ids: Iterable[int]) -> list[Lane]:
    """The shards of these topics but for this one."""
    found = {committer.lane_of(topic_id).shard.number for topic_id in topic_ids} - {lane.shard.number}
    return [committer.lanes[number] for number in sorted(found)]


def when_safe(committer: Committer, lanes: list[Lane], then: Then) -> None:
    """Call `then`, once, when all that was submitted to these shards is true and safe on disk, or with what went wrong."""
    dirty = [lane for lane in lanes if lane.shard.dirty or lane.commits or lane.owed]
    left = len(dirty)
    failure: TopicsError | None = None

    def passed(error: TopicsError | None) -> None:
        nonlocal left, failure
        left -= 1
        failure = failure or error
        if not left:
            then(failure)

    if not dirty:
        then(None)
    for lane in dirty:
        committer.submit(lane, Barrier(passed))
