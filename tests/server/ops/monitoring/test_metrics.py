"""What /v0/metrics says, read the way a scraper reads it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect

from tests.server.house import House, in_house, raw
from tests.server.http.wire import until
from topics.server.ops.monitoring import metrics as metrics_module

RECORDS = {"records": [{"data": 1}, {"data": 2}]}

# Every metric the contract names, and those we add. Counters without `_total`, as the parser calls them.
NAMED = [
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_topic_queue_ready",
    "topics_topic_queue_in_flight",
    "topics_topic_metrics_truncated",
    "topics_wal_frames",
    "topics_wal_batches",
    "topics_wal_fsyncs",
    "topics_wal_bytes_written",
    "topics_wal_rotations",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_submit_full",
    "topics_wal_read_only",
    "topics_wal_fsync_latency_us",
]
ADDED = [
    "topics_appends",
    "topics_records_appended",
    "topics_reads",
    "topics_records_read",
    "topics_records_evicted",
    "topics_tombstones",
    "topics_records_deleted",
    "topics_throttled",
    "topics_throttle_parked",
    "topics_throttle_wait_ms",
    "topics_loop_lag_ms",
    "topics_degraded",
    "topics_degraded_conditions",
    "topics_failures",
]


async def scraped(house: House, key: str | None = None) -> dict[str, dict[str, float]]:
    """Samples by name and label."""
    answer = await house.ask("GET", "/v0/metrics", key=key)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation
        assert family.type in ("gauge", "counter", "histogram")
        samples.setdefault(family.name, {})
        for sample in family.samples:
            label = ",".join(sample.labels.values())
            assert label not in samples.setdefault(sample.name, {}), "the same sample twice"
            samples[sample.name][label] = sample.value
    return samples


@in_house()
async def test_every_metric_of_the_contract_is_there(house: House) -> None:
    await house.ask("POST", "/v0/topics/log", RECORDS)
    await house.ask("PUT", "/v0/topics/queue", {"type": "queue"})
    found = await scraped(house)
    assert [name for name in NAMED + ADDED if name not in found] == []


async def read_page(house: House) -> None:
    assert (await house.ask("POST", "/v0/topics/log/diff", {})).status == 200


async def read_arrow_page(house: House) -> None:
    accept = ("Accept: application/vnd.apache.arrow.stream",)
    assert (await house.ask("POST", "/v0/topics/log/diff", {}, headers=accept)).status == 200


async def consume(house: House) -> None:
    body = {"topic": "log", "group_id": "g", "start": {"Offset": 1}}
    assert len((await house.ask("POST", "/api/topics/consume", body)).json["messages"]) == 2


async def consume_by_sql(house: House) -> None:
    assert (await house.ask("POST", "/api/sql", {"sql": "CONSUME FROM log"})).status == 200


async def watch(house: House) -> None:
    made = await house.ask("POST", "/v0/watch", {"topics": {"log": {}}})
    await read_stream(house, made.json["stream_url"], b"caught-up")


async def work(house: House) -> None:
    await read_stream(house, "/v0/topics/queue/work?node=w&max=2", b'"$seq":2')


async def claim(house: House) -> None:
    assert (await house.ask("POST", "/v0/topics/queue/claim", {"node": "w", "max": 5})).json["count"] == 2


async def listen(house: House) -> None:
    host, port = house.address
    async with connect(f"ws://{host}:{port}/v0/ws") as socket:
        await socket.send(json.dumps({"op": "subscribe", "topic": "log", "from_seq": 0}))
        while json.loads(await socket.recv())["op"] != "caught_up":
            pass


async def read_stream(house: House, path: str, end: bytes) -> None:
    client = await house.connect()
    await client.send(raw("GET", path))
    await client.head()
    while end not in await client.chunk():
        pass


@pytest.mark.parametrize(
    "read",
    [read_page, read_arrow_page, consume, consume_by_sql, watch, listen, claim, work],
    ids=lambda read: read.__name__,
)
@in_house()
async def test_every_way_of_reading_counts_what_it_hands_out(
    house: House, read: Callable[[House], Awaitable[None]]
) -> None:
    await house.ask("PUT", "/v0/topics/log", {"cap_records": 2})
    await house.ask("PUT", "/v0/topics/queue", {"type": "queue"})
    for name in ("log", "log", "queue"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS)
    await read(house)
    found = await scraped(house)
    # A live reader gets the tombstone in a frame of its own.
    assert found["topics_reads_total"][""] == (2 if read in (watch, listen) else 1)
    assert found["topics_records_read_total"][""] == 2
    # Nothing is lost of the queue; SQL begins at the first record there is.
    assert found["topics_tombstones_total"][""] == (0 if read in (claim, work, consume_by_sql) else 1)


@in_house()
async def test_figures_are_those_of_the_topics(house: House) -> None:
    await house.ask("PUT", "/v0/topics/a", {"durability": "fsync"})
    await house.ask("PUT", "/v0/topics/b", {"cap_records": 2})
    await house.ask("PUT", "/v0/topics/q", {"type": "queue", "durability": "ephemeral"})
    await house.ask("POST", "/v0/watch", {"topics": {"a": {}}})
    for name in ("a", "b", "b", "q"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS)
    await house.ask("POST", "/v0/topics/a/diff", {})
    await house.ask("POST", "/v0/topics/b/diff", {})
    await house.ask("POST", "/v0/topics/a/delete", {"before_seq": 2})
    await house.ask("PUT", "/v0/routers/r", {"source": "q", "dest": "b"})
    found = await scraped(house)
    assert found["topics_topics"][""] == 3
    assert found["topics_topics_by_class"] == {"ephemeral": 1, "memory": 0, "disk": 1, "fsync": 1}
    assert found["topics_queue_topics"][""] == 1
    assert found["topics_routers"][""] == 1
    assert found["topics_watch_sessions"][""] == 1
    assert found["topics_topic_head_seq"] == {"a": 2, "b": 4, "q": 2}
    assert found["topics_topic_earliest_seq"] == {"a": 2, "b": 3, "q": 1}
    assert found["topics_topic_records_live"] == {"a": 1, "b": 2, "q": 2}
    assert found["topics_topic_queue_ready"] == {"q": 2}
    assert found["topics_topic_queue_in_flight"] == {"q": 0}
    assert found["topics_topic_queue_dead_lettered"] == {"q": 0}
    assert found["topics_records_live"][""] == 5
    assert found["topics_bytes_live"][""] == sum(found["topics_topic_bytes_live"].values()) > 0
    assert found["topics_appends_total"][""] == 4
    assert found["topics_records_appended_total"][""] == 8
    assert found["topics_reads_total"][""] == 2
    assert found["topics_records_read_total"][""] == 4
    assert found["topics_tombstones_total"][""] == 1
    assert found["topics_records_evicted_total"][""] == 2
    assert found["topics_records_deleted_total"][""] == 1
    assert found["topics_wal_frames_total"][""] >= 7
    assert found["topics_wal_bytes_written_total"][""] > 0
    assert found["topics_ready"][""] == 1
    assert found["topics_recovery_progress"][""] == 1


@in_house()
async def test_writes_that_find_no_room_are_counted(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", RECORDS)
    assert (await scraped(house))["topics_wal_submit_full_total"][""] == 0
    sealer = house.broker.sealer
    sealer.full = True
    client = await house.connect()
    await client.send(raw("POST", "/v0/topics/a", RECORDS))
    await until(lambda: house.broker.counts.no_room == 1)
    assert (await scraped(house))["topics_wal_submit_full_total"][""] == 1
    sealer.full = False
    sealer.on_room()
    assert (await client.answer()).json["last_seq"] == 4


@in_house()
async def test_lag_of_a_group_is_reported_with_its_topic(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", RECORDS)
    consume = {"topic_id": "a", "group_id": "g", "start": "Earliest", "limit": 1, "timeout_seconds": 0}
    await house.ask("POST", "/api/topics/consume", consume)
    await house.ask("POST", "/api/topics/ack", {"topic_id": "a", "group_id": "g", "partition_id": 0, "upto_offset": 1})
    text = (await house.ask("GET", "/v0/metrics")).body.decode()
    assert 'topics_group_lag_records{topic="a",group="g"} 1\n' in text
    assert 'topics_group_lag_seconds{topic="a",group="g"} ' in text


@in_house()
async def test_process_figures_are_reported(house: House) -> None:
    found = await scraped(house)
    assert found["process_resident_memory_bytes"][""] > 10_000_000
    assert found["process_open_fds"][""] > 3
    assert found["process_max_fds"][""] >= found["process_open_fds"][""]
    assert found["process_threads"][""] >= 1
    assert found["process_cpu_seconds_total"][""] > 0
    assert found["topics_disk_size_bytes"][""] >= found["topics_disk_free_bytes"][""] >= 0


@in_house()
async def test_stages_and_commits_are_counted(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS)
    stages = [(await house.ask("POST", "/v0/stages?topic=t", RECORDS)).json["stage_id"] for _ in range(3)]
    for _ in range(2):
        await house.ask("POST", "/v0/commits", {"stages": stages[:1], "producer": "p", "batch": 1})
    found = await scraped(house)
    assert (found["topics_stages"][""], found["topics_producers"][""]) == (2, 1)
    assert found["topics_staged_bytes"][""] > 0
    assert (found["topics_commits_total"][""], found["topics_commit_repeats_total"][""]) == (1, 1)
    assert found["topics_stages_expired_total"][""] == 0


@in_house()
async def test_histogram_is_cumulative_and_ends_with_the_count(house: House) -> None:
    await house.ask("PUT", "/v0/topics/a", {"durability": "fsync"})
    for _ in range(5):
        await house.ask("POST", "/v0/topics/a", RECORDS)
    found = await scraped(house)
    buckets = list(found["topics_wal_fsync_latency_us_bucket"].items())
    values = [value for _, value in buckets]
    assert values == sorted(values)
    assert buckets[-1] == ("+Inf", found["topics_wal_fsync_latency_us_count"][""])
    assert found["topics_wal_fsync_latency_us_count"][""] == found["topics_wal_fsyncs_total"][""] >= 5
    assert found["topics_wal_fsync_latency_us_sum"][""] >= 0


@in_house()
async def test_json_says_the_same(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", RECORDS)
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    text = await scraped(house)
    answer = await house.ask("GET", "/v0/metrics", headers=("Accept: application/json",))
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json
    for name in ("topics_topics", "topics_records_live", "topics_wal_frames_total", "topics_routers"):
        assert found[name] == text[name][""]
    assert found["topics_topics_by_class"] == text["topics_topics_by_class"]
    histogram = found["topics_wal_fsync_latency_us"]
    assert histogram["buckets"]["+Inf"] == histogram["count"] == text["topics_wal_fsyncs_total"][""]
    queue_fields = {"queue_ready", "queue_in_flight"}
    plain, queue = found["topics"]
    assert (plain["topic"], plain["head_seq"], plain["records_live"]) == ("a", 2, 2)
    assert queue_fields <= set(queue)
    assert not queue_fields & set(plain)


@in_house()
async def test_scrape_does_not_reset_the_largest_loop_lag(house: House) -> None:
    house.service.throttle.start(house.runtime)
    house.service.throttle.observe(400.0)
    for _ in range(3):
        assert (await scraped(house))["topics_loop_lag_ms_max"][""] >= 400


@in_house()
async def test_scrape_does_not_touch_topics(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", RECORDS)
    await scraped(house)
    assert house.broker.topic("a").last_read_ts is None


@in_house(METRICS_TOPICS_MAX="3")
async def test_topics_listed_one_by_one_are_bounded(house: House) -> None:
    for number in range(3):
        await house.ask("POST", f"/v0/topics/t{number}", RECORDS)
    found = await scraped(house)
    assert (len(found["topics_topic_head_seq"]), found["topics_topic_metrics_truncated"][""]) == (3, 0)
    await house.ask("POST", "/v0/topics/t3", RECORDS)
    found = await scraped(house)
    assert (len(found["topics_topic_head_seq"]), found["topics_topic_metrics_truncated"][""]) == (3, 1)
    assert found["topics_topics"][""] == sum(found["topics_topics_by_class"].values()) == 4


@in_house(API_KEYS="all:read,some:read:a", METRICS_TOPICS_MAX="2")
async def test_key_with_prefixes_sees_only_its_own_topics(house: House) -> None:
    house.settings.keys.callers[0].scopes = 15
    for name in ("x1", "x2", "a1", "a2"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="all")
    found = await scraped(house, key="some")
    assert set(found["topics_topic_head_seq"]) == {"a1", "a2"}
    assert found["topics_topic_metrics_truncated"][""] == 0


@in_house(recovered=False)
async def test_metrics_are_answered_while_the_log_is_replayed(house: House) -> None:
    house.service.recovery_progress = 0.25
    found = await scraped(house)
    assert (found["topics_ready"][""], found["topics_recovery_progress"][""]) == (0, 0.25)
    house.recover()
    assert (await scraped(house))["topics_ready"][""] == 1


@in_house()
async def test_counts_begin_at_zero_with_the_process(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", RECORDS)
    house.recover()
    found = await scraped(house)
    assert found["topics_records_live"][""] == 2
    assert found["topics_records_appended_total"][""] == 0


@in_house()
async def test_writes_are_served_between_the_slices_of_a_scrape(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        await house.ask("POST", f"/v0/topics/t{number}", RECORDS)
    monkeypatch.setattr(metrics_module, "SLICE_TOPICS", 1)
    slices = []
    written = []
    collect_topic = metrics_module.collect_topic

    def looking(broker: Any, topic: Any, *rest: Any) -> None:
        slices.append(broker.counts.appends)
        if len(slices) == 3:
            house.runtime.call_soon(lambda: written.append(house.broker.append("t0", batch(), lambda _: None)))
        collect_topic(broker, topic, *rest)

    def batch() -> Any:
        from topics.model.records.batch import decode_batch

        return decode_batch(b'{"records":[{"data":1}]}', house.settings.limits)

    monkeypatch.setattr(metrics_module, "collect_topic", looking)
    await scraped(house)
    assert len(slices) == 20
    assert slices[0] == 20
    assert slices[-1] == 21, "the write was acknowledged before the scrape was over"


@in_house()
async def test_scrape_whose_client_is_gone_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        await house.ask("POST", f"/v0/topics/t{number}", RECORDS)
    monkeypatch.setattr(metrics_module, "SLICE_TOPICS", 1)
    looked = []
    client = await house.connect()
    collect_topic = metrics_module.collect_topic

    def looking(broker: Any, *rest: Any) -> None:
        looked.append(1)
        for connection in house.listener.connections:
            connection.abort()
        collect_topic(broker, *rest)

    monkeypatch.setattr(metrics_module, "collect_topic", looking)
    await client.send(b"GET /v0/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert await client.is_closed()
    await until(lambda: not house.listener.connections)
    assert len(looked) < 20
