"""Copies that routers make, live and in recovery: applying the fact `Forwarded`.

The log does not hold the records of a copy; the fact names the records of the source and the seqs of the copies. Live, the forwarder
passes the pages that it has made (`prepared`). Recovery makes the same pages again from the records of the source, which
`engine/routers/copy_sources.py` keeps while the log is replayed. So a copy has the same seq, time and text after any crash.
"""

from collections.abc import Sequence

from topics.broker.state import State
from topics.engine.routers.copying import STAMP, Columns, chosen_seqs, gather, shaped, stamped
from topics.engine.topics.topic import Topic
from topics.model.facts import DAMAGE, RESTART, Copy, Forwarded, Lost
from topics.model.records.page import Page


def forwarded(state: State, fact: Forwarded, prepared: Sequence[list[Page]] | None = None) -> None:
    """Make the copies readable and advance their routers. `prepared` has the pages of each copy, in the order of the fact."""
    for index, copy in enumerate(fact.copies):
        topic = state.by_id.get(copy.topic_id)
        if topic is not None and copy.count:
            if prepared is None:
                _make_copies(state, fact, copy, topic)
            else:
                state.append(topic, topic.partitions[copy.partition], prepared[index])
        router = state.routers.by_id.get(copy.router_id)
        if router is not None:
            router.advance(fact.partition, fact.last, copy.count)
            if copy.hops:
                # A copy without records is a gap: it has as many seqs as the source lost.
                count = copy.count or fact.last - fact.first + 1
                state.routers.copied(copy.topic_id, copy.partition, copy.first_seq, count, copy.hops)


def _make_copies(state: State, fact: Forwarded, copy: Copy, topic: Topic) -> None:
    """Recovery: make the copies again from the records of the source. The log does not hold them."""
    partition = topic.partitions[copy.partition]
    last_seq = copy.first_seq + copy.count - 1
    if topic.config.durability == "ephemeral":
        partition.apply_head(last_seq)
        return
    if last_seq <= partition.head_seq:
        return
    if copy.pages is not None:
        state.append(topic, partition, copy.pages)
        return
    seqs = chosen_seqs(fact.first, fact.last, copy.chosen)
    source = state.partition(fact.topic_id, fact.partition)
    known: list[Columns | int] = [copy.count]
    if source is not None:
        known = gather(lambda seq: state.copy_sources.find(source, seq), seqs)
    seq, at = copy.first_seq, 0
    for columns in known:
        if isinstance(columns, int):
            # These records of the source do not exist. With several log shards, as earlier versions wrote them, a power cut
            # could lose them from another shard: they were not durable, and neither were these copies. Or they are damaged
            # on disk, and so are the copies, which exist nowhere else.
            damaged = source is not None and source.is_live(seqs[at])
            reasons = DAMAGE if damaged else RESTART
            partition.apply_lost(Lost(topic.id, partition.number, seq, seq + columns - 1, reasons))
            seq, at = seq + columns, at + columns
            continue
        router = state.routers.by_id.get(copy.router_id)
        columns = shaped(columns, copy.how)
        if copy.how & STAMP and router is not None:
            origin = state.by_id[fact.topic_id]
            run = seqs[at : at + columns.count]
            columns = stamped(columns, run, router.name, origin.name, origin.epoch, fact.partition)
        state.append(topic, partition, [columns.page(seq, fact.ts + copy.late_ms)])
        seq, at = seq + columns.count, at + columns.count
