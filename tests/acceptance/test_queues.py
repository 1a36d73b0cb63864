"""Queues over HTTP: every field, default, clamp and error of claim, ack, nack and extend."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded, wait_until_past
from topics.server.ops.settings import load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

ACTIONS = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}
DAY_MS = 86_400_000


class QueueApi(TopicApi):
    """A queue as a worker sees it."""

    def act(self, action: str, **fields: Any) -> Answer:
        return self.api.post(f"{self.path}/{action}", fields)

    def claim(self, node: str = "w", **fields: Any) -> dict[str, Any]:
        body = succeeded(self.act("claim", node=node, **fields))
        assert set(body) == {"topic", "claimed", "count", "ready", "performance"}
        assert body["topic"] == self.name
        assert body["count"] == len(body["claimed"])
        seqs = [job["$seq"] for job in body["claimed"]]
        assert seqs == sorted(set(seqs))
        for job in body["claimed"]:
            assert re.fullmatch(r"lease_[0-9a-f]+", job["lease_id"])
        return body

    def jobs(self, node: str = "w", **fields: Any) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self.claim(node, **fields)["claimed"]
        return jobs

    def settle(self, action: str, *seqs: int, node: str = "w", **fields: Any) -> dict[str, Any]:
        return succeeded(self.act(action, node=node, seqs=list(seqs), **fields))

    def counters(self) -> tuple[int, int, int]:
        found = self.state()["queue"]
        assert set(found) == {"ready", "in_flight", "dead_lettered"}
        return found["ready"], found["in_flight"], found["dead_lettered"]


@pytest.fixture
def queue(api: Api, name: str) -> QueueApi:
    queue = QueueApi(api, name)
    queue.configure(type="queue")
    return queue


def test_state_of_a_queue_has_counters_and_that_of_a_log_has_none(queue: QueueApi, api: Api) -> None:
    assert queue.state()["type"] == "queue"
    assert queue.counters() == (0, 0, 0)
    log = TopicApi(api, f"{queue.name}-log")
    log.configure()
    assert "queue" not in log.state()


@pytest.mark.parametrize("action", ACTIONS)
def test_logs_and_absent_topics_are_refused(queue: QueueApi, api: Api, action: str) -> None:
    absent = QueueApi(api, f"{queue.name}-absent")
    refused(absent.act(action, **ACTIONS[action]), 404, "topic_not_found")
    assert not absent.exists()
    absent.configure()
    answer = refused(absent.act(action, **ACTIONS[action]), 409, "not_a_queue")
    assert answer.detail["topic"] == absent.name


@pytest.mark.parametrize("action", ACTIONS)
def test_only_post_with_json_is_served(queue: QueueApi, action: str) -> None:
    assert queue.api.get(f"{queue.path}/{action}").code == "method_not_allowed"
    answer = queue.api.send("POST", f"{queue.path}/{action}", b"{}", {"Content-Type": "text/plain"})
    refused(answer, 415, "unsupported_media_type")
    refused(queue.api.post(f"{queue.path}/{action}", b'{"node":"w"'), 400, "invalid_request")
    refused(queue.api.post(f"{queue.path}/{action}", b"[]"), 400, "invalid_request")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("node", [None, "", 5, ["w"], "w" * 129, "é" * 65])
def test_node_must_be_a_name_of_at_most_128_bytes(queue: QueueApi, action: str, node: Any) -> None:
    refused(queue.act(action, **{**ACTIONS[action], "node": node}), 400, "invalid_request")
    without = {key: value for key, value in ACTIONS[action].items() if key != "node"}
    refused(queue.act(action, **without), 400, "invalid_request")
    assert queue.act(action, **{**ACTIONS[action], "node": "w" * 128}).status == 200


@pytest.mark.parametrize("action", ["ack", "nack", "extend"])
@pytest.mark.parametrize("seqs", [None, [], 5, ["1"], [1.5], [-1], [2**64], {"1": 1}])
def test_seqs_must_be_whole_numbers_and_at_least_one(queue: QueueApi, action: str, seqs: Any) -> None:
    refused(queue.act(action, **{**ACTIONS[action], "seqs": seqs}), 400, "invalid_request")


@pytest.mark.parametrize("action", ["ack", "nack", "extend"])
def test_at_most_a_thousand_seqs_in_one_request(queue: QueueApi, action: str) -> None:
    fields = {key: value for key, value in ACTIONS[action].items() if key not in ("node", "seqs")}
    assert queue.settle(action, *range(1, 1001), **fields)["skipped"] == list(range(1, 1001))
    answer = queue.act(action, **{**ACTIONS[action], "seqs": list(range(1001))})
    refused(answer, 400, "batch_too_large")


@pytest.mark.parametrize("action", ["ack", "nack", "extend"])
@pytest.mark.parametrize("lease_ids", [[], ["a", "b"], "a", [5], [None]])
def test_there_is_one_lease_id_for_each_seq_or_none_at_all(queue: QueueApi, action: str, lease_ids: Any) -> None:
    refused(queue.act(action, **ACTIONS[action], lease_ids=lease_ids), 400, "invalid_request")
    assert queue.act(action, **ACTIONS[action], lease_ids=None).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"max": "5"},
        {"max": 1.5},
        {"max": -1},
        {"max": None},
        {"lease_ms": "5"},
        {"lease_ms": -1},
        {"wait_ms": -1},
        {"wait_ms": "1"},
        {"partition": 7},
    ],
)
def test_a_claim_with_a_wrong_type_is_refused(queue: QueueApi, fields: dict[str, Any]) -> None:
    queue.append(1)
    refused(queue.act("claim", node="w", **fields), 400, "invalid_request")
    assert queue.counters() == (1, 0, 0)


# Claim


def test_an_empty_queue_answers_with_nothing(queue: QueueApi) -> None:
    body = queue.claim(max=5)
    assert (body["claimed"], body["count"], body["ready"]) == ([], 0, 0)
    assert body["performance"]["throttle_wait_ms"] == 0


def test_a_job_carries_its_record_and_its_lease(queue: QueueApi) -> None:
    queue.append_records({"data": {"n": 1}, "tag": "t", "node": "n", "meta": {"m": 1}}, {"data": None})
    body = queue.claim(max=2, lease_ms=5000)
    one, two = body["claimed"]
    assert {key: one[key] for key in ("$seq", "$tag", "data", "meta", "deliveries")} == {
        "$seq": 1,
        "$tag": "t",
        "data": {"n": 1},
        "meta": {"m": 1},
        "deliveries": 1,
    }
    assert set(two) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert two["data"] is None
    assert one["lease_id"] != two["lease_id"]
    assert 0 <= one["deadline"] - one["$ts"] - 5000 < 5000


def test_data_and_meta_are_the_clients_own_bytes(queue: QueueApi) -> None:
    record = b'{"data":{"a":1.0,"b":1E5 , "a":"\\u0041\\/", "n":123456789012345678901234567890},"meta":{"k": -0}}'
    assert queue.api.post(queue.path, b'{"records":[%b]}' % record).status == 200
    body = queue.act("claim", node="w").body
    assert b'"data":{"a":1.0,"b":1E5 , "a":"\\u0041\\/", "n":123456789012345678901234567890}' in body
    assert b'"meta":{"k": -0}' in body


def test_one_job_by_default_and_a_thousand_at_most(queue: QueueApi) -> None:
    queue.append(*range(1100))
    assert queue.claim()["count"] == 1
    body = queue.claim(max=10**9)
    assert body["count"] == 1000
    assert body["ready"] == 99
    assert queue.claim(max=0)["count"] == 0


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (99, 100), (100, 100), (DAY_MS + 1, DAY_MS), (2**63, DAY_MS)])
def test_the_lease_is_clamped(queue: QueueApi, asked: int, given: int) -> None:
    (written,) = queue.append(1)["seqs"]
    (job,) = queue.jobs(lease_ms=asked)
    assert job["$seq"] == written
    assert given <= job["deadline"] - job["$ts"] < given + 5000
    deadlines = queue.settle("extend", written, lease_ms=asked)["deadlines"]
    assert given <= deadlines[str(written)] - job["$ts"] < given + 5000


def test_the_lease_is_the_topics_unless_the_claim_says_otherwise(queue: QueueApi) -> None:
    queue.configure(lease_ms=50_000)
    queue.append(1, 2)
    (one,) = queue.jobs()
    (two,) = queue.jobs(lease_ms=90_000)
    assert 50_000 <= one["deadline"] - one["$ts"] < 55_000
    assert 90_000 <= two["deadline"] - two["$ts"] < 95_000


def test_a_leased_job_is_invisible_to_everybody(queue: QueueApi) -> None:
    queue.append(1)
    assert queue.claim("w")["count"] == 1
    assert queue.claim("w")["count"] == 0
    assert queue.claim("v")["count"] == 0
    assert queue.seqs() == [1], "but readers see it"


def test_expired_jobs_come_first_and_count_one_more_delivery(queue: QueueApi) -> None:
    queue.append(1, 2, 3)
    (job,) = queue.jobs(lease_ms=100)
    assert queue.counters() == (2, 1, 0)
    wait_until_past(job["deadline"])
    assert queue.counters() == (3, 0, 0), "counters move with the clock"
    one, two = queue.jobs("v", max=2)
    assert (one["$seq"], one["deliveries"], two["$seq"], two["deliveries"]) == (1, 2, 2, 1)
    assert one["lease_id"] != job["lease_id"]
    assert queue.settle("ack", 1)["skipped"] == [1]


# Settling


def test_an_ack_deletes_and_a_second_one_skips(queue: QueueApi) -> None:
    queue.append(1, 2, 3)
    queue.claim(max=2)
    body = queue.settle("ack", 1, 99)
    assert set(body) == {"topic", "acked", "skipped", "ready", "in_flight", "performance"}
    assert (body["topic"], body["acked"], body["skipped"], body["ready"], body["in_flight"]) == (
        queue.name,
        1,
        [99],
        1,
        1,
    )
    assert queue.settle("ack", 1)["skipped"] == [1]
    assert queue.settle("ack", 2, node="v")["skipped"] == [2]
    assert queue.settle("ack", 3)["skipped"] == [3]
    assert queue.settle("ack", 2, 2)["skipped"] == [2], "a job is acked once"
    assert queue.seqs() == [3]
    assert queue.state()["count"] == 1


@pytest.mark.parametrize(
    ("durability", "synced"), [("fsync", True), ("disk", False), ("memory", False), ("ephemeral", False)]
)
def test_an_ack_waits_for_the_sync_of_a_durable_queue_only(queue: QueueApi, durability: str, synced: bool) -> None:
    queue.configure(durability=durability)
    queue.append(1)
    queue.claim()
    assert (queue.settle("ack", 1)["performance"]["fsync_ms"] > 0) is synced


def test_a_nack_gives_back_at_once_or_later(queue: QueueApi) -> None:
    queue.append(1, 2)
    queue.claim(max=2)
    body = queue.settle("nack", 1, 7)
    assert set(body) == {"topic", "nacked", "skipped", "ready", "in_flight", "performance"}
    assert (body["nacked"], body["skipped"], body["ready"], body["in_flight"]) == (1, [7], 1, 1)
    assert [(job["$seq"], job["deliveries"]) for job in queue.jobs("v")] == [(1, 2)]
    body = queue.settle("nack", 2, delay_ms=150)
    assert (body["ready"], body["in_flight"]) == (0, 1)
    assert queue.claim()["count"] == 0
    assert queue.claim(wait_ms=5000)["claimed"][0]["$seq"] == 2


@pytest.mark.parametrize("delay_ms", [-1, "5", 1.5])
def test_a_delay_is_a_whole_number(queue: QueueApi, delay_ms: Any) -> None:
    refused(queue.act("nack", node="w", seqs=[1], delay_ms=delay_ms), 400, "invalid_request")
    answer = queue.api.post(queue.path, {"records": [{"data": 1, "delay_ms": delay_ms}]})
    refused(answer, 400, "invalid_request")
    assert queue.act("nack", node="w", seqs=[1], delay_ms=10**12).status == 200


def test_an_extension_sets_the_deadline_and_counts_no_delivery(queue: QueueApi) -> None:
    queue.append(1, 2)
    one, two = queue.jobs(max=2, lease_ms=100)
    body = queue.settle("extend", 1, 9, lease_ms=60_000)
    assert set(body) == {"topic", "extended", "skipped", "deadlines", "performance"}
    assert (body["extended"], body["skipped"], list(body["deadlines"])) == (1, [9], ["1"])
    wait_until_past(two["deadline"])
    assert queue.counters() == (1, 1, 0)
    assert queue.settle("extend", 2, lease_ms=1000)["skipped"] == [2]
    assert queue.settle("ack", 1, lease_ids=[one["lease_id"]])["acked"] == 1
    refused(queue.act("extend", node="w", seqs=[1]), 400, "invalid_request")


@pytest.mark.parametrize("action", ["ack", "nack", "extend"])
def test_a_stale_lease_id_is_skipped_even_for_the_same_node(queue: QueueApi, action: str) -> None:
    fields = {key: value for key, value in ACTIONS[action].items() if key not in ("node", "seqs")}
    queue.append(1)
    (old,) = queue.jobs()
    queue.settle("nack", 1)
    (new,) = queue.jobs()
    body = queue.settle(action, 1, lease_ids=[old["lease_id"]], **fields)
    assert body["skipped"] == [1]
    assert queue.counters() == (0, 1, 0)
    assert queue.settle(action, 1, lease_ids=[new["lease_id"]], **fields)["skipped"] == []


# Waiting, delaying, sharing


def test_a_claim_waits_for_an_append_a_nack_and_an_expiry(queue: QueueApi) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.jobs, "v", wait_ms=20_000, lease_ms=100)
        queue.append("first")
        assert waiting.result(20)[0]["data"] == "first"
        assert queue.jobs("w", wait_ms=20_000)[0]["deliveries"] == 2, "the expiry of v's lease"
        waiting = threads.submit(queue.jobs, "v", wait_ms=20_000)
        queue.settle("nack", 1, node="w")
        assert waiting.result(20)[0]["deliveries"] == 3


def test_a_wait_ends_in_time_and_delays_no_other_request(queue: QueueApi) -> None:
    body = queue.claim(wait_ms=120)
    assert body["count"] == 0
    assert 100 <= body["performance"]["server_total_ms"] < 10_000


def test_a_delayed_job_becomes_claimable_in_time(queue: QueueApi) -> None:
    queue.append_records({"data": "later", "delay_ms": 1500}, {"data": "now"})
    assert queue.counters() == (1, 0, 0)
    assert [job["data"] for job in queue.jobs(max=5)] == ["now"]
    assert queue.seqs() == [1, 2], "readers see it at once"
    assert [job["data"] for job in queue.jobs(max=5, wait_ms=20_000)] == ["later"]


def test_a_log_refuses_delays(api: Api, name: str) -> None:
    log = TopicApi(api, name)
    answer = api.post(log.path, {"records": [{"data": 1, "delay_ms": 5}]})
    refused(answer, 400, "invalid_request")
    assert not log.exists()
    made = api.post(log.path, {"records": [{"data": 1, "delay_ms": 60_000}], "config": {"type": "queue"}})
    assert made.status == 201
    assert log.state()["queue"]["ready"] == 0


def test_ten_claimers_in_one_window_get_equal_shares(queue: QueueApi) -> None:
    queue.configure(claim_jitter_ms=500)
    queue.append(*range(50))
    with ThreadPoolExecutor(10) as threads:
        barrier = threading.Barrier(10)

        def claim(number: int) -> int:
            barrier.wait(20)
            return int(queue.claim(f"w{number}", max=50)["count"])

        counts = list(threads.map(claim, range(10)))
    assert counts == [5] * 10


# Dead letters


def test_the_bound_on_deliveries_is_exact_and_the_dead_letter_tells_where_it_comes_from(queue: QueueApi) -> None:
    dead = TopicApi(queue.api, f"{queue.name}-dead")
    queue.configure(max_deliveries=2, dead_letter=dead.name)
    queue.append_records({"data": {"n": 1.0}, "tag": "t", "meta": {"k": 1}}, {"data": "next"})
    for delivery in (1, 2):
        (job,) = queue.jobs()
        assert (job["$seq"], job["deliveries"]) == (1, delivery)
        queue.settle("nack", 1)
    assert not dead.exists()
    (job,) = queue.jobs()
    assert job["$seq"] == 2
    assert queue.counters() == (0, 1, 1)
    assert queue.seqs() == [2]
    (record,) = dead.diff(include_tags=True)["records"]
    assert (record["data"], record["$tag"]) == ({"n": 1.0}, "t")
    assert record["meta"] == {
        "k": 1,
        "$dead_letter_from": queue.name,
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
    }


def test_a_dead_letter_has_the_reason_of_the_last_nack(queue: QueueApi) -> None:
    dead = TopicApi(queue.api, f"{queue.name}-dead")
    queue.configure(max_deliveries=2, dead_letter=dead.name)
    queue.append("a", "b")
    for reason in ("first", "x" * 2000):
        assert len(queue.jobs(max=2)) == 2
        queue.settle("nack", 1, reason=reason)
        queue.settle("nack", 2)
    assert queue.jobs(max=2) == []
    first, second = dead.diff()["records"]
    assert first["meta"]["$dead_letter_reason"] == "x" * 1000
    assert "$dead_letter_reason" not in second["meta"]


def test_a_dead_letter_makes_no_topic_under_the_alias_of_another(queue: QueueApi) -> None:
    other, alias = TopicApi(queue.api, f"{queue.name}-other"), f"{queue.name}-alias"
    other.append("its own")
    succeeded(queue.api.post("/api/sql", {"sql": f"ALTER TOPIC \"{other.name}\" SET ALIAS '{alias}'"}))
    queue.configure(max_deliveries=1, dead_letter=alias)
    queue.append("job")
    queue.claim()
    queue.settle("nack", 1)
    assert queue.jobs() == []
    assert queue.counters() == (1, 0, 0)
    assert TopicApi(queue.api, alias).state()["topic"] == other.name
    assert other.state()["count"] == 1
    succeeded(queue.api.post("/api/sql", {"sql": f'ALTER TOPIC "{other.name}" CLEAR ALIAS'}))
    assert queue.jobs() == []
    assert queue.counters() == (0, 0, 1)


def test_a_queue_cannot_be_its_own_dead_letter_topic(queue: QueueApi) -> None:
    refused(queue.api.put(queue.path, {"dead_letter": queue.name}), 400, "invalid_request")
    refused(queue.api.put(queue.path, {"dead_letter": "bad name"}), 400, "invalid_request")


def test_the_type_of_a_topic_cannot_change(queue: QueueApi) -> None:
    refused(queue.api.put(queue.path, {"type": "log"}), 409, "topic_exists_incompatible")


def test_a_topic_made_again_has_no_leases_and_no_count_of_dead_letters(queue: QueueApi) -> None:
    queue.configure(max_deliveries=1, dead_letter=f"{queue.name}-dead")
    queue.append(1, 2)
    queue.claim()
    queue.settle("nack", 1)
    queue.claim()
    assert queue.counters() == (0, 1, 1)
    queue.drop()
    queue.configure(type="queue")
    assert queue.counters() == (0, 0, 0)
    queue.append(1)
    assert queue.settle("ack", 1)["skipped"] == [1]
    assert queue.jobs()[0]["deliveries"] == 1


# Keys


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("guarded")),
        "TOPICS_API_KEYS": "all,r:read,w:write,rw:rw,mine:rw+admin:mine.",
    }
    with running_server(load_settings(environment)) as url:
        yield url


def test_scopes_of_the_queue_routes(guarded: str) -> None:
    for key in ("all", "r", "w", "rw", "mine"):
        with Api(guarded, {"Authorization": f"Bearer {key}"}) as api:
            queue = QueueApi(api, "scoped")
            if key == "all":
                queue.configure(type="queue")
            for action, fields in ACTIONS.items():
                allowed = key in ("all", "rw") or (key == "w" and action != "claim")
                assert queue.act(action, **fields).status == (200 if allowed else 403), (action, key)


def test_a_dead_letter_topic_outside_the_keys_prefixes_is_refused(guarded: str) -> None:
    with Api(guarded, {"Authorization": "Bearer mine"}) as api:
        refused(api.put("/v0/topics/mine.q", {"type": "queue", "dead_letter": "other"}), 403, "forbidden")
        assert api.put("/v0/topics/mine.q", {"type": "queue", "dead_letter": "mine.dead"}).status == 201
