"""Every way to read a topic, each as a generator of what one answer, frame or batch brings.

A path ends when it has caught up; a reading with a `sentinel` ends when it has come as far as that record.
"""

import json
import random
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql.streaming.datasource import ReadMaxRows
from websockets.sync.client import connect

from tests.simulation.read_world import LARGE, OWN, Item, ReadWorld, Sizes
from topics.archive import piece as archive_piece
from topics.archive.history import read_records
from topics.archive.ledger import open_archive
from topics.client import Tombstone
from topics.server.topics import diff as server_diff
from topics.spark.archive import source as spark_archive
from topics.spark.archive.sink import ArchiveWriter
from topics.spark.archive.source import ArchivePlan, ArchiveReader
from topics.spark.connector import reading as spark_reading
from topics.spark.connector.options import source_options
from topics.spark.connector.source import BatchReader, RangePartition, StreamReader
from topics.testing.events import EventStream

WAIT_MS = 10_000
# Longer than what worlds age by, so that no job is delivered twice.
LEASE_MS = 86_400_000
ARROW = "application/vnd.apache.arrow.stream"


class Reading:
    """One walk along one path: the world it reads, and where its page sizes come from."""

    def __init__(self, world: ReadWorld, seed: int, own: str | None, patch: pytest.MonkeyPatch, place: Path) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.sizes = Sizes(world, self.chance)
        # Records of this node are left out, by paths that can.
        self.own = own
        self.patch = patch
        self.place = place
        # Live paths end here, others where they have caught up.
        self.sentinel: int | None = None
        # Up to where it has come.
        self.reached = 0

    def is_over(self, caught_up: bool) -> bool:
        return caught_up if self.sentinel is None else self.reached >= self.sentinel


ReadPath = Callable[[Reading], Iterator[list[Item]]]


# Pages


def json_diff(reading: Reading, wait_ms: int = 0) -> Iterator[list[Item]]:
    while True:
        cursor = reading.reached
        body = _page_body(reading, cursor)
        page = reading.world.server.api.post(_path(reading, "diff"), {**body, "wait_ms": wait_ms}).json
        seqs = [record["$seq"] for record in page["records"]]
        _check_page(reading, cursor, page, seqs)
        records = [Item(record["$seq"], record["$seq"], record["data"]) for record in page["records"]]
        reading.reached = page["next_from_seq"]
        yield _lost(page["tombstone"]) + records
        if page["caught_up"]:
            return


def arrow_diff(reading: Reading) -> Iterator[list[Item]]:
    while True:
        cursor = reading.reached
        body = json.dumps(_page_body(reading, cursor)).encode()
        headers = {"Content-Type": "application/json", "Accept": ARROW}
        answer = reading.world.server.api.send("POST", _path(reading, "diff"), body, headers)
        assert answer.status == 200, answer
        stream = pa.ipc.open_stream(answer.body)
        page = {name.decode(): json.loads(value) for name, value in stream.schema.metadata.items()}
        rows = stream.read_all().to_pylist()
        _check_page(reading, cursor, page, [row["seq"] for row in rows])
        reading.reached = page["next_from_seq"]
        yield _lost(page["tombstone"]) + [Item(row["seq"], row["seq"], json.loads(row["data"])) for row in rows]
        if page["caught_up"]:
            return


def long_poll(reading: Reading) -> Iterator[list[Item]]:
    """Pages as long as there are some, then a wait for records that come while it lasts."""
    world = reading.world
    yield from json_diff(reading, wait_ms=1)
    asked = {"from_seq": reading.reached, "wait_ms": WAIT_MS} | _node(reading)
    with ThreadPoolExecutor(1) as pool:
        polls = world.server.house.broker.polls
        waiting = pool.submit(world.server.api.post, _path(reading, "diff"), asked)
        world.server.until(lambda: polls or waiting.done())
        world.append(2, OWN)
        world.append(3, "other")
        page = waiting.result(WAIT_MS).json
    reading.reached = page["next_from_seq"]
    yield _lost(page["tombstone"]) + [Item(each["$seq"], each["$seq"], each["data"]) for each in page["records"]]
    yield from json_diff(reading, wait_ms=1)


