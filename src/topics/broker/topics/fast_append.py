"""FastAppend: single records that were gathered for one topic are written, applied and answered in one call.

It has the same effect as `Broker.join`, whose group is queued, encoded, written, applied and answered in about sixty steps,
and calls the same functions: `Partition.reserve`, `encode_append`, `WalWriter.write`, `State.append`, `Core.evict`,
`Core.appended`. It serves every shape of a record and every topic that accepts all writes; it is used only when the other steps
have nothing to decide: no write is queued, none waits for a sync on this partition, and the topic needs no sync. Otherwise
`write` returns False and has changed nothing.

docs/decisions/0013-fast-append.md has what it saves.
"""

from collections.abc import Sequence
from typing import Any

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.sync_policy import must_sync
from topics.broker.topics.append import ReplyAppends, are_new
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.errors import TopicsError
from topics.model.facts import Appended, KeysKept
from topics.model.records.batch import Batch
from topics.model.records.page import Page
from topics.runtime.replies import internal_error
from topics.storage.log.frame import encode_append, encode_facts
from topics.wire.timing import commit_timing


class FastAppend:
    """The fast path to the topic of one name."""

    __slots__ = ("_config", "_core", "_evicts", "_name", "_now_ms", "_perf", "_topic_id")

    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self._name = name
        self._perf = core.runtime.perf
        self._now_ms = core.runtime.now_ms
        # The topic and the configuration that qualified last. The id and not the topic, because connections that have written to
        # it stay open after it is deleted.
        self._topic_id = -1
        self._config: TopicConfig | None = None
        self._evicts = False

    def write(self, batch: Batch, requests: Sequence[Any], reply: ReplyAppends) -> bool:
        """Do what `Broker.join` does, completely. Returns False, and nothing has happened, if that is not possible now."""
        core = self._core
        topic = core.state.topics.get(self._name)
        if topic is None or core.sealer.full or (core.busy and self._name in core.busy):
            return False
        if (topic.id != self._topic_id or topic.config is not self._config) and not self._qualifies(topic):
            return False
        if batch.keys is not None and not are_new(core, topic, batch.keys):
            return False
        partition = topic.partitions[0]
        committer = core.committer
        wal = committer.wal
        count = batch.count
        first_seq = partition.next_seq
        records = committer.unsynced_records + count
        if (
            (committer.commits and not committer.write_notes())
            or committer.writing
            or committer.unwritten_notes
            or wal.failed
            or committer.space.low
            # Nothing may be applied before what waits on the same partition, and the very first record is synced.
            or partition.waiting_sync
            or first_seq != partition.head_seq + 1
            or must_sync(topic.config, partition)
            or records > committer.margin
            or committer.notifying
        ):
            return False
        started = self._perf()
        reservation = partition.reserve(count, batch.size, self._now_ms())
        page = Page(first_seq, count, reservation.ts, batch.data, batch.metas, batch.nodes, batch.tags, batch.size)
        lsn = committer.next_lsn
        kept: KeysKept | None = None
        try:
            if batch.keys is None:
                frame = encode_append(lsn, wal.synced_lsn, topic.id, 0, page)
            else:
                writes = [(seq, 1, key) for seq, key in enumerate(batch.keys, first_seq) if key is not None]
                kept = KeysKept(topic.id, 0, reservation.ts, writes)
                frame = encode_facts(lsn, wal.synced_lsn, [Appended(topic.id, 0, page), kept])
            grown = wal.write([frame], lsn)
        except OSError:
            # Nothing of it is in the log. The normal path tries again, and reports the error if that fails too.
            reservation.release()
            return False
        except BaseException:
            # A bug of ours: what reached the log is unknown, so nothing more is written to it.
            reservation.release()
            wal.failed = True
            raise
        committer.next_lsn = lsn + 1
        committer.unsynced_records = records
        wal_ms = (self._perf() - started) * 1000
        committer.notifying = True
        error: TopicsError | None = None
        try:
            try:
                reservation.settle()
                core.state.append(topic, partition, [page])
                if kept is not None:
                    apply(core.state, kept)
                if self._evicts:
                    core.evict(topic, partition)
            except Exception:  # noqa: BLE001 - logged by `apply_failed`
                committer.apply_failed()
                error = internal_error()
            try:
                runs = ((first_seq, requests),)
                reply(topic.name_bytes, first_seq + count - 1, commit_timing(wal_ms, 0.0), runs, error)
            finally:
                # After the replies: the clients work meanwhile.
                core.counts.appends += count
                core.appended(topic, partition, page.size)
        except Exception:  # noqa: BLE001 - logged by `apply_failed`
            committer.apply_failed()
        finally:
            committer.notifying = False
        committer.wrote(grown, 1, count)
        return True

    def _qualifies(self, topic: Topic) -> bool:
        """Whether the topic accepts all writes, and its records are logged but need no sync."""
        config = topic.config
        if not self._core.quotas.takes_all(config) or config.durability not in ("disk", "memory"):
            return False
        self._topic_id = topic.id
        self._config = config
        self._evicts = bool(config.cap_records or config.cap_bytes or config.ttl_ms)
        return True
