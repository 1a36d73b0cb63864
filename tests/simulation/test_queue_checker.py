"""The checker of queue histories is itself put to the test: each fault planted into the server must be noticed.

Faults are what an honest mistake would leave behind: something not written, not synced, not checked or not counted.
Every one of them must break the promise it is about within the seeds that `make test` plays.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.test_queues import SEEDS, play
from topics.broker.log.commit import Commit, FactCommit
from topics.broker.queues import lease_commits, pending_claims
from topics.broker.queues import queues as queue
from topics.broker.queues.lease_commits import AckCommit
from topics.broker.queues.queues import Queues
from topics.broker.topics.append_with_facts import AppendWithFacts
from topics.engine.leases.lease import Leases, seqs_bytes, seqs_of
from topics.model.facts import Appended, DeadLettered, Deleted
from topics.model.images import LeaseImage
from topics.storage.log.frame import frame_of

Plant = Callable[[pytest.MonkeyPatch], None]


def after_init(patch: pytest.MonkeyPatch, kind: type[Commit], change: Callable[[Any], None]) -> None:
    """Change each new commit of this kind."""
    original = kind.__init__

    def spoiled(commit: Any, *arguments: Any, **named: Any) -> None:
        original(commit, *arguments, **named)
        change(commit)

    patch.setattr(kind, "__init__", spoiled)


def after_dead_letter(patch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """Change each new commit that moves jobs to a dead-letter topic."""

    def change_dead_letter(commit: AppendWithFacts) -> None:
        if any([isinstance(fact, DeadLettered) for fact in commit.facts]):
            change(commit)

    after_init(patch, AppendWithFacts, change_dead_letter)


class Unwritten(FactCommit):
    """Applied as usual, but its frame has no facts."""

    __slots__ = ()

    def encode(self, synced_lsn: int) -> bytes | list[bytes]:
        return frame_of(self.lsn, synced_lsn, [])


def after_make(patch: pytest.MonkeyPatch, module: Any, function: str, change: Callable[[Any], None]) -> None:
    """Change each commit that this function makes."""
    original = getattr(module, function)

    def make(*arguments: Any) -> Any:
        commit = original(*arguments)
        change(commit)
        return commit

    patch.setattr(module, function, make)


def never_synced(commit: Any) -> None:
    commit.sync = False


def never_written(commit: Any) -> None:
    commit.__class__ = Unwritten


def without(kind: type) -> Callable[[Any], None]:
    def change(commit: Any) -> None:
        commit.facts = [fact for fact in commit.facts if not isinstance(fact, kind)]

    return change


def image_without_leases(patch: pytest.MonkeyPatch) -> None:
    original = Leases.image

    def image(leases: Leases, *, durable: bool) -> LeaseImage:
        return original(leases, durable=False)

    patch.setattr(Leases, "image", image)


def expired_leases_count(patch: pytest.MonkeyPatch) -> None:
    """An ack does not look at the clock."""
    original = Queues.ack

    def ack(queues: Queues, *arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Leases, "expire", lambda leases, now_ms: [])
            original(queues, *arguments)

    patch.setattr(Queues, "ack", ack)


def lease_ids_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    original = Leases.held_by
    patch.setattr(Leases, "held_by", lambda leases, node, seqs, lease_ids: original(leases, node, seqs, None))


def holders(leases: Leases) -> dict[int, str]:
    """The node that holds each leased job."""
    return {seq: delivery.node for delivery in leases.delivery_images() for seq in delivery.seqs}


def any_node_is_the_holder(patch: pytest.MonkeyPatch) -> None:
    original = Leases.held_by

    def held_by(leases: Leases, node: str, seqs: list[int], lease_ids: list[str] | None) -> Any:
        return original(leases, holders(leases).get(seqs[0], node), seqs, lease_ids)

    patch.setattr(Leases, "held_by", held_by)


def returns_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    def give_back(leases: Leases, seqs: list[int], due_ms: int | None) -> None:
        leases.apply_returned([(seq, leases.delivery_count(seq) - 1) for seq in seqs], due_ms)

    patch.setattr(Leases, "give_back", give_back)


def returns_are_not_counted_in_the_log(patch: pytest.MonkeyPatch) -> None:
    original = lease_commits.returned_fact

    def returned_fact(topic: Any, partition: Any, seqs: list[int], deliveries: list[int], due: int | None) -> Any:
        return original(topic, partition, seqs, [count - 1 for count in deliveries], due)

    patch.setattr(lease_commits, "returned_fact", returned_fact)
    patch.setattr(queue, "returned_fact", returned_fact)


def nothing_is_leaving(patch: pytest.MonkeyPatch) -> None:
    """An ack that waits for its sync does not keep the job from being delivered to another node."""
    patch.setattr(Leases, "begin_commit", lambda leases, parts: None)


def connections_release_everything_of_their_node(patch: pytest.MonkeyPatch) -> None:
    def held_by_connection(leases: Leases, connection_jobs: set[int]) -> list[int]:
        nodes = {node for seq, node in holders(leases).items() if seq in connection_jobs}
        return [seq for seq, node in holders(leases).items() if node in nodes]

    patch.setattr(Leases, "held_by_connection", held_by_connection)


def delays_are_dropped(patch: pytest.MonkeyPatch) -> None:
    original = Leases.apply_returned
    patch.setattr(Leases, "apply_returned", lambda leases, jobs, due_ms: original(leases, jobs, None))


def the_bound_is_one_too_many(patch: pytest.MonkeyPatch) -> None:
    original = Leases.take
    patch.setattr(Leases, "take", lambda leases, partition, most, bound: original(leases, partition, most, bound + 1))


def dead_letters_are_deleted_in_the_order_they_came_back(patch: pytest.MonkeyPatch) -> None:
    """Deletes find their segments by ascending seqs; out of order they miss some."""

    def reverse(commit: Commit) -> None:
        for fact in commit.facts:
            if isinstance(fact, Deleted):
                fact.seqs = seqs_bytes(reversed(seqs_of(fact.seqs)))

    after_dead_letter(patch, reverse)


FAULTS: dict[str, tuple[Plant, str]] = {
    "acks are answered before they are synced": (
        lambda patch: after_init(patch, AckCommit, never_synced),
        "an acked job (is back|returned)",
    ),
    "the frame of a dead letter lacks the delete": (
        lambda patch: after_dead_letter(patch, without(Deleted)),
        "a dead letter is still a job|a dead letter came twice",
    ),
    "the frame of a dead letter lacks the copy": (
        lambda patch: after_dead_letter(patch, without(Appended)),
        "a job is lost|a held job is gone|assert .* == ",
    ),
    "dead letters are deleted out of order": (
        dead_letters_are_deleted_in_the_order_they_came_back,
        "a dead letter is still a job|a dead letter came twice",
    ),
    "durable leases are not written": (
        lambda patch: after_make(patch, pending_claims, "lease_commit", never_written),
        "in flight|not with its holder|is leased twice|delivery",
    ),
    "durable leases are delivered before they are synced": (
        lambda patch: after_make(patch, pending_claims, "lease_commit", never_synced),
        "in flight|not with its holder|is leased twice|delivery",
    ),
    "extensions are not written": (
        lambda patch: after_make(patch, queue, "extend_commit", never_written),
        "in flight|not with its holder|is leased twice|delivery",
    ),
    "nacks are not written": (
        lambda patch: after_make(patch, queue, "nack_commit", never_written),
        "in flight|delayed|delivery",
    ),
    "snapshots hold no leases": (
        image_without_leases,
        "delayed|in flight|not with its holder|is leased twice|delivery",
    ),
    "an expired lease is accepted": (expired_leases_count, "held|stale lease"),
    "lease ids are not compared": (lease_ids_are_not_compared, "a stale lease was honoured"),
    "nodes are not compared": (any_node_is_the_holder, "a stranger's ack was honoured|a stale lease was honoured"),
    "nacks forget the delivery": (returns_are_not_counted, "delivery|came too often"),
    "nacks forget the delivery in the log": (returns_are_not_counted_in_the_log, "delivery|came too often|in flight"),
    "an ack under way protects nothing": (
        nothing_is_leaving,
        "went to another while it was acked|in flight|an acked job is back",
    ),
    "a connection releases what is not its own": (
        connections_release_everything_of_their_node,
        "in flight|not with its holder|leased twice",
    ),
    "delays of nacks are dropped": (delays_are_dropped, "delayed|before it was due"),
    "one delivery too many is allowed": (the_bound_is_one_too_many, "came too often"),
}


def play_all() -> None:
    for seed in range(SEEDS):
        play(seed)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checker_notices(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, promise = FAULTS[fault]
    plant(monkeypatch)
    # The comparison of the live state with the replayed one may notice it first.
    with pytest.raises(AssertionError, match=f"{promise}|the replayed state differs"):
        play_all()