def _page_body(reading: Reading, cursor: int) -> dict[str, Any]:
    limit, budget = reading.sizes.page(cursor)
    body = {"from_seq": cursor, "limit": limit, "max_batch_bytes": budget} | _node(reading)
    if reading.chance.random() < 0.3:
        body["to_seq"] = cursor + reading.chance.choice([1, 10, 1000])
    return body


def _check_page(reading: Reading, cursor: int, page: dict[str, Any], seqs: list[int]) -> None:
    """What holds for every page, whatever was read before it."""
    next_from_seq = page["next_from_seq"]
    assert next_from_seq > cursor or page["caught_up"], "a page that is not the last goes on"
    assert all([cursor < seq <= next_from_seq for seq in seqs])
    assert page["caught_up"] is (next_from_seq >= page["head_seq"])
    if "records_live" in page and reading.own is None:
        assert page["records_live"] == len(seqs)


# Live readers


def sse_watch(reading: Reading) -> Iterator[list[Item]]:
    """After a power cut a new session goes on behind what was received."""
    world = reading.world
    caught_up = False
    while not reading.is_over(caught_up):
        cuts = world.power_cuts
        limit, budget = reading.sizes.page(reading.reached)
        start = {world.topic: {"from_seq": reading.reached}}
        body = {"topics": start, "limit": limit, "max_batch_bytes": budget} | _node(reading)
        made = world.server.api.post("/v0/watch", body)
        assert made.status == 200, made
        with EventStream(world.server.api, made.json["stream_url"]) as stream:
            while not reading.is_over(caught_up) and cuts == world.power_cuts:
                event = stream.next()
                items, caught_up = _live_items(reading, event.name, event.data)
                yield items


def web_socket(reading: Reading) -> Iterator[list[Item]]:
    """After a power cut a new connection goes on behind what was received."""
    world = reading.world
    caught_up = False
    while not reading.is_over(caught_up):
        cuts = world.power_cuts
        limit, budget = reading.sizes.page(reading.reached)
        wanted = {"op": "subscribe", "topic": world.topic, "from_seq": reading.reached, "limit": limit}
        wanted |= {"max_batch_bytes": budget} | _node(reading)
        with connect(world.server.url.replace("http", "ws") + "/v0/ws", max_size=None, close_timeout=0.1) as socket:
            socket.send(json.dumps(wanted))
            assert json.loads(socket.recv(10))["op"] == "subscribed"
            while not reading.is_over(caught_up) and cuts == world.power_cuts:
                message = json.loads(socket.recv(10))
                items, caught_up = _live_items(reading, message["op"], message)
                yield items


def _live_items(reading: Reading, name: str, data: dict[str, Any]) -> tuple[list[Item], bool]:
    """What the reader got, and whether it has caught up."""
    if name == "record":
        assert data["from_seq"] >= reading.reached
        reading.reached = data["to_seq"]
        return [Item(each["$seq"], each["$seq"], each["data"]) for each in data["records"]], False
    if name == "tombstone":
        reading.reached = data["gap_to"]
        return _lost(data), False
    assert name in ("caught-up", "caught_up"), (name, data)
    reading.reached = data["head_seq"]
    return [], True


# Groups and queues


def group_consume(reading: Reading) -> Iterator[list[Item]]:
    world = reading.world
    while True:
        limit, budget = reading.sizes.page(0)
        world.server.limit_answers(answer_bytes=budget)
        start = {"Offset": 1}
        answer = world.client.consume(world.topic, "g", start=start, limit=min(limit, 1000), timeout_seconds=0)
        items = [] if answer.tombstone is None else [Item(answer.tombstone.gap_from, answer.tombstone.gap_to, None)]
        items += [Item(each.offset, each.offset, json.loads(b64decode(each.payload))) for each in answer.messages]
        # An empty answer says that there is nothing up to the head.
        reading.reached = items[-1].last if items else world.model.head
        yield items
        if answer.messages:
            world.client.ack_group(world.topic, "g", answer.messages[-1].offset)
        elif answer.tombstone is None:
            world.server.limit_answers()
            return


