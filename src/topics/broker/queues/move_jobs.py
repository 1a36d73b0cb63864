"""Moving jobs: records are copied from one topic to another and deleted from the first, in one frame.

A crash leaves all of it or nothing: no job is lost and none exists twice. Dead letters (`dead_letters.py`) and their way back
(`redrive.py`) are such moves.
"""

from collections.abc import Callable, Sequence

from topics.broker.core import Core
from topics.broker.topics.append import decide_append
from topics.broker.topics.append_with_facts import AppendWithFacts
from topics.engine.leases.lease import seqs_bytes
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import Deleted, Fact
from topics.model.records.batch import Batch
from topics.model.records.page import SEPARATOR, Page, column, page_datas, page_size
from topics.runtime.replies import ignore

# The largest commit. More jobs are moved by several commits, one after the other, so that each is applied quickly.
MAX_MOVE_RECORDS = 250
MAX_MOVE_BYTES = 2 << 20


def first_commit(partition: Partition, seqs: list[int]) -> list[int]:
    """The first of these live jobs, as many as one commit moves."""
    size = 0
    for index, seq in enumerate(seqs[:MAX_MOVE_RECORDS]):
        size += partition.segment_at(seq).size_between(seq, seq + 1)
        if size > MAX_MOVE_BYTES and index:
            return seqs[:index]
    return seqs[:MAX_MOVE_RECORDS]


def move_jobs(
    core: Core,
    topic: Topic,
    seqs: list[int],
    target: Topic,
    new_meta: Callable[[int, bytes], bytes],
    done: Callable[[TopicsError | None], None],
    *,
    partition: Partition,
    created: Sequence[Fact] = (),
    facts: Callable[[], list[Fact]] = list,
    rollback: Callable[[], None] | None = None,
) -> None:
    """Submit the commit that moves these live jobs, in ascending order, to the first partition of the target.

    `new_meta` returns the meta of a copy by the seq and the meta of the job. `created` creates the target. `facts` is called when the
    copies have their seqs, and returns what is logged besides. Raises a TopicsError when the target has no room or the log
    refuses writes; then nothing has changed.
    """
    core.committer.check_writable()
    # The copies have a frame of their own, after the writes of this turn and before later ones.
    core.close_group(target.partitions[0])
    group = decide_append(core, target, _copies(partition, seqs, new_meta), ignore)
    core.close_group(target.partitions[0])
    assert group is not None
    if created:
        core.begin_create(target)
    deleted = Deleted(topic.id, partition.number, seqs_bytes(seqs))
    # Records of an ephemeral topic are not in the log, and neither are their deletes.
    logged: list[Fact] = [] if topic.config.durability == "ephemeral" else [deleted]

    def rolled_back() -> None:
        if created:
            core.state.cancel_create(target)
        if rollback is not None:
            rollback()

    commit = AppendWithFacts(
        group,
        done,
        before=created,
        after=[*logged, *facts()],
        unlogged=[] if logged else [deleted],
        partition=partition,
        after_apply=lambda commit: core.records_removed(partition, commit.lsn),
        rollback=rolled_back,
        release=(lambda: core.release(target.name)) if created else None,
    )
    core.committer.submit(commit)


def _copies(partition: Partition, seqs: list[int], new_meta: Callable[[int, bytes], bytes]) -> Batch:
    columns: list[list[bytes]] = [[], [], [], []]
    page: Page | None = None
    texts: list[list[bytes]] = []
    for seq in seqs:
        if page is None or seq > page.last_seq:
            page = partition.find(seq)
            assert page is not None
            # Split once for all jobs of the page.
            texts = [page_datas(page), *[column(each, page.count) for each in (page.metas, page.nodes, page.tags)]]
        values = [each[seq - page.first_seq] for each in texts]
        values[1] = new_meta(seq, values[1])
        for collected, value in zip(columns, values, strict=True):
            collected.append(value)
    data = SEPARATOR.join(columns[0])
    metas, nodes, tags = [SEPARATOR.join(each) if any(each) else None for each in columns[1:]]
    return Batch(len(seqs), data, metas, nodes, tags, page_size(len(seqs), data, metas, nodes, tags))
