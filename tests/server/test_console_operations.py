"""The operations that operators use: search, ranges, jobs, dead letters, groups, connections, previews, overview, who am I.

What each requires and hides is in `test_authorization.py`; every response is checked against its declaration by `House.ask`.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.server.house import House, error_of, in_house
from topics.testing.http import Api
from topics.testing.process import ServerProcess

RECORDS = {"records": [{"data": 1}]}


async def call(house: House, method: str, path: str, body: Any = None) -> Any:
    answer = await house.ask(method, path, body)
    assert answer.status in (200, 201), (path, answer.body)
    return answer.json


async def append(house: House, topic: str, *records: dict[str, Any], **more: Any) -> None:
    await call(house, "POST", f"/v0/topics/{topic}", {"records": list(records), **more})


@in_house()
async def test_search_finds_sorts_and_pages(house: House) -> None:
    for number in range(12):
        await append(house, f"t{number:02d}", *[{"data": "x"}] * (1 + number % 4))
    await call(house, "PUT", "/v0/topics/jobs", {"type": "queue"})
    found = await call(house, "GET", "/v0/topic-search?q=T0&limit=3")
    assert (found["total"], [each["topic"] for each in found["topics"]]) == (10, ["t00", "t01", "t02"])
    found = await call(house, "GET", "/v0/topic-search?q=t&sort=count&order=desc&offset=1&limit=3")
    # Equal ones by name.
    assert [(each["topic"], each["count"]) for each in found["topics"]] == [("t07", 4), ("t11", 4), ("t02", 3)]
    found = await call(house, "GET", "/v0/topic-search?type=queue")
    assert [each["queue"]["ready"] for each in found["topics"]] == [0]
    assert (await house.ask("GET", "/v0/topic-search?sort=color")).status == 400


@in_house()
async def test_search_counts_lag_and_losses(house: House) -> None:
    await call(house, "PUT", "/v0/topics/capped", {"cap_records": 4})
    await append(house, "capped", *[{"data": number} for number in range(10)])
    await call(house, "POST", "/api/topics/consume", {"topic": "capped", "group_id": "g", "timeout_seconds": 0})
    found = await call(house, "GET", "/v0/topic-search?q=capped&sort=lost")
    assert (found["topics"][0]["lost"], found["topics"][0]["groups"], found["topics"][0]["lag_records"]) == (6, 1, 4)


@in_house()
async def test_ranges_tell_live_evicted_and_deleted_apart(house: House) -> None:
    await call(house, "PUT", "/v0/topics/a", {"cap_records": 6})
    await append(house, "a", *[{"data": number, "tag": "x" if number in (6, 7) else "y"} for number in range(10)])
    await call(house, "POST", "/v0/topics/a/delete", {"match": "x"})
    await call(house, "POST", "/v0/topics/a/delete", {"before_seq": 6})
    ranges = (await call(house, "GET", "/v0/topics/a/ranges"))["ranges"]
    assert [(each["kind"], each["first_seq"], each["last_seq"], each.get("reason")) for each in ranges] == [
        ("evicted", 1, 4, "cap"),
        ("deleted", 5, 5, None),
        ("live", 6, 6, None),
        ("deleted", 7, 8, None),
        ("live", 9, 10, None),
    ]
    assert (await call(house, "GET", "/v0/topics/a/ranges"))["truncated"] is False


@in_house()
async def test_jobs_are_shown_by_state_and_none_is_leased_by_looking(house: House) -> None:
    await call(house, "PUT", "/v0/topics/q", {"type": "queue"})
    await append(house, "q", *[{"data": {"n": number}, "tag": f"k{number}"} for number in range(5)])
    await append(house, "q", {"data": {"n": 5}, "delay_ms": 60_000})
    claimed = (await call(house, "POST", "/v0/topics/q/claim", {"node": "w", "max": 2}))["claimed"]
    await call(house, "POST", "/v0/topics/q/nack", {"node": "w", "seqs": [2]})
    ready = await call(house, "GET", "/v0/topics/q/jobs")
    # In the order of delivery: the returned job first.
    assert [(job["seq"], job["deliveries"]) for job in ready["jobs"]] == [(2, 1), (3, 0), (4, 0), (5, 0)]
    assert (await call(house, "GET", "/v0/topics/q/jobs?limit=1"))["jobs"][0]["tag"] == "k1"
    flying = await call(house, "GET", "/v0/topics/q/jobs?state=in_flight")
    assert [(job["seq"], job["node"], job["lease_id"]) for job in flying["jobs"]] == [(1, "w", claimed[0]["lease_id"])]
    delayed = await call(house, "GET", "/v0/topics/q/jobs?state=delayed")
    assert [job["data"] for job in delayed["jobs"]] == [{"n": 5}]
    assert {name: delayed["counts"][name] for name in ("ready", "delayed", "in_flight")} == {
        "ready": 4,
        "delayed": 1,
        "in_flight": 1,
    }
    assert ready == {**ready, "total": 4}
    await append(house, "log", {"data": 1})
    assert error_of(await house.ask("GET", "/v0/topics/log/jobs"))["code"] == "not_a_queue"


async def make_letters(house: House, queue: str, letters: str, count: int) -> None:
    await call(house, "PUT", f"/v0/topics/{queue}", {"type": "queue", "max_deliveries": 1, "dead_letter": letters})
    jobs = [
        {"data": {"n": number}, "tag": f"k{number % 2}", "node": "sender", "meta": {"own": number}}
        for number in range(count)
    ]
    await append(house, queue, *jobs)
    seqs = [
        job["$seq"]
        for job in (await call(house, "POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": count}))["claimed"]
    ]
    await call(house, "POST", f"/v0/topics/{queue}/nack", {"node": "w", "seqs": seqs})
    await call(house, "POST", f"/v0/topics/{queue}/claim", {"node": "w", "max": count})


async def read(house: House, topic: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = (
        await call(house, "POST", f"/v0/topics/{topic}/diff", {"include_tags": True, "limit": 1000})
    )["records"]
    return records


@in_house()
async def test_dead_letters_go_back_to_their_queue_as_they_were(house: House) -> None:
    await make_letters(house, "q", "dead", 5)
    before = [{name: letter[name] for name in ("data", "$tag", "$node")} for letter in await read(house, "dead")]
    plan = await call(house, "POST", "/v0/topics/dead/redrive", {"dry_run": True})
    assert (plan["moved"], plan["queues"], len(await read(house, "dead"))) == (5, {"q": 5}, 5)
    done = await call(house, "POST", "/v0/topics/dead/redrive", {})
    assert (done["moved"], await read(house, "dead")) == (5, [])
    jobs = await read(house, "q")
    assert [{name: job[name] for name in ("data", "$tag", "$node")} for job in jobs] == before
    assert [job["meta"] for job in jobs] == [{"own": number} for number in range(5)]
    claimed = (await call(house, "POST", "/v0/topics/q/claim", {"node": "w", "max": 9}))["claimed"]
    assert [job["deliveries"] for job in claimed] == [1] * 5


@in_house()
async def test_redrive_moves_only_what_is_wanted(house: House) -> None:
    await make_letters(house, "q1", "dead", 4)
    await make_letters(house, "q2", "dead", 2)
    await append(house, "dead", {"data": "no dead letter"})
    seqs = [letter["$seq"] for letter in await read(house, "dead")]
    assert (await call(house, "POST", "/v0/topics/dead/redrive", {"queue": "q2"}))["queues"] == {"q2": 2}
    assert (await call(house, "POST", "/v0/topics/dead/redrive", {"seqs": seqs[:1]}))["queues"] == {"q1": 1}
    assert (await call(house, "POST", "/v0/topics/dead/redrive", {"match": "k1"}))["queues"] == {"q1": 2}
    await call(house, "DELETE", "/v0/topics/q1")
    last = await call(house, "POST", "/v0/topics/dead/redrive", {})
    assert (last["moved"], last["skipped"]) == (0, 2)
    assert len(await read(house, "dead")) == 2


@in_house()
async def test_many_dead_letters_are_moved_by_several_commits(house: House) -> None:
    await make_letters(house, "q", "dead", 700)
    done = await call(house, "POST", "/v0/topics/dead/redrive", {})
    assert (done["moved"], await read(house, "dead")) == (700, [])
    assert [job["data"]["n"] for job in await read(house, "q")] == list(range(700))


@pytest.mark.slow
def test_moved_dead_letters_survive_a_kill_in_exactly_one_place(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        with Api(server.url) as api:
            api.put("/v0/topics/q", {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
            api.post("/v0/topics/q", {"records": [{"data": number} for number in range(4)]})
            api.post("/v0/topics/q/claim", {"node": "w", "max": 4})
            api.post("/v0/topics/q/nack", {"node": "w", "seqs": [1, 2, 3, 4]})
            api.post("/v0/topics/q/claim", {"node": "w", "max": 4})
            assert api.post("/v0/topics/dead/redrive", {"seqs": [1, 2, 3]}).json["moved"] == 3
        server.kill()
        server.start()
        with Api(server.url) as api:
            assert [job["data"] for job in api.post("/v0/topics/q/diff", {}).json["records"]] == [0, 1, 2]
            assert [letter["data"] for letter in api.post("/v0/topics/dead/diff", {}).json["records"]] == [3]


@in_house()
async def test_full_queue_keeps_its_dead_letters(house: House) -> None:
    await make_letters(house, "q", "dead", 3)
    await call(house, "PUT", "/v0/topics/q", {"cap_records": 1, "discard": "reject"})
    assert error_of(await house.ask("POST", "/v0/topics/dead/redrive", {}))["code"] == "topic_full"
    assert len(await read(house, "dead")) == 3


@in_house()
async def test_groups_have_members_partitions_and_lag(house: House) -> None:
    await call(house, "PUT", "/v0/topics/a", {"partitions": 2})
    for partition in (0, 1):
        await append(house, "a", *[{"data": 1}] * 3, partition=partition)
    for member in ("m1", "m2"):
        poll = {"topic": "a", "group_id": "g", "consumer_id": member, "timeout_seconds": 0}
        await call(house, "POST", "/api/topics/consume", poll)
    owners = (await call(house, "GET", "/api/groups?q=G"))["groups"][0]["partitions"]
    ack = {"topic": "a", "group_id": "g", "upto_offset": 2, "partition_id": 0, "consumer_id": owners[0]["consumer_id"]}
    await call(house, "POST", "/api/topics/ack", ack)
    listed = await call(house, "GET", "/api/groups?q=G")
    assert listed["total"] == 1
    group = listed["groups"][0]
    assert group["lag_records"] == sum([each["lag_records"] for each in group["partitions"]])
    assert group["partitions"][0]["lag_records"] == 1
    assert {member["consumer_id"] for member in group["members"]} == {"m1", "m2"}
    assert (await call(house, "GET", "/api/groups?group=other"))["groups"] == []


@in_house()
async def test_idle_session_is_listed_without_its_secret_and_can_be_ended(house: House) -> None:
    await append(house, "a", {"data": 1})
    wid = (await call(house, "POST", "/v0/watch", {"topics": {"a": {}}}))["wid"]
    listed = (await call(house, "GET", "/v0/connections"))["connections"]
    assert [(each["kind"], each["lag"]) for each in listed] == [("session", 1)]
    assert wid not in str(listed)
    ended = await call(house, "DELETE", f"/v0/connections/{listed[0]['id']}")
    assert ended["disconnected"] is True
    assert (await house.ask("GET", f"/v0/watch/{wid}")).status == 404
    assert (await call(house, "DELETE", "/v0/connections/c999"))["disconnected"] is False


@in_house()
async def test_dry_run_of_a_delete_counts_and_deletes_nothing(house: House) -> None:
    await append(house, "a", *[{"data": number, "tag": f"k{number % 2}"} for number in range(10)])
    for body, count in (
        ({"match": "k1"}, 5),
        ({"match": "k*"}, 10),
        ({"before_seq": 4}, 3),
        ({"match": "k1", "before_seq": 5}, 2),
    ):
        assert (await call(house, "POST", "/v0/topics/a/delete", {**body, "dry_run": True}))["deleted"] == count, body
    assert len(await read(house, "a")) == 10
    assert (await call(house, "POST", "/v0/topics/a/delete", {"match": "k1"}))["deleted"] == 5


@pytest.mark.parametrize(
    ("change", "records"), [({"cap_records": 4}, 6), ({"cap_records": 20}, 0), ({"cap_bytes": 1}, 10), ({}, 0)]
)
def test_dry_run_of_a_configuration_counts_what_the_change_drops(change: dict[str, Any], records: int) -> None:
    @in_house()
    async def check(house: House) -> None:
        await append(house, "a", *[{"data": "x"}] * 10)
        plan = await call(house, "PUT", "/v0/topics/a?dry_run=true", change)
        assert (plan["dry_run"], plan["evicts_records"]) == (True, records)
        assert len(await read(house, "a")) == 10
        await call(house, "PUT", "/v0/topics/a", change)
        assert len(await read(house, "a")) == 10 - records

    check()


@in_house()
async def test_read_by_tag_finds_all_and_only_matching_records(house: House) -> None:
    await append(house, "a", *[{"data": number, "tag": f"k{number % 3}"} for number in range(100)])
    await call(house, "POST", "/v0/topics/a/delete", {"before_seq": 10})
    found: list[int] = []
    cursor = 0
    for _ in range(20):
        body = {"from_seq": cursor, "limit": 7, "filter": ["tag", "Eq", "k1"]}
        page = await call(house, "POST", "/v0/topics/a/diff", body)
        found += [record["data"] for record in page["records"]]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert found == [number for number in range(9, 100) if number % 3 == 1]
    page = await call(house, "POST", "/v0/topics/a/diff", {"filter": "k1", "to_seq": 14})
    assert [record["$seq"] for record in page["records"]] == [11, 14]


@in_house()
async def test_overview_warns_of_dead_letters_and_failed_pipelines(house: House) -> None:
    await make_letters(house, "q", "dead", 2)
    jobs = [{"name": "j", "kind": "routing", "state": "failed", "error": "no"}]
    await call(house, "PUT", "/api/pipelines/main", {"state": "running", "jobs": jobs})
    overview = await call(house, "GET", "/v0/overview")
    # The disk of the machine may be nearly full as well.
    kinds = [each["kind"] for each in overview["warnings"] if each["kind"] != "disk"]
    assert kinds == ["pipeline", "dead_letters"]
    assert overview["topics"] == 2


@in_house(API_KEYS="full,reader:read:a.|b.")
async def test_whoami_names_scopes_and_prefixes(house: House) -> None:
    full = (await house.ask("GET", "/v0/whoami", key="full")).json
    assert (full["scopes"], full["prefixes"]) == (["read", "write", "delete", "admin", "consume"], [])
    reader = (await house.ask("GET", "/v0/whoami", key="reader")).json
    assert (reader["scopes"], reader["prefixes"], reader["credentials_required"]) == (["read"], ["a.", "b."], True)
