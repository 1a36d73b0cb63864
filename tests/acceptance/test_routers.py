"""/v0/routers: what a client sees of forwarding rules and of what they forward."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics.server.ops.settings import load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

PATIENCE_SECONDS = 20.0
OPTIONS: dict[str, Any] = {
    "preserve_node": True,
    "preserve_tag": True,
    "filter": None,
    "allow_cycle": False,
    "guarantee": "at_least_once",
}


class RouterApi:
    def __init__(self, api: Api, source: str, dest: str) -> None:
        self.api = api
        self.name = f"{source}->{dest}"
        self.path = f"/v0/routers/{quote(self.name, safe='')}"
        self.source = TopicApi(api, source)
        self.dest = TopicApi(api, dest)

    def put(self, **fields: Any) -> Answer:
        return self.api.put(self.path, {"source": self.source.name, "dest": self.dest.name, **fields})

    def create(self, **fields: Any) -> dict[str, Any]:
        answer = self.put(**fields)
        assert answer.status == 201, answer
        return succeeded(answer)

    def state(self) -> dict[str, Any]:
        return succeeded(self.api.get(self.path))

    def settled(self) -> dict[str, Any]:
        """The router's state once it has nothing left to look at."""
        return eventually(self.state, lambda state: not state["lag"])

    def blocked(self) -> dict[str, Any]:
        """The router's state once its dest has no room."""
        return eventually(self.state, lambda state: state["state"] == "blocked")

    def forwarded(self, **fields: Any) -> list[dict[str, Any]]:
        self.settled()
        return self.dest.read_all(**fields)


@pytest.fixture
def router(api: Api, name: str) -> RouterApi:
    return RouterApi(api, f"{name}.a", f"{name}.b")


