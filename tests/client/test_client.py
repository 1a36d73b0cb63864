"""Both clients: every call against a real server, nothing done twice, loss as a value, watches that resume."""

import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.client.conftest import make_client, write_lone_surrogate
from tests.client.flaky import FlakyProxy
from topics.client import (
    ArchivedTo,
    CaughtUp,
    Client,
    Conflict,
    InvalidRequest,
    JobStatus,
    NotFound,
    Record,
    RecordIn,
    ServerUnreachable,
    Tombstone,
    TopicDeleted,
    TopicFull,
    Unauthorized,
    UndecodablePayload,
    WatchedRecord,
    WatchedTombstone,
)
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


def test_topics_records_and_deletes(client: Any, topic: str) -> None:
    assert client.create(topic, cap_records=100).created
    assert not client.create(topic, cap_records=100).created
    appended = client.append(topic, [{"a": 1}, RecordIn("b", tag="t", node="n", meta={"m": 1})])
    assert (appended.first_seq, appended.last_seq, appended.seqs) == (1, 2, [1, 2])
    page = client.diff(topic, limit=1)
    assert [record.data for record in page.records] == [{"a": 1}]
    assert (page.next_from_seq, page.caught_up, page.lag) == (1, False, 1)
    (second,) = client.diff(topic, 1).records
    assert (second.seq, second.data, second.tag, second.node, second.meta) == (2, "b", "t", "n", {"m": 1})
    assert client.delete(topic, match="t").deleted == 1
    info = client.info(topic)
    assert (info.count, info.head_seq, info.config["cap_records"]) == (1, 2, 100)
    assert topic in [each.topic for each in client.topics(topic)]
    assert client.drop(topic).deleted
    with pytest.raises(NotFound) as missing:
        client.info(topic)
    assert (missing.value.code, missing.value.detail) == ("topic_not_found", {"topic": topic})


def test_read_yields_every_record_and_a_tombstone_for_lost_ones(client: Any, topic: str) -> None:
    client.create(topic, cap_records=1500)
    for start in range(0, 2500, 500):
        client.append(topic, list(range(start, start + 500)), return_seqs=False)
    lost, *records = list(client.read(topic, limit=400))
    assert isinstance(lost, Tombstone)
    assert (lost.gap_from, lost.gap_to, lost.reason) == (1, 1000, "cap")
    assert [record.seq for record in records] == list(range(1001, 2501))
    assert [record.data for record in records] == list(range(1000, 2500))


def test_follow_continues_with_new_records(client: Any, topic: str, url: str) -> None:
    client.append(topic, ["old"])
    reading = client.read(topic, follow=True)
    assert next(reading).data == "old"
    with Client(url) as other:
        writer = threading.Timer(0.05, lambda: other.append(topic, ["new"]))
        writer.start()
        item = next(reading)
        writer.join()
    assert isinstance(item, Record)
    assert item.data == "new"
    reading.close()


def test_queue_calls(client: Any, topic: str) -> None:
    client.create(topic, type="queue")
    client.append(topic, ["a", "b"])
    claimed = client.claim(topic, "w", 2)
    assert [(job.data, job.deliveries) for job in claimed.claimed] == [("a", 1), ("b", 1)]
    first, second = claimed.claimed
    extended = client.extend(topic, "w", [first.seq], 60_000, lease_ids=[first.lease_id])
    assert extended.extended == 1
    assert client.ack(topic, "w", [first.seq]).acked == 1
    assert client.nack(topic, "w", [second.seq, 99]).skipped == [99]
    assert client.claim(topic, "w").claimed[0].deliveries == 2


