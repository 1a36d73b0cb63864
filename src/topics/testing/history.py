"""Histories of live readers, compared with a model of the topics.

`Truth` models one instance of a topic: what was written, deleted on purpose and lost. `History` takes the frames of one reader
and raises `Broken` for the first one that violates a guarantee:

    records arrive in the order of their seqs, each once, with the data that was written
    a skipped seq was deleted on purpose, is of the reader's own node, or is covered by a tombstone
    a tombstone begins at the reader's cursor and covers no record that could still be read
    caught-up arrives at the head, and topic-deleted only for a topic that was deleted
    after a reconnect the frames continue at the reader's cursor
"""

from typing import Any

NODES = 3
TAGS = 7


class Truth:
    """One instance of a topic. The content of a record follows from its seq, so records are not stored."""

    def __init__(self, name: str, instance: int) -> None:
        self.name = name
        self.instance = instance
        self.head = 0
        self.gone = False
        # Records below were evicted by a cap or by their age.
        self.lost_below = 1
        self.deleted_below = 1
        # Tags (by their number) deleted up to a seq.
        self.deleted_tags: dict[int, int] = {}

    def data(self, seq: int) -> str:
        return f"{self.name} {self.instance} {seq}"

    @staticmethod
    def node(seq: int) -> int:
        return seq % NODES

    @staticmethod
    def tag(seq: int) -> int:
        return seq % TAGS

    def deleted(self, seq: int) -> bool:
        return seq < self.deleted_below or seq <= self.deleted_tags.get(seq % TAGS, 0)


class Broken(AssertionError):
    """A guarantee is violated; says which, and by what frame."""


class History:
    """The frames of one reader. `cursors` has its position in each topic."""

    def __init__(self, own_node: int | None) -> None:
        self.own_node = own_node
        self.cursors: dict[str, int] = {}
        # None after a tombstone `recreated`, which does not say which topic of that name it is now: the next record does.
        self.instances: dict[str, Truth | None] = {}
        self.over: set[str] = set()
        self.frames = 0
        self.records = 0
        self.tombstones = 0

    def begin(self, truth: Truth, from_seq: int) -> None:
        """The reader is in this topic, after `from_seq`."""
        self.cursors[truth.name] = from_seq
        self.instances[truth.name] = truth
        self.over.discard(truth.name)

    def receive(self, event: str, body: dict[str, Any], truths: dict[int, Truth]) -> None:
        """Check one frame; `truths` has all topics that ever existed, by their instance."""
        self.frames += 1
        name = body["topic"]
        if name in self.over:
            raise Broken(f"{name} has ended, but got: {event} {body}")
        if event == "record":
            truth = self.instances[name]
            if truth is None:
                truth = self.instances[name] = truths[int(body["records"][0]["data"].split()[1])]
            self._records(name, truth, body)
        elif event == "tombstone":
            self._tombstone(name, body)
        elif event == "caught-up":
            if body["head_seq"] < self.cursors[name] or not self.may_pass(name, body["head_seq"]):
                raise Broken(f"caught up before the head: {body}, cursor {self.cursors[name]}")
            self.cursors[name] = body["head_seq"]
        elif event == "topic-deleted":
            truth = self.instances[name]
            if truth is not None and not truth.gone:
                raise Broken(f"reported as deleted but exists: {body}")
            self.over.add(name)
        else:
            raise Broken(f"unknown event {event}")

    def _records(self, name: str, truth: Truth, body: dict[str, Any]) -> None:
        cursor = self.cursors[name]
        from_seq, to_seq = body["from_seq"], body["to_seq"]
        if from_seq < cursor:
            raise Broken(f"goes back from {cursor}: {body}")
        if not from_seq <= to_seq <= body["head_seq"] <= truth.head:
            raise Broken(f"numbers do not agree: {body}")
        if not body["records"]:
            raise Broken(f"a frame without records: {body}")
        expected = cursor + 1
        for record in body["records"]:
            seq = record["$seq"]
            if seq < expected:
                raise Broken(f"{name} {seq} repeated or out of order, {expected} was next: {body}")
            for passed in range(expected, seq):
                self._check_passable(truth, passed, body)
            if record["data"] != truth.data(seq):
                raise Broken(f"{name} {seq} holds {record['data']!r}")
            if self.own_node is not None and truth.node(seq) == self.own_node:
                raise Broken(f"{name} {seq} is the reader's own")
            expected = seq + 1
        for passed in range(expected, to_seq + 1):
            self._check_passable(truth, passed, body)
        self.cursors[name] = to_seq
        self.records += len(body["records"])

    def _tombstone(self, name: str, body: dict[str, Any]) -> None:
        self.tombstones += 1
        truth = self.instances[name]
        if body["reason"] == "recreated":
            if truth is not None and not truth.gone:
                raise Broken(f"reported as created again but is the same topic: {body}")
            self.instances[name] = None
            self.cursors[name] = body["gap_to"]
            return
        if not self.may_pass(name, body["gap_from"] - 1) or body["gap_from"] - 1 < self.cursors[name]:
            raise Broken(f"does not begin at {self.cursors[name]}: {body}")
        if truth is not None:
            for seq in range(max(body["gap_from"], truth.lost_below), body["gap_to"] + 1):
                self._check_passable(truth, seq, body)
        self.cursors[name] = body["gap_to"]

    def may_pass(self, name: str, up_to: int) -> bool:
        """Whether the cursor may move up to there without a frame: no record is for this reader."""
        truth = self.instances[name]
        return truth is None or all([self._passable(truth, seq) for seq in range(self.cursors[name] + 1, up_to + 1)])

    def _check_passable(self, truth: Truth, seq: int, body: dict[str, Any]) -> None:
        if not self._passable(truth, seq):
            raise Broken(f"{truth.name} {seq} is missing without a tombstone: {body}")

    def _passable(self, truth: Truth, seq: int) -> bool:
        """Whether the cursor may move past this seq without a frame."""
        return truth.deleted(seq) or (self.own_node is not None and truth.node(seq) == self.own_node)