def eventually(look: Callable[[], dict[str, Any]], condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What `look` finds once it fulfils the condition. Fails the test when it does not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition(found := look()):
        assert time.monotonic() < deadline, f"it never came to that: {found}"
        time.sleep(0.002)
    return found


def datas(records: list[dict[str, Any]]) -> list[Any]:
    return [record["data"] for record in records]


# Create, change, look at, list, delete


def test_put_creates_the_router_and_the_topics_it_needs(router: RouterApi) -> None:
    created = router.create()
    del created["performance"]
    expected = {"router": router.name, "created": True, "source": router.source.name, "dest": router.dest.name}
    assert created == {**expected, **OPTIONS}
    assert router.source.exists()
    assert router.dest.exists()


def test_an_identical_or_changed_put_answers_200(router: RouterApi) -> None:
    router.create()
    expected = OPTIONS
    for fields in (
        {},
        {"filter": ["tag", "Glob", "p:*"]},
        {"preserve_node": False, "guarantee": "exactly_once"},
        {},
        {"preserve_tag": False, "preserve_node": True, "allow_cycle": True},
        {"filter": None},
    ):
        answer = router.put(**fields)
        assert answer.status == 200
        body = succeeded(answer)
        assert body["created"] is False
        # What is not named stays.
        expected = {**expected, **fields}
        assert {key: body[key] for key in OPTIONS} == expected
        assert {key: router.state()[key] for key in OPTIONS} == expected


def test_get_tells_options_progress_and_state(router: RouterApi) -> None:
    router.create()
    router.source.append(1, 2, 3)
    state = router.settled()
    del state["performance"]
    assert state == {
        "router": router.name,
        "source": router.source.name,
        "dest": router.dest.name,
        **OPTIONS,
        "forwarded_total": 3,
        "lag": 0,
        "state": "running",
    }


def test_an_absent_router_is_not_found_and_deleting_it_changes_nothing(router: RouterApi) -> None:
    assert refused(router.api.get(router.path), 404, "router_not_found").detail == {"router": router.name}
    body = succeeded(router.api.delete(router.path))
    assert (body["router"], body["deleted"]) == (router.name, False)


@pytest.mark.parametrize(
    "body",
    [
        {"dest": "b"},
        {"source": "a"},
        {"source": "a", "dest": "a"},
        {"source": "a", "dest": "b/c"},
        {"source": "a" * 256, "dest": "b"},
        {"source": "a->b", "dest": "b"},
        {"source": 1, "dest": "b"},
        {"source": "a", "dest": "b", "filter": ["tag", "Glob", "x"]},
        {"source": "a", "dest": "b", "filter": ["node", "Eq", "x"]},
        {"source": "a", "dest": "b", "filter": 5},
        {"source": "a", "dest": "b", "guarantee": "at_most_once"},
        {"source": "a", "dest": "b", "preserve_node": 1},
        {"source": "a", "dest": "b", "from": "yesterday"},
        [],
    ],
)
def test_a_bad_put_is_refused_and_creates_nothing(api: Api, name: str, body: Any) -> None:
    if isinstance(body, dict):
        body = {key: f"{name}.{value}" if value in ("a", "b") else value for key, value in body.items()}
    refused(api.put(f"/v0/routers/{name}", body), 400, "invalid_request")
    refused(api.get(f"/v0/routers/{name}"), 404, "router_not_found")
    assert succeeded(api.get(f"/v0/topics?prefix={name}"))["topics"] == []


@pytest.mark.parametrize("name", ["%20", "a%2Fb", "%00", "a" * 256, "-a", "%C3%A4"])
def test_a_bad_router_name_is_refused(api: Api, name: str) -> None:
    refused(api.put(f"/v0/routers/{name}", {"source": "a", "dest": "b"}), 400, "invalid_request")


def test_create_dest_false_needs_the_dest_and_creates_nothing(router: RouterApi) -> None:
    refused(router.put(create_dest=False), 404, "topic_not_found")
    assert not router.source.exists()
    router.dest.configure()
    router.create(create_dest=False)
    assert router.source.exists()


def test_source_and_dest_of_a_router_cannot_change(router: RouterApi) -> None:
    router.create()
    other = f"{router.dest.name}.other"
    answer = router.api.put(router.path, {"source": router.source.name, "dest": other})
    refused(answer, 409, "router_exists_incompatible")
    assert not TopicApi(router.api, other).exists()


def test_a_route_that_closes_a_cycle_is_refused_with_the_cycle(api: Api, name: str) -> None:
    a, b, c = f"{name}.a", f"{name}.b", f"{name}.c"
    RouterApi(api, a, b).create()
    RouterApi(api, b, c).create()
    answer = refused(RouterApi(api, c, a).put(), 409, "router_cycle")
    cycle = answer.detail["cycle"]
    assert cycle[0] == cycle[-1]
    assert cycle == [a, b, c, a]
    RouterApi(api, c, a).create(allow_cycle=True)
    assert RouterApi(api, c, a).put().status == 200, "an edge that is there closes no cycle"


def test_a_dest_has_one_source(api: Api, name: str) -> None:
    first, second = RouterApi(api, f"{name}.a", f"{name}.d"), RouterApi(api, f"{name}.b", f"{name}.d")
    first.create()
    answer = refused(second.put(), 409, "topic_exists_incompatible")
    assert answer.detail["reason"] == "router_dest_fan_in"
    assert not second.source.exists()
    twin = api.put(f"/v0/routers/{name}.twin", {"source": first.source.name, "dest": first.dest.name})
    assert twin.status == 201, "a second router from the same source is none"
    first.source.append("x")
    first.settled()
    assert datas(first.dest.read_all()) == ["x", "x"]


def test_the_list_is_sorted_filtered_and_paged(api: Api, name: str) -> None:
    names = [f"{name}.{letter}" for letter in "abcde"]
    for dest in names[1:]:
        RouterApi(api, names[0], dest).create()
    RouterApi(api, names[1], f"{name}.z").create(guarantee="exactly_once")
    prefix = quote(name)
    everything = succeeded(api.get(f"/v0/routers?prefix={prefix}"))
    assert "next_cursor" not in everything
    listed = [each["router"] for each in everything["routers"]]
    assert listed == sorted(listed)
    assert len(listed) == 5
    assert set(everything["routers"][0]) == {"router", "source", "dest", "guarantee", "forwarded_total"}
    by_source = succeeded(api.get(f"/v0/routers?source={names[1]}"))["routers"]
    assert [(each["dest"], each["guarantee"]) for each in by_source] == [(f"{name}.z", "exactly_once")]
    by_dest = succeeded(api.get(f"/v0/routers?dest={names[2]}"))["routers"]
    assert [each["router"] for each in by_dest] == [f"{names[0]}->{names[2]}"]
    found: list[str] = []
    cursor = ""
    for _ in range(10):
        page = succeeded(api.get(f"/v0/routers?prefix={prefix}&source={names[0]}&page_size=2{cursor}"))
        found += [each["router"] for each in page["routers"]]
        if "next_cursor" not in page:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert found == [f"{names[0]}->{dest}" for dest in names[1:]]
    refused(api.get("/v0/routers?cursor=nonsense!"), 400, "invalid_request")


def test_deleting_the_router_stops_it_and_keeps_the_copies(router: RouterApi) -> None:
    router.create()
    router.source.append(1)
    router.settled()
    assert succeeded(router.api.delete(router.path))["deleted"] is True
    router.source.append(2)
    router.dest.append("mine")
    assert datas(router.dest.read_all()) == [1, "mine"]
    refused(router.api.get(router.path), 404, "router_not_found")


def test_deleting_a_topic_deletes_the_routers_that_touch_it(api: Api, name: str) -> None:
    a, b, c = f"{name}.a", f"{name}.b", f"{name}.c"
    RouterApi(api, a, b).create()
    RouterApi(api, b, c).create()
    assert TopicApi(api, b).drop()["routers_removed"] == [f"{a}->{b}", f"{b}->{c}"]
    assert succeeded(api.get(f"/v0/routers?prefix={quote(name)}"))["routers"] == []
    assert TopicApi(api, b).drop()["routers_removed"] == []
    TopicApi(api, a).append(1)
    assert not TopicApi(api, b).exists()


def test_methods_and_content_types_are_checked(api: Api, name: str) -> None:
    refused(api.post(f"/v0/routers/{name}", {}), 405, "method_not_allowed")
    refused(api.put("/v0/routers", {}), 405, "method_not_allowed")
    refused(
        api.send("PUT", f"/v0/routers/{name}", b"{}", {"Content-Type": "text/plain"}), 415, "unsupported_media_type"
    )


def test_metrics_tell_how_each_router_is_doing(router: RouterApi) -> None:
    router.create()
    router.source.append(1, 2)
    router.settled()
    text = router.api.get("/v0/metrics").body.decode()
    assert f'topics_router_forwarded_total{{router="{router.name}"}} 2\n' in text
    assert f'topics_router_lag{{router="{router.name}"}} 0\n' in text
    assert f'topics_router_blocked{{router="{router.name}"}} 0\n' in text
    figures = router.api.get("/v0/metrics", {"Accept": "application/json"}).json
    assert figures["topics_router_forwarded_total"][router.name] == 2
    assert figures["topics_routers"] >= 1
    assert figures["topics_records_forwarded_total"] >= 2


# Forwarding


def test_only_what_is_appended_after_the_router_is_forwarded(router: RouterApi) -> None:
    router.source.append("before")
    router.create()
    router.source.append("after")
    assert datas(router.forwarded()) == ["after"]


def test_from_earliest_forwards_what_the_source_holds(router: RouterApi) -> None:
    router.source.append(1, 2, 3)
    router.source.remove(before_seq=2)
    router.create(**{"from": "earliest"})
    router.source.append(4)
    assert datas(router.forwarded()) == [2, 3, 4]
    assert router.dest.diff()["tombstone"] is None


def test_copies_are_verbatim_with_their_own_seq_and_time(router: RouterApi) -> None:
    router.create()
    router.dest.append("first here")
    body = b'{"records":[{"data": {"b":1.0, "a":[1e400,-0]},"tag":"t:1","node":"n","meta":{"z": 1.50,"a":"\\u0041"}},{"data":null}]}'
    router.api.post(router.source.path, body)
    router.settled()
    read = {"from_seq": 0, "include_tags": True}
    source = router.api.post(router.source.path + "/diff", read).body
    dest = router.api.post(router.dest.path + "/diff", read).body
    for text in (b'{"b":1.0, "a":[1e400,-0]}', b'"meta":{"z": 1.50,"a":"\\u0041"}', b'"$tag":"t:1"', b'"$node":"n"'):
        assert text in source
        assert text in dest
    assert [record["$seq"] for record in router.dest.read_all()] == [1, 2, 3]


def test_node_and_tag_can_be_left_behind(router: RouterApi) -> None:
    router.create(preserve_node=False, preserve_tag=False)
    router.source.append_records({"data": 1, "tag": "t", "node": "n"})
    (record,) = router.forwarded(include_tags=True)
    assert set(record) == {"$seq", "$ts", "data"}


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (["tag", "Glob", "public:*"], [1, 3]),
        (["tag", "Eq", "public:"], [3]),
        ("public:*", [1, 3]),
        ("private", [2]),
    ],
)
def test_a_filter_forwards_what_matches(router: RouterApi, match: Any, expected: list[int]) -> None:
    router.create(filter=match)
    router.source.append_records(
        {"data": 1, "tag": "public:a"}, {"data": 2, "tag": "private"}, {"data": 3, "tag": "public:"}, {"data": 4}
    )
    assert datas(router.forwarded()) == expected
    assert router.state()["forwarded_total"] == len(expected)