def test_jobs_of_another_partition_are_finished_extended_and_returned(client: Any, topic: str) -> None:
    client.create(topic, type="queue", partitions=2)
    client.append(topic, ["a", "b", "c"], partition=1)
    first, second, third = [job.seq for job in client.claim(topic, "w", 3, partition=1).claimed]
    assert client.ack(topic, "w", [first]).skipped == [first], "partition 0 holds no such job"
    assert client.extend(topic, "w", [first], 60_000, partition=1).extended == 1
    assert client.ack(topic, "w", [first], partition=1).acked == 1
    assert client.nack(topic, "w", [second, third], partition=1).nacked == 2


def test_an_unknown_token_raises_unauthorized(kind: str, tmp_path: Path) -> None:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path), "TOPICS_API_KEYS": "secret"})
    with running_server(settings) as url:
        client = make_client(kind, url)
        with pytest.raises(Unauthorized):
            client.info("t")
        client.close()


def test_a_lone_surrogate_is_replaced_and_the_other_records_are_read(client: Any, url: str, topic: str) -> None:
    write_lone_surrogate(url, topic)
    first, second, third = client.read(topic)
    assert (first.data, second.data, second.meta, third.data) == (1, {"a": "x\ufffdy"}, {"m": "\ufffd"}, "\U0001f600")
    watching = client.watch(topic)
    assert [next(watching).record.data for _ in range(3)] == [1, {"a": "x\ufffdy"}, "\U0001f600"]
    watching.close()


def test_a_lone_surrogate_is_given_as_raw_bytes_when_asked(kind: str, url: str, topic: str) -> None:
    write_lone_surrogate(url, topic)
    client = make_client(kind, url, lone_surrogates="raw")
    first, second, third = client.read(topic)
    assert (first.data, third.data) == (1, "\U0001f600")
    assert (second.data, second.meta) == (rb'{"a":"x\ud800y"}', rb'{"m":"\udc00"}')
    client.close()


def test_a_lone_surrogate_raises_at_its_record_when_asked(kind: str, url: str, topic: str) -> None:
    write_lone_surrogate(url, topic)
    client = make_client(kind, url, lone_surrogates="error")
    reading = client.read(topic)
    assert next(reading).data == 1
    with pytest.raises(UndecodablePayload, match="record 2"):
        next(reading)
    assert [record.data for record in client.read(topic, 2)] == ["\U0001f600"]
    with pytest.raises(UndecodablePayload, match="record 2"):
        client.diff(topic)
    client.close()


def test_a_typed_read_gives_a_lone_surrogate_as_asked(kind: str, url: str, topic: str) -> None:
    write_lone_surrogate(url, topic)
    replacing, raw, strict = [make_client(kind, url, lone_surrogates=each) for each in ("replace", "raw", "error")]
    assert [item.data for item in replacing.read(topic, type=object)] == [1, {"a": "x\ufffdy"}, "\U0001f600"]
    _, second, third = raw.read(topic, type=object)
    assert (second.data, second.meta, third.data) == (rb'{"a":"x\ud800y"}', rb'{"m":"\udc00"}', "\U0001f600")
    reading = strict.read(topic, type=object)
    assert next(reading).data == 1
    with pytest.raises(UndecodablePayload, match="record 2"):
        next(reading)
    for each in (replacing, raw, strict):
        each.close()


def test_an_unknown_choice_for_lone_surrogates_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="replace, raw, error"):
        Client("http://127.0.0.1:1", lone_surrogates="maybe")  # type: ignore[arg-type]


def test_stages_and_commits(client: Any, topic: str) -> None:
    client.create(topic)
    producer = f"producer-{topic}"
    assert client.last_commit(producer) is None
    stage = client.stage(topic, ["x", "y"])
    first = client.commit([stage.stage_id], producer=producer, batch=1)
    again = client.commit([stage.stage_id], producer=producer, batch=1)
    assert (first.deduped, again.deduped) == (False, True)
    assert first.results == again.results
    assert client.last_commit(producer).batch == 1
    client.commit(writes=[{"topic": topic, "records": [{"data": "z"}]}])
    assert [item.data for item in client.read(topic)] == ["x", "y", "z"]
    spare = client.stage(topic, ["never"])
    assert client.drop_stage(spare.stage_id).deleted


