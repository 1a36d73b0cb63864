"""PendingClaims: claims that were served and whose replies wait for the log.

Durable leases must be in the log before their claims are answered. Dead letters that a claim found are moved first too, because
they may have hidden ready jobs: when some were moved, the claims that got nothing are served again.
"""

from collections.abc import Callable
from typing import Protocol

from topics.broker.log.commit import Commit
from topics.broker.queues.claims import Claimer, ClaimResult
from topics.broker.queues.lease_commits import lease_commit
from topics.engine.leases.lease import Leases
from topics.engine.partitions.partition import Partition
from topics.engine.queues.lease_facts import leased_fact, leases_are_logged
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError, topic_not_found
from topics.model.facts import Fact
from topics.runtime.replies import call


class PendingClaimsHost(Protocol):
    """What `PendingClaims` needs of the queues."""

    def exists(self, topic: Topic) -> bool: ...

    def submit(self, commit: Commit) -> None: ...

    def move_dead_letters(
        self, topic: Topic, partition: Partition, seqs: list[int], done: Callable[[int], None]
    ) -> None: ...

    def serve(self, topic: Topic, partition: Partition, claimers: list[Claimer]) -> None: ...

    def deliver(
        self,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, ClaimResult]],
        unserved: list[Claimer],
    ) -> None: ...


class PendingClaims:
    """The claims of one pass over a partition. `start` is called once."""

    def __init__(
        self,
        host: PendingClaimsHost,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, ClaimResult]],
        unserved: list[Claimer],
    ) -> None:
        self._host = host
        self._topic = topic
        self._partition = partition
        self._served = served
        self._unserved = unserved
        self._unfinished_steps = 1
        self._serve_again = False

    def start(self, dead: list[int]) -> None:
        """Submit the leases and move the dead letters; deliver when both are done."""
        host, topic, partition, leases = self._host, self._topic, self._partition, self._leases
        if self._served and leases_are_logged(topic):
            facts: list[Fact] = [
                leased_fact(topic, partition, leases, result.delivery) for _, result in self._served if result.delivery
            ]
            self._unfinished_steps += 1
            host.submit(lease_commit(topic, partition, facts, self._leases_decided))
        if dead:
            self._unfinished_steps += 1
            host.move_dead_letters(topic, partition, dead, self._dead_letters_moved)
        self._finish_step()

    @property
    def _leases(self) -> Leases:
        assert self._partition.leases is not None
        return self._partition.leases

    def _leases_decided(self, error: TopicsError | None) -> None:
        if error is not None:
            served, self._served = self._served, []
            # The last one first, so that the jobs are returned in the order in which they were taken.
            for claimer, result in reversed(served):
                if result.delivery is not None:
                    self._leases.undo(result.delivery)
                call(claimer.fail, error)
        self._finish_step()

    def _dead_letters_moved(self, moved: int) -> None:
        self._serve_again = moved > 0
        self._finish_step()

    def _finish_step(self) -> None:
        self._unfinished_steps -= 1
        if self._unfinished_steps:
            return
        host, topic, partition = self._host, self._topic, self._partition
        unserved = self._unserved
        if not host.exists(topic):
            for claimer in [*[claimer for claimer, _ in self._served], *unserved]:
                call(claimer.fail, topic_not_found(topic.name))
            return
        again = [claimer for claimer in unserved if claimer.capacity()] if self._serve_again else []
        host.deliver(topic, partition, self._served, [] if self._serve_again else unserved)
        if again:
            host.serve(topic, partition, again)