def test_exactly_once_stamps_the_copies_only(router: RouterApi) -> None:
    router.create(guarantee="exactly_once")
    router.source.append_records({"data": 1, "meta": {"mine": [1]}}, {"data": 2}, {"data": 3, "meta": {}})
    copies = router.forwarded()
    assert [record["meta"].get("mine") for record in copies] == [[1], None, None]
    stamps = [record["meta"]["_topics_router"] for record in copies]
    assert [(stamp["source"], stamp["seq"]) for stamp in stamps] == [(router.source.name, seq) for seq in (1, 2, 3)]
    assert len({stamp["key"] for stamp in stamps}) == 3
    assert [record.get("meta") for record in router.source.read_all()] == [{"mine": [1]}, None, {}]


def test_exactly_once_does_not_copy_again_what_dest_still_holds(router: RouterApi) -> None:
    router.create(guarantee="exactly_once")
    router.source.append(1, 2, 3)
    router.settled()
    router.api.delete(router.path)
    router.dest.remove(before_seq=2)
    router.source.append(4)
    router.create(guarantee="exactly_once", **{"from": "earliest"})
    assert datas(router.forwarded()) == [2, 3, 1, 4], "the copy of 1 is gone from dest, and with it the evidence"


def test_forwarded_records_wake_a_long_poll(router: RouterApi) -> None:
    router.create()
    router.dest.configure()
    found: list[Any] = []
    with Api(router.api.url) as other:
        reader = threading.Thread(
            target=lambda: found.append(TopicApi(other, router.dest.name).diff(0, wait_ms=20_000))
        )
        reader.start()
        router.source.append("news")
        reader.join(30)
    assert datas(found[0]["records"]) == ["news"]


