"""Routers: which topics are forwarded where, how far each has come, and how often a record has gone around a cycle.

A dest has one source, however many routers lie between the two, so the routers above a topic form one line that either
ends or runs into a cycle. A record in a cycle of n topics is forwarded n - 1 times, so that it reaches all of them. Its hop
count is stored beside the log until every router has read the record. A reported gap is forwarded in the same way.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from topics.model.facts import RouterCreated
from topics.model.router import RouterOptions

# However long an allowed cycle is, no record goes further around it.
MAX_HOPS = 64


class Router:
    """One forwarding rule."""

    __slots__ = (
        "created_ts", "cursors", "cycle", "dest_id", "forwarded_total", "id", "known_to", "name", "options", "source_id",
    )  # fmt: skip

    def __init__(self, fact: RouterCreated) -> None:
        self.id = fact.router_id
        self.name = fact.name
        self.source_id = fact.source_id
        self.dest_id = fact.dest_id
        self.options = fact.options
        self.created_ts = fact.ts
        # Per partition of the source: the last seq that was looked at.
        self.cursors = list(fact.cursors)
        self.known_to = list(fact.known_to)
        self.forwarded_total = 0
        # How many topics the cycle has that this router is part of; 0 when it is in none.
        self.cycle = 0

    def advance(self, partition: int, last: int, count: int) -> None:
        """Everything up to `last` was looked at and `count` records were copied; a repeat does nothing."""
        if last > self.cursors[partition]:
            self.cursors[partition] = last
            self.forwarded_total += count

    @property
    def max_hops(self) -> int:
        """A record of the source with this many hops has been in the dest already."""
        return min(self.cycle - 1, MAX_HOPS)


class Hops:
    """How often the copies in a partition have been forwarded. Runs in the order of their seqs; others count 0."""

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._lasts = array("Q")
        self._hops = array("B")

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first_seq: int, count: int, hops: int | bytes) -> None:
        """A repeat does nothing."""
        if self._lasts and first_seq <= self._lasts[-1]:
            return
        if isinstance(hops, int):
            self._add(first_seq, first_seq + count - 1, hops)
        else:
            for seq, each in enumerate(hops, first_seq):
                self._add(seq, seq, each)

    def of(self, seqs: Sequence[int]) -> bytes:
        """One byte for each of the ascending seqs."""
        result = bytearray(len(seqs))
        if seqs:
            index = max(bisect_right(self._firsts, seqs[0]) - 1, 0)
            while index < len(self._firsts):
                start = bisect_left(seqs, self._firsts[index])
                if start == len(seqs):
                    break
                stop = bisect_right(seqs, self._lasts[index])
                if stop > start:
                    result[start:stop] = bytes([self._hops[index]]) * (stop - start)
                index += 1
        return bytes(result)

    def run(self, seq: int) -> tuple[int, int | None]:
        """The hops of a seq, and the last one behind it that has as many; None when all have."""
        index = bisect_right(self._firsts, seq) - 1
        if index >= 0 and seq <= self._lasts[index]:
            return self._hops[index], self._lasts[index]
        return 0, self._firsts[index + 1] - 1 if index + 1 < len(self._firsts) else None

    def prune(self, below: int) -> None:
        """Drop runs below this seq: every router has examined them."""
        gone = bisect_left(self._lasts, below)
        if gone >= 64 or gone == len(self._lasts):
            del self._firsts[:gone], self._lasts[:gone], self._hops[:gone]

    def all(self) -> list[tuple[int, int, int]]:
        return list(zip(self._firsts, self._lasts, self._hops, strict=True))

    def _add(self, first: int, last: int, hops: int) -> None:
        if self._lasts and self._lasts[-1] + 1 == first and self._hops[-1] == hops:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
            self._hops.append(hops)


class Routers:
    """All routers, by name and by what they connect. A section of every snapshot."""

    def __init__(self) -> None:
        self.by_name: dict[str, Router] = {}
        self.by_id: dict[int, Router] = {}
        self.by_source: dict[int, list[Router]] = {}
        self.by_dest: dict[int, list[Router]] = {}
        # Sorted, for listing by prefix.
        self.names: list[str] = []
        self.next_id = 1
        self.hops: dict[tuple[int, int], Hops] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, router: Router) -> None:
        self.by_id[router.id] = router
        # In replay a router may come back for a while whose name belongs to a later one already.
        current = self.by_name.get(router.name)
        if current is None:
            insort(self.names, router.name)
        if current is None or current.id < router.id:
            self.by_name[router.name] = router
        self.by_source.setdefault(router.source_id, []).append(router)
        self.by_dest.setdefault(router.dest_id, []).append(router)
        self.next_id = max(self.next_id, router.id + 1)
        self._mark_cycle(router)

    def remove(self, router_id: int) -> Router | None:
        self.next_id = max(self.next_id, router_id + 1)
        router = self.by_id.pop(router_id, None)
        if router is None:
            return None
        if self.by_name.get(router.name) is router:
            del self.by_name[router.name]
            del self.names[bisect_left(self.names, router.name)]
        for routers, key in ((self.by_source, router.source_id), (self.by_dest, router.dest_id)):
            routers[key].remove(router)
            if not routers[key]:
                del routers[key]
        if router.cycle and router.dest_id not in self.by_dest:
            self.find_cycles()
        return router

    def touching(self, topic_id: int) -> list[Router]:
        """Every router with the topic as source or dest, in the order of their names."""
        found = {each.name: each for each in (*self.by_source.get(topic_id, ()), *self.by_dest.get(topic_id, ()))}
        return [found[name] for name in sorted(found)]

    def topic_ids(self) -> set[int]:
        """Every topic that a router connects with another."""
        return {*self.by_source, *self.by_dest}

    def source_of(self, topic_id: int) -> int | None:
        """Whose copies the topic takes."""
        routers = self.by_dest.get(topic_id)
        return routers[0].source_id if routers else None

    def line_up(self, topic_id: int) -> list[int]:
        """The topic, its source, the source of that, and so on; each once."""
        line: dict[int, None] = {}
        at: int | None = topic_id
        while at is not None and at not in line:
            line[at] = None
            at = self.source_of(at)
        return list(line)

    def cycle_with(self, source_id: int, dest_id: int) -> list[int] | None:
        """The cycle, from dest to dest, that a new route would close; None when it closes none or is there already."""
        if self.source_of(dest_id) == source_id:
            return None
        line = self.line_up(source_id)
        if dest_id not in line:
            return None
        return [*reversed(line[: line.index(dest_id) + 1]), dest_id]

    def listed(self, prefix: str, after: str) -> Iterator[Router]:
        """Routers whose name has the prefix, in order, behind `after`."""
        for position in range(bisect_left(self.names, max(prefix, after)), len(self.names)):
            name = self.names[position]
            if not name.startswith(prefix):
                return
            if name > after or not after:
                yield self.by_name[name]

    # Hops

    def hops_of(self, topic_id: int, partition: int) -> Hops | None:
        return self.hops.get((topic_id, partition))

    def copied(self, topic_id: int, partition: int, first_seq: int, count: int, hops: int | bytes) -> None:
        """Records that have gone around a cycle so far have arrived in a partition."""
        if topic_id not in self.by_source:
            return
        kept = self.hops.get((topic_id, partition))
        if kept is None:
            kept = self.hops[topic_id, partition] = Hops()
        kept.add(first_seq, count, hops)
        if len(kept) >= 128:
            kept.prune(self._looked_at(topic_id, partition))

    def _looked_at(self, topic_id: int, partition: int) -> int:
        """Every router of the topic that is in its cycle has read the records below this seq."""
        return min([each.cursors[partition] + 1 for each in self.by_source[topic_id] if each.cycle], default=1 << 63)

    def find_cycles(self) -> None:
        """Find all cycles again: a router was removed, or recovery is done."""
        for each in self.by_id.values():
            each.cycle = 0
        for each in self.by_id.values():
            if not each.cycle:
                self._mark_cycle(each)
        in_cycle = {each.source_id for each in self.by_id.values() if each.cycle}
        self.hops = {key: hops for key, hops in self.hops.items() if key[0] in in_cycle}

    def _mark_cycle(self, router: Router) -> None:
        line = self.line_up(router.source_id)
        if router.dest_id in line:
            length = line.index(router.dest_id) + 1
            for topic_id in line[:length]:
                for each in self.by_dest.get(topic_id, ()):
                    each.cycle = length

    # Snapshot

    def capture(self) -> bytes:
        routers = [
            RouterImage(
                each.id,
                each.name,
                each.source_id,
                each.dest_id,
                each.options,
                list(each.cursors),
                list(each.known_to),
                each.created_ts,
                each.forwarded_total,
            )
            for each in self.by_id.values()
        ]
        hops = [(topic_id, partition, kept.all()) for (topic_id, partition), kept in self.hops.items()]
        return msgspec.msgpack.encode(RoutersImage(routers, hops, self.next_id))

    def restore(self, body: bytes) -> None:
        image = msgspec.msgpack.decode(body, type=RoutersImage)
        for each in image.routers:
            created = RouterCreated(
                each.id, each.name, each.source_id, each.dest_id, each.options, each.cursors, each.known_to, each.ts
            )
            router = Router(created)
            router.forwarded_total = each.forwarded_total
            self.add(router)
        for topic_id, partition, runs in image.hops:
            kept = self.hops[topic_id, partition] = Hops()
            for first, last, hops in runs:
                kept.add(first, last - first + 1, hops)
        self.next_id = max(self.next_id, image.next_id)


class RouterImage(Struct, array_like=True):
    id: int
    name: str
    source_id: int
    dest_id: int
    options: RouterOptions
    cursors: list[int]
    known_to: list[int]
    ts: int
    forwarded_total: int


class RoutersImage(Struct):
    routers: list[RouterImage]
    hops: list[tuple[int, int, list[tuple[int, int, int]]]]
    next_id: int