def work_stream(reading: Reading) -> Iterator[list[Item]]:
    """Jobs of a queue over a stream, finished in groups. What is lost is not reported here: there is no cursor.

    After a power cut a new stream gets the jobs that were not finished, those that were held among them.
    """
    world = reading.world
    most = reading.chance.choice([1, 2, 16, 100] if world.model.head < LARGE else [100, 1000])
    target = f"{_path(reading, 'work')}?node=w&max={most}&lease_ms={LEASE_MS}"
    while _jobs_left(world):
        cuts = world.power_cuts
        held: list[int] = []
        with EventStream(world.server.api, target) as stream:
            while cuts == world.power_cuts and (held or _jobs_left(world)):
                event = stream.next()
                assert event.name == "job"
                held.append(event.data["$seq"])
                reading.reached = event.data["$seq"]
                yield [Item(event.data["$seq"], event.data["$seq"], event.data["data"])]
                if cuts != world.power_cuts:
                    break
                if len(held) >= reading.chance.randrange(1, most + 1) or _jobs_left(world) == len(held):
                    world.client.ack(world.topic, "w", held)
                    held = []


def _jobs_left(world: ReadWorld) -> int:
    counts = world.client.info(world.topic).queue
    assert counts is not None
    return counts.ready + counts.in_flight


# Archives and Spark


def spark_batch(reading: Reading) -> Iterator[list[Item]]:
    transport = reading.chance.choice(["arrow", "json"])
    tasks = reading.chance.choice([1, 1, 2, 5])
    reader = BatchReader(_spark_options(reading, transport=transport, minPartitions=str(tasks)))
    rows = [1, 7, 10_000] if reading.world.model.head < LARGE else [300, 10_000]
    reading.patch.setattr(spark_reading, "BATCH_ROWS", reading.chance.choice(rows))
    for partition in reader.partitions():
        assert isinstance(partition, RangePartition)
        reading.reached = partition.parts[-1].wanted.last
        _spark_sizes(reading)
        for batch in reader.read(partition):
            yield row_items(batch.to_pylist())
            _spark_sizes(reading)


def spark_stream(reading: Reading) -> Iterator[list[Item]]:
    reader = StreamReader(_spark_options(reading, transport=reading.chance.choice(["arrow", "json"])))
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    while True:
        _spark_sizes(reading)
        end = reader.latestOffset(start, ReadMaxRows(reading.chance.choice([3, 50, 5000])))
        if end == start:
            return
        for partition in reader.partitions(start, end):
            assert isinstance(partition, RangePartition)
            reading.reached = partition.parts[-1].wanted.last
            for batch in reader.read(partition):
                yield row_items(batch.to_pylist())
        start = end


def archive(reading: Reading) -> Iterator[list[Item]]:
    """What the table holds when the archive job has come to the end, read by a reader of Delta tables."""
    reading.reached = reading.world.model.head
    yield from copy_to_archive(reading, reading.reached)
    yield archived_items(_uri(reading))


def history(reading: Reading) -> Iterator[list[Item]]:
    """The archive, and behind it what is live, as pages that the server makes small."""
    world = reading.world
    head = world.model.head
    limit, budget = reading.sizes.page(0)
    world.server.limit_answers(max_limit=limit, answer_bytes=budget)
    for item in read_records(world.client, world.topic):
        if isinstance(item, Tombstone):
            found = Item(item.gap_from, item.gap_to, None)
        else:
            found = Item(item.seq, item.seq, item.data)
        reading.reached = found.last
        yield [found]
    reading.reached = max(reading.reached, head)
    world.server.limit_answers()