def test_chains_forward_and_deletes_do_not_travel(api: Api, name: str) -> None:
    first, second = RouterApi(api, f"{name}.a", f"{name}.b"), RouterApi(api, f"{name}.b", f"{name}.c")
    first.create()
    second.create()
    first.source.append_records(*[{"data": number, "tag": "t"} for number in range(5)])
    first.settled()
    assert datas(second.forwarded()) == [0, 1, 2, 3, 4]
    first.source.remove(match="t")
    assert first.source.read_all() == []
    assert datas(first.dest.read_all()) == [0, 1, 2, 3, 4]
    second.source.remove(match="t")
    assert datas(second.dest.read_all()) == [0, 1, 2, 3, 4]


def test_an_allowed_cycle_brings_each_record_everywhere_once(api: Api, name: str) -> None:
    there, back = RouterApi(api, f"{name}.a", f"{name}.b"), RouterApi(api, f"{name}.b", f"{name}.a")
    there.create(allow_cycle=True)
    back.create(allow_cycle=True)
    there.source.append_records({"data": "from a", "node": "a"})
    back.source.append_records({"data": "from b", "node": "b"})
    there.settled()
    back.settled()
    there.settled()
    assert sorted(datas(there.source.read_all())) == ["from a", "from b"]
    assert sorted(datas(back.source.read_all())) == ["from a", "from b"]
    assert datas(there.source.read_all(node="a")) == ["from b"]
    assert datas(back.source.read_all(node="b")) == ["from a"]


def test_a_full_dest_holds_the_router_up_and_nothing_is_lost(router: RouterApi) -> None:
    router.dest.configure(cap_records=3, discard="reject")
    router.create()
    router.source.append(*range(5))
    router.source.append(5)
    assert router.blocked()["lag"] == 3
    assert datas(router.dest.read_all()) == [0, 1, 2]
    router.dest.remove(before_seq=4)
    assert router.settled()["state"] == "running"
    assert datas(router.dest.read_all()) == [3, 4, 5]
    assert router.dest.diff(3)["tombstone"] is None