def test_arrow_pages(client: Any, topic: str) -> None:
    import pyarrow as pa

    client.append(topic, [{"i": index} for index in range(10)])
    reader = pa.ipc.open_stream(client.diff_arrow(topic, 2, to_seq=5))
    assert reader.read_all().column("seq").to_pylist() == [3, 4, 5]
    assert reader.schema.metadata[b"next_from_seq"] == b"5"


def test_consumer_group(client: Any, topic: str) -> None:
    client.append(topic, [1, 2, 3])
    consumed = client.consume(topic, "g", start="Earliest", limit=2, timeout_seconds=0)
    assert [message.offset for message in consumed.messages] == [1, 2]
    assert (consumed.next_offset, consumed.has_more) == (3, True)
    assert client.ack_group(topic, "g", 2).acknowledged_offset == 2


def test_an_ack_names_its_consumer(client: Any, topic: str) -> None:
    client.append(topic, [1, 2, 3])
    assert len(client.consume(topic, "g", consumer="a", timeout_seconds=0).messages) == 3
    with pytest.raises(Conflict) as conflict:
        client.ack_group(topic, "g", 2, consumer="b")
    assert conflict.value.code == "session_expired"
    assert client.ack_group(topic, "g", 2, consumer="a").acknowledged_offset == 2


def test_server_errors_keep_their_class_and_code(client: Any, topic: str) -> None:
    with pytest.raises(InvalidRequest):
        client.append("bad name", [1])
    client.create(topic, type="log", cap_records=1, discard="reject")
    with pytest.raises(Conflict) as conflict:
        client.create(topic, type="queue")
    assert conflict.value.code == "topic_exists_incompatible"
    client.append(topic, [1])
    with pytest.raises(TopicFull):
        client.append(topic, [2])


# Nothing is done twice


@pytest.fixture
def proxy(url: str) -> Any:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = FlakyProxy(parts.hostname, parts.port)
    yield proxy
    proxy.close()


def test_append_whose_answers_are_lost_is_done_once(kind: str, proxy: FlakyProxy, topic: str) -> None:
    client = make_client(kind, proxy.url)
    proxy.lose_answers = 3
    appended = client.append(topic, ["once"])
    assert appended.deduped
    assert proxy.requests == 4
    assert [item.data for item in client.read(topic)] == ["once"]
    client.close()


def test_claim_whose_answer_is_lost_is_not_repeated(kind: str, proxy: FlakyProxy, topic: str) -> None:
    client = make_client(kind, proxy.url)
    client.create(topic, type="queue")
    client.append(topic, ["a", "b"])
    before = proxy.requests
    proxy.lose_answers = 1
    with pytest.raises(ServerUnreachable) as unreachable:
        client.claim(topic, "w")
    assert proxy.url in unreachable.value.message
    assert proxy.requests == before + 1
    client.close()


def test_requests_that_did_not_arrive_are_sent_again(kind: str, proxy: FlakyProxy, topic: str) -> None:
    client = make_client(kind, proxy.url)
    proxy.lose_requests = 2
    assert client.append(topic, [1]).created
    client.close()


def test_error_names_a_server_that_does_not_answer(kind: str) -> None:
    client = make_client(kind, "http://127.0.0.1:1")
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:1"):
        client.health()
    client.close()


@pytest.mark.parametrize(
    "url", ["ftp://x", "localhost:4000", "http://", "http://x:70000", "http://x:1:2", "http://x/a b", "http://x/ä"]
)
def test_text_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        Client(url)


# Watching


def test_watch_delivers_backlog_then_live_then_the_end(client: Any, topic: str, url: str) -> None:
    client.append(topic, [1, 2])
    watching = client.watch(topic)
    assert [next(watching).record.data for _ in range(2)] == [1, 2]
    assert isinstance(next(watching), CaughtUp)
    with Client(url) as other:
        other.append(topic, [3])
        assert next(watching).record.data == 3
        other.drop(topic)
    rest = list(watching)
    assert isinstance(rest[-1], TopicDeleted)


