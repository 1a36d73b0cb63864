"""A topic: a name, a configuration, and one or more partitions that hold its records."""

from topics.engine.cache import Cache
from topics.engine.groups.group import Group
from topics.engine.leases.lease import Leases
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.topics.dedupe import Dedupe
from topics.engine.topics.priority import effective_priority
from topics.model.config import TopicConfig
from topics.model.tables.archive import Archive
from topics.model.tables.route import Route


class Topic:
    """One instance of a named topic. A topic deleted and created again is another instance with another id."""

    def __init__(
        self,
        topic_id: int,
        name: str,
        config: TopicConfig,
        partitions: int,
        ts: int,
        *,
        texts: Cache,
        totals: Totals,
    ) -> None:
        self.id = topic_id
        self.name = name
        self.name_bytes = name.encode()
        self.config = config
        self.created_ts = ts
        self.partitions = [Partition(topic_id, number, texts, totals) for number in range(partitions)]
        if config.type == "queue":
            for partition in self.partitions:
                partition.leases = Leases()
        self.dedupe = Dedupe()
        # A second name, the table changes that come in, where the records go, and how far consumer groups have come.
        self.alias: str | None = None
        self.routes: list[Route] = []
        self.archive: Archive | None = None
        self.groups: dict[str, Group] = {}
        self.last_write_ts: int | None = None
        self.last_read_ts: int | None = None

    @property
    def epoch(self) -> int:
        """Distinguishes instances of one name; a later one has a larger epoch."""
        return self.id

    @property
    def count(self) -> int:
        return sum([partition.count for partition in self.partitions])

    @property
    def bytes(self) -> int:
        return sum([partition.bytes for partition in self.partitions])

    def effective_priority(self, now_ms: int) -> int:
        return effective_priority(self.config, self.last_read_ts, now_ms)