def test_records_dropped_by_the_source_are_reported_in_dest(router: RouterApi) -> None:
    router.source.configure(cap_records=2)
    router.dest.configure(cap_records=2, discard="reject")
    router.create()
    router.source.append(0, 1)
    router.settled()
    for number in range(2, 8):
        router.source.append(number)
    # Forwarding comes after the answer: room is made only once there is none.
    router.blocked()
    router.dest.remove(before_seq=3)
    router.settled()
    first = router.dest.diff(2)
    assert first["tombstone"]["reason"] == "source_trim"
    assert (first["tombstone"]["gap_from"], first["tombstone"]["missed_estimate"]) == (3, 4)
    assert datas(first["records"]) == [6, 7]


def test_a_blocked_router_whose_source_lost_all_it_waited_with_is_running_again(router: RouterApi) -> None:
    router.dest.configure(cap_records=2, discard="reject")
    router.create()
    router.source.append(0, 1, 2, 3)
    router.blocked()
    router.source.configure(ttl_ms=1)
    eventually(router.dest.state, lambda state: state["head_seq"] == 4)
    assert router.dest.diff(2)["tombstone"]["reason"] == "source_trim"
    assert router.settled()["state"] == "running"


def test_max_routers_counts_new_ones_only_and_leaves_no_topics(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("limits")),
        "TOPICS_MAX_ROUTERS": "1",
        "TOPICS_MAX_TOPICS": "3",
    }
    with running_server(load_settings(environment)) as url, Api(url) as api:
        first = RouterApi(api, "a", "b")
        first.create()
        answer = refused(RouterApi(api, "c", "d").put(), 429, "throttled")
        assert (answer.detail["limit"], answer.detail["max"]) == ("max_routers", 1)
        assert "retry-after" in answer.headers
        assert not TopicApi(api, "c").exists()
        assert first.put(preserve_tag=False).status == 200
        api.delete(first.path)
        answer = refused(RouterApi(api, "c", "d").put(), 429, "throttled")
        assert answer.detail["limit"] == "max_topics"
        assert not TopicApi(api, "c").exists()
        RouterApi(api, "a", "b").create()


@pytest.fixture(scope="module")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("guarded")),
        "TOPICS_API_KEYS": "root,one::one.,reader:read,writer:write,deleter:delete",
    }
    with running_server(load_settings(environment)) as url:
        yield url


@pytest.fixture
def by(guarded_url: str) -> Iterator[Callable[[str], Api]]:
    """The guarded server as the holder of a key sees it."""
    apis: dict[str, Api] = {}

    def api(key: str) -> Api:
        if key not in apis:
            apis[key] = Api(guarded_url, {"Authorization": f"Bearer {key}"} if key else {})
        return apis[key]

    yield api
    for each in apis.values():
        each.close()


def test_scopes_and_prefixes_guard_routers(by: Callable[[str], Api]) -> None:
    body = {"source": "one.a", "dest": "one.b"}
    refused(by("").get("/v0/routers"), 401, "unauthorized")
    for key in ("reader", "writer", "deleter"):
        refused(by(key).put("/v0/routers/one.r", body), 403, "forbidden")
    refused(by("writer").get("/v0/routers"), 403, "forbidden")
    one = by("one")
    refused(one.put("/v0/routers/two.r", body), 403, "forbidden")
    refused(one.put("/v0/routers/one.r", {"source": "two.a", "dest": "one.b"}), 403, "forbidden")
    refused(one.put("/v0/routers/one.r", {"source": "one.a", "dest": "two.b"}), 403, "forbidden")
    assert succeeded(by("root").get("/v0/topics"))["topics"] == []
    assert one.put("/v0/routers/one.r", body).status == 201
    assert by("root").put("/v0/routers/two.r", {"source": "two.a", "dest": "two.b"}).status == 201
    assert [each["router"] for each in succeeded(one.get("/v0/routers"))["routers"]] == ["one.r"]
    assert len(succeeded(by("reader").get("/v0/routers"))["routers"]) == 2
    refused(one.get("/v0/routers/two.r"), 403, "forbidden")
    refused(by("reader").delete("/v0/routers/one.r"), 403, "forbidden")
    assert succeeded(by("deleter").delete("/v0/routers/one.r"))["deleted"] is True
