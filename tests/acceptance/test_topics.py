"""/v0/topics and /v0/topics/:topic: topics come, change, are looked at, listed, and go."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import DEFAULT_CONFIG, TopicApi, refused, succeeded, wait_until_past
from topics.testing.http import Api

# Creating and configuring


def test_an_empty_config_creates_a_topic_with_every_default(topic: TopicApi) -> None:
    answer = topic.api.put(topic.path, {})
    body = succeeded(answer)
    assert answer.status == 201
    assert body["topic"] == topic.name
    assert body["created"] is True
    assert body["config"] == DEFAULT_CONFIG


def test_a_put_without_any_body_creates_a_topic_with_every_default(topic: TopicApi) -> None:
    answer = topic.api.send("PUT", topic.path)
    assert (answer.status, answer.json["config"]) == (201, DEFAULT_CONFIG)


def test_the_same_put_again_changes_nothing(topic: TopicApi) -> None:
    config = {"ttl_ms": 60_000, "cap_records": 5, "durable": True, "priority": 10}
    first = topic.configure(**config)
    again = topic.api.put(topic.path, config)
    assert again.status == 200
    assert again.json["created"] is False
    assert again.json["config"] == first["config"]


def test_a_put_on_an_existing_topic_keeps_the_fields_it_does_not_name(topic: TopicApi) -> None:
    topic.configure(ttl_ms=60_000, cap_records=7, discard="reject", durability="memory", priority=3, dedupe_node=False)
    answer = topic.api.put(topic.path, {"cap_records": 9})
    assert answer.status == 200
    assert answer.json["config"] == DEFAULT_CONFIG | {
        "ttl_ms": 60_000,
        "cap_records": 9,
        "discard": "reject",
        "durability": "memory",
        "priority": 3,
        "dedupe_node": False,
    }
    assert topic.state()["config"] == answer.json["config"]


def test_every_field_can_be_set_and_is_echoed(topic: TopicApi) -> None:
    config: dict[str, Any] = {
        "type": "log",
        "ttl_ms": 1_000_000,
        "cap_records": 2**64 - 1,
        "cap_bytes": 2**63,
        "discard": "reject",
        "durable": False,
        "durability": "ephemeral",
        "priority": -5,
        "auto_priority": False,
        "auto_create": False,
        "idempotency_window_ms": 5,
        "dedupe_node": False,
        "lease_ms": 1234,
        "claim_jitter_ms": 56,
        "max_deliveries": 7,
        "dead_letter": "some.dead:letters",
        "leases_durable": True,
    }
    assert set(config) == set(DEFAULT_CONFIG)
    assert topic.configure(**config)["config"] == config
    assert topic.state()["config"] == config


def test_nullable_fields_can_be_set_back_to_null(topic: TopicApi) -> None:
    topic.configure(priority=5, dead_letter="other")
    config = topic.configure(priority=None, dead_letter=None)["config"]
    assert (config["priority"], config["dead_letter"]) == (None, None)


@pytest.mark.parametrize(
    ("sent", "durability"),
    [
        ({}, "disk"),
        ({"durable": False}, "disk"),
        ({"durable": True}, "fsync"),
        ({"durable": True, "durability": "memory"}, "memory"),
        ({"durable": False, "durability": "fsync"}, "fsync"),
        ({"durability": "ephemeral"}, "ephemeral"),
        ({"durability": "memory"}, "memory"),
        ({"durability": "disk"}, "disk"),
        ({"durability": "fsync"}, "fsync"),
    ],
)
def test_durability_wins_over_durable_and_durable_tells_whether_it_is_fsync(
    topic: TopicApi, sent: dict[str, Any], durability: str
) -> None:
    for config in (topic.configure(**sent)["config"], topic.state()["config"]):
        assert config["durability"] == durability
        assert config["durable"] is (durability == "fsync")


def test_the_class_can_change_in_place(topic: TopicApi) -> None:
    topic.configure()
    for sent, durability in [
        ({"durable": True}, "fsync"),
        ({"durable": False}, "disk"),
        ({"durability": "memory"}, "memory"),
        ({"durability": "ephemeral"}, "ephemeral"),
        ({"durability": "fsync"}, "fsync"),
        ({"ttl_ms": 60_000}, "fsync"),
    ]:
        assert topic.configure(**sent)["config"]["durability"] == durability
        topic.append(durability)
    assert [record["data"] for record in topic.read_all()] == [
        "fsync",
        "disk",
        "memory",
        "ephemeral",
        "fsync",
        "fsync",
    ]


@pytest.mark.parametrize(
    ("field", "sent", "kept"),
    [
        ("priority", 1000, 1000),
        ("priority", 1001, 1000),
        ("priority", -1000, -1000),
        ("priority", -1001, -1000),
        ("priority", 2**31 - 1, 1000),
        ("lease_ms", 0, 100),
        ("lease_ms", 99, 100),
        ("lease_ms", 100, 100),
        ("lease_ms", 86_400_000, 86_400_000),
        ("lease_ms", 86_400_001, 86_400_000),
        ("claim_jitter_ms", 0, 0),
        ("claim_jitter_ms", 5000, 5000),
        ("claim_jitter_ms", 5001, 5000),
    ],
)
def test_clamped_fields_are_clamped_not_refused(topic: TopicApi, field: str, sent: int, kept: int) -> None:
    assert topic.configure(**{field: sent})["config"][field] == kept


NUMBERS = [
    "ttl_ms",
    "cap_records",
    "cap_bytes",
    "idempotency_window_ms",
    "lease_ms",
    "claim_jitter_ms",
    "max_deliveries",
]
FLAGS = ["durable", "auto_priority", "auto_create", "dedupe_node", "leases_durable"]
NOT_NUMBERS = ['"5"', "1.5", "1.0", "-1", "true", "null", "[]", "{}", "1e400", str(2**64)]
NOT_FLAGS = ["1", "0", '"yes"', '"true"', "null", "[]"]


@pytest.mark.parametrize("value", NOT_NUMBERS)
@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_is_a_whole_number_of_64_bits(topic: TopicApi, field: str, value: str) -> None:
    refused(topic.api.put(topic.path, b'{"%b":%b}' % (field.encode(), value.encode())), 400, "invalid_request")
    assert not topic.exists()


@pytest.mark.parametrize("value", NOT_FLAGS)
@pytest.mark.parametrize("field", FLAGS)
def test_a_flag_is_true_or_false(topic: TopicApi, field: str, value: str) -> None:
    refused(topic.api.put(topic.path, b'{"%b":%b}' % (field.encode(), value.encode())), 400, "invalid_request")
    assert not topic.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "stream"),
        ("type", None),
        ("type", 1),
        ("type", "Log"),
        ("discard", "new"),
        ("discard", None),
        ("discard", ["old"]),
        ("durability", "power"),
        ("durability", "Disk"),
        ("durability", None),
        ("durability", True),
        ("priority", "5"),
        ("priority", 1.5),
        ("priority", True),
        ("priority", 2**31),
        ("priority", -(2**31) - 1),
        ("dead_letter", 5),
        ("dead_letter", ""),
        ("dead_letter", "a/b"),
        ("dead_letter", "-a"),
        ("dead_letter", "é"),
        ("dead_letter", "a" * 256),
    ],
)
def test_values_outside_a_field_are_refused_and_nothing_is_created(topic: TopicApi, field: str, value: Any) -> None:
    refused(topic.api.put(topic.path, {"ttl_ms": 5, field: value}), 400, "invalid_request")
    assert not topic.exists()


def test_a_refused_change_leaves_the_config_as_it_was(topic: TopicApi) -> None:
    before = topic.configure(ttl_ms=60_000)["config"]
    refused(topic.api.put(topic.path, {"cap_records": 1, "ttl_ms": "5"}), 400, "invalid_request")
    refused(topic.api.put(topic.path, {"cap_records": 1, "type": "queue"}), 409, "topic_exists_incompatible")
    assert topic.state()["config"] == before


def test_a_topic_cannot_be_its_own_dead_letter(topic: TopicApi) -> None:
    refused(topic.api.put(topic.path, {"dead_letter": topic.name}), 400, "invalid_request")
    assert not topic.exists()
    topic.configure(dead_letter=topic.name + "x")


@pytest.mark.parametrize(("first", "second"), [("log", "queue"), ("queue", "log")])
def test_the_type_of_a_topic_never_changes(topic: TopicApi, first: str, second: str) -> None:
    topic.configure(type=first)
    answer = refused(topic.api.put(topic.path, {"type": second}), 409, "topic_exists_incompatible")
    assert answer.detail["topic"] == topic.name
    assert topic.configure(type=first, ttl_ms=1)["config"]["type"] == first
    assert topic.configure(ttl_ms=2)["config"]["type"] == first


def test_unknown_fields_and_parameters_are_ignored(topic: TopicApi) -> None:
    answer = topic.api.put(f"{topic.path}?colour=blue", {"colour": "blue", "cap_records": 3})
    assert answer.status == 201
    assert answer.json["config"] == DEFAULT_CONFIG | {"cap_records": 3}


def test_exactly_one_of_many_creators_creates(topic: TopicApi) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: topic.api.put(topic.path, {"cap_records": 5}), range(24)))
    assert sorted([answer.status for answer in answers]) == [200] * 23 + [201]
    assert [answer.json["created"] for answer in answers].count(True) == 1


# Names


@pytest.mark.parametrize(
    "name",
    ["a", "Z", "0", "9z", "a" * 255, "render-queue:tenantA", "a.b_c:d-e", "a..b", "a-", "a%2Db", "%61bc", "diff"],
)
def test_valid_names(api: Api, name: str) -> None:
    topic = TopicApi(api, name)
    assert api.put(topic.path, {}).status in (200, 201)
    assert topic.state()["topic"] == name.replace("%2D", "-").replace("%61", "a")
    assert topic.drop()["deleted"] is True


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "-a",
        "_a",
        ":a",
        "a b",
        "a%20b",
        "a%2Fb",
        "a%2fdiff",
        "a%00",
        "%00",
        "a" * 256,
        "a%C3%A9",
        "%C3%A9",
        "a%FF",
        "a%",
        "a%zz",
        "a+b",
        "a@b",
        "a>b",
        "a-%3Eb",
        "a%0A",
        "*",
        "a~",
    ],
)
def test_invalid_names_are_refused_everywhere(api: Api, name: str) -> None:
    path = f"/v0/topics/{name.replace(' ', '%20')}"
    refused(api.put(path, {}), 400, "invalid_request")
    refused(api.get(path), 400, "invalid_request")
    refused(api.delete(path), 400, "invalid_request")
    refused(api.post(path, {"records": [{"data": 1}]}), 400, "invalid_request")
    refused(api.post(f"{path}/diff", {}), 400, "invalid_request")
    refused(api.post(f"{path}/delete", {"before_seq": 1}), 400, "invalid_request")


def test_names_are_case_sensitive(api: Api, name: str) -> None:
    TopicApi(api, name + "A").configure(cap_records=1)
    assert not TopicApi(api, name + "a").exists()


# State


def test_a_new_topic_is_empty_and_has_no_last_read(topic: TopicApi) -> None:
    topic.configure()
    state = topic.state(touch=False)
    del state["performance"]
    assert isinstance(state.pop("epoch"), int)
    assert state == {
        "topic": topic.name,
        "type": "log",
        "head_seq": 0,
        "earliest_seq": 1,
        "next_seq": 1,
        "count": 0,
        "bytes": 0,
        "config": DEFAULT_CONFIG,
        "effective_priority": state["effective_priority"],
        "last_write_ts": None,
        "last_read_ts": None,
    }


def test_state_follows_what_is_written(topic: TopicApi) -> None:
    topic.append(1, 2, 3)
    state = topic.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (3, 1, 4, 3)
    assert state["bytes"] > 0
    assert state["last_write_ts"] == topic.diff()["records"][-1]["$ts"]


def test_looking_at_an_absent_topic_does_not_create_it(topic: TopicApi) -> None:
    for _ in range(2):
        answer = refused(topic.api.get(topic.path), 404, "topic_not_found")
        assert answer.detail["topic"] == topic.name


def test_only_a_look_that_touches_counts_as_reading(topic: TopicApi) -> None:
    topic.append(1)
    for path in (f"{topic.path}?touch=false", f"/v0/topics?prefix={topic.name}"):
        topic.api.get(path)
        assert topic.state(touch=False)["last_read_ts"] is None
    first = succeeded(topic.api.get(topic.path))["last_read_ts"]
    assert isinstance(first, int)
    assert topic.state(touch=False)["last_read_ts"] == first
    wait_until_past(first)
    topic.diff()
    second = topic.state(touch=False)["last_read_ts"]
    assert second > first
    wait_until_past(second)
    topic.api.get(f"/v0/topics?prefix={topic.name}&touch=true")
    assert topic.state(touch=False)["last_read_ts"] > second


@pytest.mark.parametrize("value", ["yes", "2", "", "TRUE"])
def test_a_flag_in_the_query_is_true_or_false(topic: TopicApi, value: str) -> None:
    topic.configure()
    refused(topic.api.get(f"{topic.path}?touch={value}"), 400, "invalid_request")
    refused(topic.api.get(f"/v0/topics?touch={value}"), 400, "invalid_request")
    refused(topic.api.delete(f"{topic.path}?if_empty={value}"), 400, "invalid_request")
    assert topic.exists()


def test_a_manual_priority_is_the_effective_one_and_reading_raises_an_automatic_one(topic: TopicApi) -> None:
    topic.configure()
    unread = topic.state()["effective_priority"]
    topic.diff()
    assert topic.state()["effective_priority"] > unread
    topic.configure(priority=-2000)
    assert topic.state()["effective_priority"] == -1000
    assert listed(topic.api, prefix=topic.name)[0]["effective_priority"] == -1000


# Lists


def listed(api: Api, **query: Any) -> list[dict[str, Any]]:
    """Every page of a list."""
    entries: list[dict[str, Any]] = []
    cursor = ""
    for _ in range(1000):
        page = succeeded(api.get("/v0/topics?" + "&".join([f"{key}={value}" for key, value in query.items()]) + cursor))
        entries += page["topics"]
        if "next_cursor" not in page:
            return entries
        assert isinstance(page["next_cursor"], str)
        cursor = f"&cursor={page['next_cursor']}"
    raise AssertionError("the list never ends")


def test_an_entry_of_a_list_has_exactly_its_fields(topic: TopicApi) -> None:
    topic.configure(durable=True)
    topic.append("x")
    (entry,) = listed(topic.api, prefix=topic.name)
    state = topic.state()
    shared = ("topic", "head_seq", "earliest_seq", "count", "bytes", "effective_priority")
    assert entry == {field: state[field] for field in shared} | {"durable": True}


@pytest.mark.parametrize("page_size", [1, 2, 3, 5, 6, 7, 1000])
def test_pages_hold_every_topic_once_and_an_exactly_full_last_page_has_no_cursor(
    api: Api, name: str, page_size: int
) -> None:
    names = [f"{name}.{letter}" for letter in "abcdef"]
    for each in reversed(names):
        TopicApi(api, each).configure()
    pages = []
    cursor = ""
    for _ in range(10):
        page = api.get(f"/v0/topics?prefix={name}.&page_size={page_size}{cursor}").json
        pages.append([entry["topic"] for entry in page["topics"]])
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert [len(page) for page in pages[:-1]] == [page_size] * (len(pages) - 1)
    assert len(pages[-1]) > 0
    assert [each for page in pages for each in page] == names


def test_a_page_goes_on_behind_its_cursor_whatever_came_or_went_meanwhile(api: Api, name: str) -> None:
    for letter in "abd":
        TopicApi(api, f"{name}.{letter}").configure()
    first = api.get(f"/v0/topics?prefix={name}.&page_size=2").json
    TopicApi(api, f"{name}.b").drop()
    TopicApi(api, f"{name}.a2").configure()
    TopicApi(api, f"{name}.c").configure()
    second = api.get(f"/v0/topics?prefix={name}.&page_size=2&cursor={first['next_cursor']}").json
    assert [entry["topic"] for entry in second["topics"]] == [f"{name}.c", f"{name}.d"]
    assert "next_cursor" not in second


def test_page_size_is_100_by_default_and_at_most_1000(small_api: Api, api: Api, name: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: TopicApi(api, f"{name}.{number:04}").configure(), range(101)))
    page = api.get(f"/v0/topics?prefix={name}.").json
    assert len(page["topics"]) == 100
    assert len(api.get(f"/v0/topics?prefix={name}.&page_size=999999").json["topics"]) == 101


def test_a_prefix_without_topics_is_an_empty_last_page(api: Api) -> None:
    page = succeeded(api.get("/v0/topics?prefix=zzz.absent"))
    assert page["topics"] == []
    assert "next_cursor" not in page


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "!!!!",
        "AAAA",
        base64.b64encode(b"{}").decode(),
        base64.b64encode(b"[1]").decode(),
        base64.b64encode(b'{"after":5}').decode(),
        base64.b64encode(b'{"after":"a"').decode(),
        base64.b64encode(b'{"after":"\xff"}').decode(),
        "%C3%A9",
    ],
)
def test_a_corrupt_cursor_is_refused(api: Api, cursor: str) -> None:
    refused(api.get(f"/v0/topics?cursor={cursor}"), 400, "invalid_request")


@pytest.mark.parametrize("page_size", ["-1", "x", "1.5", "", "0", "1e3", "99999999999999999999"])
def test_page_size_is_a_whole_number(api: Api, page_size: str) -> None:
    refused(api.get(f"/v0/topics?page_size={page_size}"), 400, "invalid_request")


# Deleting


def test_a_deleted_topic_is_gone_with_everything_in_it(topic: TopicApi) -> None:
    topic.configure(cap_records=5)
    topic.append_records({"data": 1, "tag": "x"}, idempotency_key="k")
    body = topic.drop()
    del body["performance"]
    assert body == {"topic": topic.name, "deleted": True, "routers_removed": []}
    assert not topic.exists()
    refused(topic.api.post(f"{topic.path}/diff", {}), 404, "topic_not_found")
    refused(topic.api.post(f"{topic.path}/delete", {"before_seq": 5}), 404, "topic_not_found")
    assert listed(topic.api, prefix=topic.name) == []


def test_deleting_an_absent_topic_is_no_error(topic: TopicApi) -> None:
    for path in (topic.path, f"{topic.path}?if_empty=true"):
        answer = topic.api.delete(path)
        assert answer.status == 200
        assert {key: answer.json[key] for key in ("topic", "deleted", "routers_removed")} == {
            "topic": topic.name,
            "deleted": False,
            "routers_removed": [],
        }


def test_a_recreated_topic_starts_empty(topic: TopicApi) -> None:
    topic.configure(cap_records=5, discard="reject")
    topic.append_records({"data": "old", "tag": "x"}, {"data": "old"}, idempotency_key="k")
    epoch = topic.state()["epoch"]
    topic.drop()
    again = topic.append("new", idempotency_key="k")
    assert (again["created"], again["deduped"], again["seqs"]) == (True, False, [1])
    state = topic.state()
    assert state["config"] == DEFAULT_CONFIG
    assert (state["head_seq"], state["count"]) == (1, 1)
    assert state["epoch"] > epoch
    assert topic.diff()["epoch"] == state["epoch"]
    assert [record["data"] for record in topic.read_all()] == ["new"]
    assert topic.remove(match="x")["deleted"] == 0


def test_if_empty_deletes_only_a_topic_without_records(topic: TopicApi) -> None:
    topic.append(1, 2)
    answer = refused(topic.api.delete(f"{topic.path}?if_empty=true"), 409, "topic_not_empty")
    assert answer.detail["topic"] == topic.name
    assert topic.state()["count"] == 2
    topic.remove(before_seq=3)
    assert topic.api.delete(f"{topic.path}?if_empty=true").json["deleted"] is True
    assert not topic.exists()


def test_expired_records_count_as_none_for_if_empty(topic: TopicApi) -> None:
    topic.configure(ttl_ms=20)
    topic.append(1)
    wait_until_past(topic.state()["last_write_ts"] + 20)
    assert topic.api.delete(f"{topic.path}?if_empty=true").json["deleted"] is True


def test_if_empty_false_deletes_whatever_there_is(topic: TopicApi) -> None:
    topic.append(1)
    assert topic.api.delete(f"{topic.path}?if_empty=false").json["deleted"] is True


def test_exactly_one_of_many_deletes_deletes(topic: TopicApi) -> None:
    topic.append(1)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: topic.api.delete(topic.path), range(16)))
    assert [answer.json["deleted"] for answer in answers].count(True) == 1


# Limits


def test_the_number_of_topics_is_bounded_and_a_deleted_one_frees_its_place(small_api: Api, name: str) -> None:
    topics = [TopicApi(small_api, f"{name}.{number}") for number in range(41)]
    answers = [small_api.put(topic.path, {}) for topic in topics]
    answer = answers[-1]
    assert [each.status for each in answers[:-1]] == [201] * 40
    try:
        refused(answer, 429, "throttled")
        assert (answer.detail["limit"], answer.detail["max"]) == ("max_topics", 40)
        assert int(answer.headers["retry-after"]) >= 1
        refused(small_api.post(topics[40].path, {"records": [{"data": 1}]}), 429, "throttled")
        assert not topics[40].exists()
        assert small_api.put(topics[0].path, {"cap_records": 1}).status == 200
        topics[0].append(1)
        topics[1].drop()
        assert small_api.put(topics[40].path, {}).status == 201
    finally:
        for topic in topics:
            topic.drop()


def test_bodies_of_a_topic_are_json_objects(topic: TopicApi) -> None:
    for body in (b"[]", b"null", b"5", b'"x"', b"", b"{", json.dumps([{}]).encode()):
        refused(topic.api.put(topic.path, body), 400, "invalid_request")
    assert not topic.exists()
