"""What a run wrote and what was acknowledged, and whether a server that came back after a cut keeps its promises.

The positions of acknowledgements are numbers of journal entries: an operation was acknowledged before a cut if the
position that was read after its acknowledgement is not behind the cut.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from topics.testing.http import Api

CLASSES = ("ephemeral", "memory", "disk", "fsync")
# Occurs in every payload of an ephemeral topic and must never reach the disk.
EPHEMERAL_MARK = "ephemeral-payload"


@dataclass
class Append:
    """One batch. `first_seq` and `position` are None until it is acknowledged."""

    payloads: list[str]
    first_seq: int | None = None
    position: int | None = None


@dataclass
class Delete:
    """A delete of one record by its tag."""

    seq: int
    position: int | None = None


@dataclass
class TopicHistory:
    """Everything that one writer did to one topic, in order."""

    name: str
    durability: str
    created_position: int | None = None
    appends: list[Append] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    # Acknowledged seqs that an earlier cut took; later runs wrote behind them.
    lost: set[int] = field(default_factory=set)

    def acknowledged(self, cut: int) -> dict[int, str]:
        """Payload by seq of what was acknowledged before the cut."""
        found: dict[int, str] = {}
        for append in self.appends:
            if append.first_seq is not None and append.position is not None and append.position <= cut:
                for number, text in enumerate(append.payloads):
                    found[append.first_seq + number] = text
        return found

    def rebase(self, acknowledged: dict[int, str], missing: set[int], cut: int) -> None:
        """Begin the next run on the image of a cut: what was acknowledged before it is certain, the rest is forgotten.

        What was under way at the cut may be in the image. It stays known, so that it is not taken for invented data.
        """
        unknown = [each for each in self.appends if each.position is None or each.position > cut]
        certain = [Append([text], seq, 0) for seq, text in sorted(acknowledged.items())]
        self.lost |= missing
        self.appends = certain + [Append(each.payloads) for each in unknown]
        self.deletes = [
            Delete(each.seq, 0 if each.position is not None and each.position <= cut else None) for each in self.deletes
        ]
        if self.created_position is not None:
            self.created_position = 0 if self.created_position <= cut else None


class Broken(AssertionError):
    """A promise was broken."""


def call(api: Api, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """One request that must succeed."""
    headers = {} if body is None else {"Content-Type": "application/json"}
    answer = api.send(method, path, None if body is None else json.dumps(body).encode(), headers)
    if answer.status not in (200, 201):
        raise Broken(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
    return dict(json.loads(answer.body))


def pages(api: Api, topic: str) -> Iterator[dict[str, Any]]:
    """Every page of a topic, from the beginning."""
    cursor = 0
    while True:
        page = call(api, "POST", f"/v0/topics/{topic}/diff", {"from_seq": cursor, "limit": 1000})
        yield page
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return


def verify(api: Api, topic: TopicHistory, cut: int) -> tuple[dict[int, str], set[int]]:
    """Check one topic of a server that was started on the image of a cut.

    Returns what was acknowledged before the cut, and which of these seqs the cut took. Raises Broken.
    """
    if topic.created_position is None or topic.created_position > cut:
        # Its creation was not acknowledged: it may exist or not.
        return {}, set()
    records: dict[int, Any] = {}
    lost: list[tuple[int, int]] = []
    last = 0
    for page in pages(api, topic.name):
        if page["tombstone"] is not None:
            lost.append((page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]))
        for record in page["records"]:
            if record["$seq"] <= last:
                raise Broken(f"{topic.name}: seq {record['$seq']} after {last}")
            last = record["$seq"]
            records[last] = record["data"]
    acknowledged = topic.acknowledged(cut)
    attempted = {"after the cut"} | {text for append in topic.appends for text in append.payloads}
    for seq, data in records.items():
        if data not in attempted:
            raise Broken(f"{topic.name}: seq {seq} has data that was never written: {str(data)[:80]!r}")
        if seq in acknowledged and data != acknowledged[seq]:
            raise Broken(f"{topic.name}: seq {seq} has {str(data)[:80]!r}, acknowledged was {acknowledged[seq][:80]!r}")
    deleted = {each.seq for each in topic.deletes}
    deleted_for_sure = {each.seq for each in topic.deletes if each.position is not None and each.position <= cut}
    missing = [seq for seq in acknowledged if seq not in records and seq not in deleted]
    if topic.durability == "fsync":
        if missing:
            raise Broken(f"{topic.name}: acknowledged seqs {missing[:5]} are missing ({len(missing)} in all)")
        back = deleted_for_sure & records.keys()
        if back:
            raise Broken(f"{topic.name}: deleted seqs {sorted(back)[:5]} came back")
    silent = [seq for seq in missing if not any([first <= seq <= end for first, end in lost])]
    if silent:
        raise Broken(
            f"{topic.name}: acknowledged seqs {silent[:5]} are missing without a tombstone ({len(silent)} in all)"
        )
    newly = [seq for seq in missing if seq not in topic.lost]
    if topic.durability in ("memory", "disk") and newly:
        later = [seq for seq in records if seq in acknowledged and seq > min(newly)]
        if later:
            raise Broken(f"{topic.name}: seq {min(newly)} is lost but the later seq {later[0]} is not")
    if topic.durability == "ephemeral" and records:
        raise Broken(f"{topic.name}: an ephemeral topic has {len(records)} records after a restart")
    first = call(api, "POST", f"/v0/topics/{topic.name}", {"records": [{"data": "after the cut"}]})["first_seq"]
    if acknowledged and first <= max(acknowledged):
        raise Broken(f"{topic.name}: seq {first} was assigned again; {max(acknowledged)} was acknowledged")
    return acknowledged, set(newly)


class Writer(threading.Thread):
    """Appends batches to a topic and deletes some records, until it is stopped or the server ends."""

    def __init__(self, url: str, topic: TopicHistory, position: Callable[[], int], seed: int) -> None:
        super().__init__(name=topic.name)
        self._url = url
        self._topic = topic
        self._position = position
        self._chance = random.Random(seed)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        path = f"/v0/topics/{self._topic.name}"
        try:
            with Api(self._url) as api:
                if self._topic.created_position is None:
                    call(api, "PUT", path, {"durability": self._topic.durability})
                    self._topic.created_position = self._position()
                while not self.stopping.is_set():
                    self._step(api, path)
        except (OSError, HTTPException, Broken) as error:
            # Expected when the server is killed while a request is under way.
            self.failure = error

    def _step(self, api: Api, path: str) -> None:
        chance = self._chance
        size = chance.choice((20, 100, 1000, 6000))
        payloads = [self._payload(size) for _ in range(chance.choice((1, 1, 1, 5, 50)))]
        append = Append(payloads)
        self._topic.appends.append(append)
        body = {"records": [{"data": text, "tag": text[:24]} for text in payloads]}
        append.first_seq = call(api, "POST", path, body)["first_seq"]
        append.position = self._position()
        if chance.random() < 0.1:
            delete = Delete(append.first_seq)
            self._topic.deletes.append(delete)
            call(api, "POST", f"{path}/delete", {"match": ["tag", "Eq", payloads[0][:24]]})
            delete.position = self._position()

    def _payload(self, size: int) -> str:
        mark = EPHEMERAL_MARK if self._topic.durability == "ephemeral" else "x"
        return f"{self._chance.getrandbits(96):024x} {mark} " + "y" * size