def test_watch_yields_a_tombstone_for_lost_records(client: Any, topic: str) -> None:
    client.create(topic, cap_records=1)
    client.append(topic, [1])
    client.append(topic, [2])
    watching = client.watch({topic: 0})
    first = next(watching)
    assert isinstance(first, WatchedTombstone)
    assert (first.tombstone.gap_from, first.tombstone.gap_to) == (1, 1)
    second = next(watching)
    assert isinstance(second, WatchedRecord)
    assert second.record.data == 2
    watching.close()


def test_watch_continues_after_a_server_restart(kind: str, tmp_path: Path, topic: str) -> None:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path)}
    seen: list[Any] = []
    with running_server(load_settings(environment)) as url:
        port = str(urlsplit(url).port)
        client = make_client(kind, url)
        client.append(topic, [1, 2])
        watching = client.watch(topic)
        seen += [next(watching).record.data for _ in range(2)]
        assert isinstance(next(watching), CaughtUp)
    with running_server(load_settings(environment | {"TOPICS_PORT": port})):
        client.append(topic, [3, 4])
        while len(seen) < 4:
            item = next(watching)
            if isinstance(item, WatchedRecord):
                seen.append(item.record.data)
        watching.close()
        client.close()
    assert seen == [1, 2, 3, 4]


def test_watch_keeps_its_partition_after_a_server_restart(kind: str, tmp_path: Path, topic: str) -> None:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path)}
    with running_server(load_settings(environment)) as url:
        port = str(urlsplit(url).port)
        client = make_client(kind, url)
        client.create(topic, partitions=2)
        client.append(topic, ["zero"], partition=0)
        client.append(topic, ["one"], partition=1)
        watching = client.watch({topic: {"partition": 1}})
        assert next(watching).record.data == "one"
        assert isinstance(next(watching), CaughtUp)
    with running_server(load_settings(environment | {"TOPICS_PORT": port})):
        client.append(topic, ["zero again"] * 3, partition=0)
        client.append(topic, ["one again"], partition=1)
        item = next(watching)
        while isinstance(item, CaughtUp):
            item = next(watching)
        assert item.record.data == "one again"
        watching.close()
        client.close()


def test_watch_reports_a_topic_that_was_created_again_while_the_server_was_down(
    kind: str, tmp_path: Path, topic: str
) -> None:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path)}
    with running_server(load_settings(environment)) as url:
        port = str(urlsplit(url).port)
        client = make_client(kind, url)
        client.append(topic, ["old"])
        watching = client.watch(topic)
        assert next(watching).record.data == "old"
        assert isinstance(next(watching), CaughtUp)
    with running_server(load_settings(environment)) as other, Client(other) as admin:
        admin.drop(topic)
        admin.append(topic, ["new 1", "new 2"])
    with running_server(load_settings(environment | {"TOPICS_PORT": port})):
        item = next(watching)
        assert isinstance(item, WatchedTombstone)
        assert item.tombstone.reason == "recreated"
        assert [next(watching).record.data for _ in range(2)] == ["new 1", "new 2"]
        watching.close()
        client.close()


def test_heads_of_many_partitions_in_one_request(client: Any, topic: str) -> None:
    client.create(topic, partitions=2)
    client.append(topic, [1, 2], partition=1)
    known = {topic: {0: 0, 1: 0}, "nowhere": {0: 0}}
    found = client.heads(known, wait_ms=20_000).topics
    assert found["nowhere"] is None
    assert found[topic].heads == {0: 0, 1: 2}
    assert client.heads({topic: found[topic].heads}, wait_ms=10).topics[topic] == found[topic]


