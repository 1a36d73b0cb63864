"""Dead letters: jobs that were delivered too often are moved from their queue to another topic.

The copy and the delete are in one frame, with the new count and, if it did not exist, the topic that gets them. A crash leaves all
of it or nothing: no job is lost and none exists twice. The copy has the same `data`, tag, node and `meta`, byte for byte; three
keys are added to `meta`. The copy is as durable as the class of the topic that gets it demands.
"""

from collections.abc import Callable

from topics.broker.core import Core
from topics.broker.queues.move_jobs import first_commit, move_jobs
from topics.engine.leases.lease import Leases
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.config import DEFAULT_CONFIG
from topics.model.dead_letter_meta import with_origin
from topics.model.errors import TopicsError
from topics.model.facts import DeadLettered, Fact, TopicCreated
from topics.runtime.replies import ignore


def move(core: Core, topic: Topic, partition: Partition, seqs: list[int], done: Callable[[int], None]) -> None:
    """Move these jobs, which are DEAD_LETTERING, to the topic's dead-letter topic; then call `done` once with how many were moved.

    Several commits may be needed. Jobs that cannot be moved now are returned to the queue and tried again by a later claim: the
    other topic is full, or does not exist while `auto_create` is off or its name is an alias, or the disk failed.
    """
    name = topic.config.dead_letter
    leases = _leases(partition)
    if name is None:
        # The configuration was changed meanwhile.
        leases.put_back_dead(seqs)
        done(0)
        return
    for each in (topic.name, name):
        # While one of the topics is being created, changed or deleted: run again when that is decided.
        if core.parked(each, lambda: move(core, topic, partition, seqs, done), ignore):
            return
    # They were set aside in the order in which they were returned; a delete needs ascending seqs.
    alive = sorted([seq for seq in seqs if partition.is_live(seq)])
    if not core.exists(topic) or not alive:
        done(0)
        return
    if name not in core.state.topics and not topic.config.auto_create:
        leases.put_back_dead(alive)
        done(0)
        return
    some = first_commit(partition, alive)
    if len(some) < len(alive):

        def move_others(moved: int) -> None:
            again = lambda: move(core, topic, partition, alive[len(some) :], lambda more: done(moved + more))  # noqa: E731
            # In another turn: the replies of the first commit are sent first, and failures do not nest calls.
            core.runtime.call_soon(again)

        move(core, topic, partition, some, move_others)
        return
    try:
        _submit(core, topic, partition, name, alive, done)
    except TopicsError:
        if len(alive) > 1:
            # Half of them may fit.
            half = len(alive) // 2

            def move_rest(moved: int) -> None:
                move(core, topic, partition, alive[half:], lambda more: done(moved + more))

            move(core, topic, partition, alive[:half], move_rest)
        else:
            leases.put_back_dead(alive)
            done(0)


def _submit(
    core: Core, topic: Topic, partition: Partition, name: str, seqs: list[int], done: Callable[[int], None]
) -> None:
    leases = _leases(partition)
    target = core.state.topics.get(name)
    created: list[Fact] = []
    if target is None:
        core.check_new_topics(name)
        fact = TopicCreated(core.state.next_topic_id, name, DEFAULT_CONFIG, 1, core.runtime.now_ms())
        target = core.state.new_topic(fact.topic_id, name, fact.config, 1, fact.ts)
        created.append(fact)

    def new_meta(seq: int, meta: bytes) -> bytes:
        return with_origin(meta, topic.name, leases.delivery_count(seq) - 1, seq, leases.reason(seq))

    def counted() -> list[Fact]:
        leases.dead_letters_decided = max(leases.dead_letters_decided, leases.dead_lettered) + len(seqs)
        return [DeadLettered(topic.id, partition.number, leases.dead_letters_decided)]

    def rollback() -> None:
        leases.dead_letters_decided -= len(seqs)
        leases.put_back_dead(seqs)

    move_jobs(
        core,
        topic,
        seqs,
        target,
        new_meta,
        lambda error: done(len(seqs) if error is None else 0),
        partition=partition,
        created=created,
        facts=counted,
        rollback=rollback,
    )


def _leases(partition: Partition) -> Leases:
    assert partition.leases is not None
    return partition.leases
