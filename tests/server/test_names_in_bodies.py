"""Names that come in a body or in a statement are held to the prefixes of the key like those in a path."""

from tests.server.house import House, error_of, in_house

RECORDS = {"records": [{"data": 1}]}
KEYS = "full,tenant::t42:"
INSIDE, OUTSIDE = "t42:in", "other"


@in_house(API_KEYS=KEYS)
async def test_a_repeated_batch_tells_nothing_of_what_others_have_placed(house: House) -> None:
    for name in (INSIDE, OUTSIDE):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")
    await house.ask("POST", "/v0/commits", {"producer": "p", "batch": 0}, key="tenant")
    batch = {"producer": "p", "batch": 1}
    writes = [{"topic": name, **RECORDS} for name in (INSIDE, OUTSIDE)]
    first = await house.ask("POST", "/v0/commits", {"writes": writes, **batch}, key="full")
    assert first.json["count"] == 2
    again = await house.ask("POST", "/v0/commits", {"writes": writes[:1], **batch}, key="tenant")
    assert (again.json["deduped"], again.json["count"]) == (True, 1)
    assert [each["topic"] for each in again.json["results"]] == [INSIDE]


CHANGES = {"changes": [{"op": "insert", "key": {"id": 1}, "after": {"id": 1}}]}


@in_house(API_KEYS="full,feeder:write:changes:chat.,reader:read")
async def test_changes_are_for_keys_that_may_write_the_change_topic(house: House) -> None:
    allowed = await house.ask("POST", "/api/tables/chat.messages/changes", CHANGES, key="feeder")
    assert allowed.status == 200, allowed.body
    for path, key in (("/api/tables/shop.orders/changes", "feeder"), ("/v1/api/tables/chat.x/changes", "reader")):
        answer = await house.ask("POST", path, CHANGES, key=key)
        assert (answer.status, error_of(answer)["code"]) == (403, "forbidden"), answer.body
    assert set(house.broker.state.topics) == {"changes:chat.messages"}


@in_house(API_KEYS="full,tenant::t42:,treader:read:t42:")
async def test_archives_are_shown_and_reached_within_the_prefixes_also_by_an_alias(house: House) -> None:
    for name in (INSIDE, OUTSIDE):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")
        await house.ask("PUT", f"/v0/topics/{name}/archive", {"uri": f"s3://lake/{name}"}, key="full")
    sql = {"sql": f"ALTER TOPIC {OUTSIDE} SET ALIAS 't42:alias'"}
    assert (await house.ask("POST", "/api/sql", sql, key="full")).status == 200
    assert (await house.ask("GET", "/v0/topics/t42:alias/archive", key="full")).json["topic"] == OUTSIDE
    for method, path, body in (
        ("GET", "archive", None),
        ("PUT", "archive", {"uri": "s3://elsewhere"}),
        ("DELETE", "archive", None),
        ("POST", "archive/progress", {"partitions": []}),
    ):
        answer = await house.ask(method, f"/v0/topics/t42:alias/{path}", body, key="tenant")
        assert (answer.status, error_of(answer)["code"]) == (403, "forbidden"), (method, answer.body)
    listed = await house.ask("GET", "/api/archives", key="treader")
    assert [each["topic"] for each in listed.json["archives"]] == [INSIDE]
    try:
        rows = await house.ask("POST", "/api/sql", {"sql": "SELECT topic_id FROM system.archives"}, key="treader")
        assert rows.json["rows"] == [[INSIDE]]
    finally:
        house.service.selects.close()
    assert {topic.name for topic in house.broker.state.archived.values()} == {INSIDE, OUTSIDE}


@in_house(API_KEYS=KEYS)
async def test_reads_by_an_alias_need_the_right_to_the_topic_behind_it(house: House) -> None:
    for name, alias in ((INSIDE, "t42:near"), (OUTSIDE, "t42:far")):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")
        sql = {"sql": f"ALTER TOPIC \"{name}\" SET ALIAS '{alias}'"}
        assert (await house.ask("POST", "/api/sql", sql, key="full")).status == 200
    for method, rest, body in (
        ("GET", "", None),
        ("POST", "/diff", {}),
        ("POST", "/diff", {"wait_ms": 5, "from_seq": 1}),
    ):
        assert (await house.ask(method, f"/v0/topics/t42:near{rest}", body, key="tenant")).json["topic"] == INSIDE
        assert (await house.ask(method, f"/v0/topics/t42:far{rest}", body, key="full")).json["topic"] == OUTSIDE
        for alias, status, code in (("t42:far", 403, "forbidden"), ("t42:none", 404, "topic_not_found")):
            answer = await house.ask(method, f"/v0/topics/{alias}{rest}", body, key="tenant")
            assert (answer.status, error_of(answer)["code"]) == (status, code)
    # Writes are for names alone.
    answer = await house.ask("POST", "/v0/topics/t42:near", RECORDS, key="full")
    assert error_of(answer)["code"] == "topic_exists_incompatible"
