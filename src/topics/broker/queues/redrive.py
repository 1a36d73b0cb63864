"""Redrive: dead letters become jobs again, in the queues they came from.

The copy to the queue and the delete from the dead-letter topic are in one frame, as when they were moved there (`dead_letters.py`): a
crash leaves all of it or nothing. The copy has the same data, tag and node; the keys that say where it came from are removed
from `meta`. It is delivered as a new job.
"""

from collections.abc import Callable

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.queues.move_jobs import first_commit, move_jobs
from topics.engine.partitions.partition import Partition
from topics.engine.queues.redrive import DeadLetters, MayTouch, WantedLetters, find_dead_letters
from topics.engine.topics.topic import Topic
from topics.model.dead_letter_meta import without_origin
from topics.model.errors import TopicsError, topic_not_found
from topics.runtime.replies import error_of, send


class RedriveResult(Struct):
    moved: dict[str, int]
    skipped: int
    remaining: int


RedriveReply = Callable[[RedriveResult | TopicsError], None]


def redrive(
    core: Core, name: str, wanted: WantedLetters, may_touch: MayTouch, reply: RedriveReply, *, dry_run: bool
) -> None:
    """Move the wanted dead letters of the topic back. `dry_run`: only count them. Letters of queues outside `may_touch` stay."""
    topic = core.topic(name)
    partition = topic.partitions[0]
    core.evict(topic, partition)

    def found(letters: DeadLetters, error: BaseException | None) -> None:
        if error is not None:
            send(reply, error_of(error))
        elif dry_run:
            counts = {queue: len(seqs) for queue, seqs in letters.by_queue.items()}
            send(reply, RedriveResult(counts, letters.skipped, letters.remaining))
        else:
            _Move(core, topic, partition, letters, reply).go_on()

    core.slices.run(find_dead_letters(core.state.topics, topic, wanted, may_touch), found)


class _Move:
    """The commits of one request, one after the other."""

    def __init__(
        self, core: Core, topic: Topic, partition: Partition, letters: DeadLetters, reply: RedriveReply
    ) -> None:
        self._core = core
        self._topic = topic
        self._partition = partition
        self._left = [(queue, seqs) for queue, seqs in letters.by_queue.items()]
        self._result = RedriveResult({}, letters.skipped, letters.remaining)
        self._reply = reply

    def go_on(self) -> None:
        """Move the next ones, or reply."""
        core, topic = self._core, self._topic
        if not self._left:
            send(self._reply, self._result)
            return
        queue, seqs = self._left[0]
        for name in (topic.name, queue):
            # While one of the topics is being created, changed or deleted: run again when that is decided.
            if core.parked(name, self.go_on, lambda error: send(self._reply, error)):
                return
        if not core.exists(topic):
            send(self._reply, topic_not_found(topic.name))
            return
        alive = [seq for seq in seqs if self._partition.is_live(seq)]
        target = core.state.topics.get(queue)
        if target is None or target.config.type != "queue" or not alive:
            self._left.pop(0)
            self._result.skipped += len(alive)
            core.runtime.call_soon(self.go_on)
            return
        some = first_commit(self._partition, alive)
        self._left[0] = (queue, alive[len(some) :])
        try:
            move_jobs(
                core,
                topic,
                some,
                target,
                lambda _, meta: without_origin(meta),
                lambda error: self._committed(queue, len(some), error),
                partition=self._partition,
            )
        except TopicsError as error:
            if not self._result.moved:
                send(self._reply, error)
                return
            # What was moved is answered; the queue is full, or the log refuses writes.
            self._left.pop(0)
            self._result.skipped += len(alive)
            core.runtime.call_soon(self.go_on)

    def _committed(self, queue: str, moved: int, error: TopicsError | None) -> None:
        if error is not None:
            send(self._reply, error)
            return
        self._result.moved[queue] = self._result.moved.get(queue, 0) + moved
        # In another turn: the reply of this commit is sent first.
        self._core.runtime.call_soon(self.go_on)