def test_a_read_with_to_seq_ends_there(client: Any, topic: str) -> None:
    client.append(topic, list(range(10)))
    assert [record.seq for record in client.diff(topic, 2, to_seq=5, limit=5000).records] == [3, 4, 5]


def test_tables_and_their_changes(client: Any, topic: str) -> None:
    assert client.put_table(topic, key_columns=["id"], columns={"id": "bigint"}).created
    events = [{"op": "insert", "after": {"id": number}, "position": number} for number in range(3)]
    assert client.send_changes(topic, [*events, {"op": "?"}], source="s").appended == 3
    again = client.send_changes(topic, events, source="s")
    assert (again.appended, again.duplicates, again.topic) == (0, 3, f"changes:{topic}")
    assert [table.table for table in client.tables(topic)] == [topic]
    assert client.table(topic).columns == {"id": "bigint"}
    assert client.drop_table(topic).deleted
    with pytest.raises(NotFound):
        client.table(topic)


def test_archives_routes_and_versions(client: Any, topic: str) -> None:
    assert client.append(topic, [1, 2, 3]).created
    assert client.archive(topic) is None
    with pytest.raises(NotFound):
        client.archive(topic + "-nowhere")
    before = client.archives()
    info = client.set_archive(topic, f"s3://lake/{topic}", freshness_ms=2000)
    assert (info.created, info.freshness_ms, info.compact_interval_ms, info.vacuum_hours) == (True, 2000, 600_000, 168)
    after = client.archives(before.version, 20_000)
    assert after.version > before.version
    assert topic in [each.topic for each in after.archives]
    place = ArchivedTo(0, client.info(topic).epoch, 3)
    assert client.archive_progress(topic, [place], table_version=4).archived == [place]
    found = client.archive(topic)
    assert (found.archived, found.table_version, found.uri) == ([place], 4, f"s3://lake/{topic}")
    assert client.clear_archive(topic).deleted
    assert not client.clear_archive(topic).deleted

    tables = client.tables_version()
    client.put_table(f"{topic}.table")
    assert client.tables_version(tables, 20_000) > tables

    routes = client.routes()
    client.sql(f"ALTER TOPIC \"{topic}\" ADD SOURCE x.y ON INSERT WHERE (a = 1) WITH (payload = 'full', key = 'id')")
    changed = client.routes(routes.version, 20_000)
    (route,) = [route for route in changed.routes if route.topic_id == topic]
    assert (route.table_id, route.op, route.payload_mode, route.key_columns) == ("x.y", "Insert", "Full", ["id"])
    assert changed.version > routes.version


def test_pipelines(client: Any, topic: str) -> None:
    with pytest.raises(NotFound):
        client.pipeline(topic)
    job = JobStatus("archive x", "archive", "running", rows=5, lag=2, notes={"quarantined": 1})
    assert not client.report_pipeline(topic, "running", [job], master="local[1]", started_ts=7).stop
    found = client.pipeline(topic)
    assert (found.state, found.master, found.started_ts, found.jobs) == ("running", "local[1]", 7, [job])
    assert topic in [each.pipeline for each in client.pipelines()]
    assert client.stop_pipeline(topic).stop
    assert client.report_pipeline(topic, "stopping", started_ts=7).stop
    assert not client.report_pipeline(topic, "stopped", started_ts=7).stop
    assert client.drop_pipeline(topic).deleted


def test_a_topic_deletes_in_all_partitions_or_in_the_one_given(client: Client, topic: str, url: str) -> None:
    client.create(topic, partitions=3)
    for partition in range(3):
        client.append(topic, [RecordIn(n, tag="user-1" if n else "user-2") for n in range(3)], partition=partition)
    with Client(url) as plain:
        handle = plain.topic(topic)
        assert handle.delete(match="user-2", partition=1).deleted == 1
        assert handle.delete(match="user-2").deleted == 2
        done = handle.delete(match="user-1")
        assert (done.deleted, done.count) == (6, 0)
        assert handle.info().count == 0