def copy_to_archive(reading: Reading, up_to: int) -> Iterator[list[Item]]:
    """Let the archive job bring the table up to this seq, in batches of several tasks. Brings nothing itself."""
    world = reading.world
    ledger = open_archive(_uri(reading), create=True)
    world.client.set_archive(world.topic, _uri(reading))
    plan = ArchivePlan(world.server.url, None, world.topic, _uri(reading), 1 << 20, tasks=3)
    reader = ArchiveReader(plan)
    # Tasks of few seqs, so that there are several.
    reading.patch.setattr(spark_archive, "TASK_SEQS", 20)
    start = reader.initialOffset()
    while (at := ledger.position(world.topic).next_seq(_epoch(world), 0)) <= up_to:
        _spark_sizes(reading)
        end = {"epoch": _epoch(world), "0": min(up_to + 1, at + reading.chance.choice([7, 100, 10_000]))}
        writer = ArchiveWriter(plan, 0)
        messages: list[Any] = []
        for partition in reader.partitions(start, end):
            messages.append(writer.write(reader.read(partition)))
            yield []
        writer.commit(messages)
        ledger.refresh()


def _spark_options(reading: Reading, **more: str) -> Any:
    world = reading.world
    starting = json.dumps({world.topic: {"0": 1}})
    given = {"url": world.server.url, "subscribe": world.topic, "startingOffsets": starting, "onDataLoss": "emit"}
    has_archive = world.client.archive(world.topic) is not None
    return source_options({**given, "history": "all" if has_archive else "live", **more})


def _spark_sizes(reading: Reading) -> None:
    """Pages as small as no Spark job would ask for, but which end where it hurts."""
    limit, budget = reading.sizes.page(0)
    for module, name, value in (
        (spark_reading, "ARROW_LIMIT", limit),
        (spark_reading, "JSON_LIMIT", limit),
        (spark_reading, "JSON_BYTES", budget),
        (archive_piece, "PAGE_RECORDS", limit),
        (server_diff, "MAX_PAGE_BYTES", budget),
    ):
        reading.patch.setattr(module, name, value)


def row_items(rows: list[dict[str, Any]]) -> list[Item]:
    """Rows of the Spark source."""
    items = []
    for row in rows:
        if row["data"] is None:
            items += _lost(json.loads(row["meta"])["_topics_tombstone"])
        else:
            items.append(Item(row["seq"], row["seq"], json.loads(row["data"])))
    return items


def archived_items(uri: str) -> list[Item]:
    """What a table holds, in order."""
    rows = DeltaTable(uri).to_pyarrow_table().sort_by("seq").to_pylist()
    return [
        Item(row["gap_from"], row["seq"], None)
        if row["kind"] == "tombstone"
        else Item(row["seq"], row["seq"], json.loads(row["data"]))
        for row in rows
    ]


def _uri(reading: Reading) -> str:
    return str(reading.place / "table")


def _epoch(world: ReadWorld) -> int:
    return world.client.info(world.topic, touch=False).epoch


# Common


def _path(reading: Reading, action: str) -> str:
    return f"/v0/topics/{reading.world.topic}/{action}"


def _node(reading: Reading) -> dict[str, Any]:
    return {} if reading.own is None else {"node": reading.own}


def _lost(tombstone: dict[str, Any] | None) -> list[Item]:
    return [] if tombstone is None else [Item(tombstone["gap_from"], tombstone["gap_to"], None)]


# Paths with a cursor that can leave out the records of given nodes.
PAGES: list[ReadPath] = [json_diff, arrow_diff, long_poll]
LIVE: list[ReadPath] = [sse_watch, web_socket]
GROUPS: list[ReadPath] = [group_consume]
# Those that read ranges which others have cut, so that a lost range may be reported in parts.
RANGES: list[ReadPath] = [spark_batch, spark_stream, archive, history]
