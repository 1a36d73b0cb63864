"""Section 6: routers."""

from typing import Any

from topics.conformance.checks import absent, cases, check, equal, fields, present, refused, succeeded, true
from topics.conformance.server import Server


def _forwarded(server: Server, dest: str, count: int) -> list[dict[str, Any]]:
    """Wait until the destination has this many records, and read them."""
    server.wait_for(lambda: server.state(dest)["head_seq"] >= count, f"fewer than {count} records were forwarded")
    records: list[dict[str, Any]] = server.diff(dest, include_tags=True, limit=1000)["records"]
    return records


def _pair(server: Server, **fields: Any) -> tuple[str, str, str]:
    source, dest = server.create(), server.create()
    return source, dest, server.route(source, dest, **fields)


@check
def create_echoes_the_router(server: Server) -> None:
    source, dest = server.create(), server.create()
    name = server.new_router_name()
    body = succeeded(server.put(f"/v0/routers/{name}", {"source": source, "dest": dest}), 201)
    fields(
        body, router=name, created=True, source=source, dest=dest, preserve_node=True, preserve_tag=True, filter=None,
        allow_cycle=False, guarantee="at_least_once",
    )  # fmt: skip


@check
def repeated_create_answers_200(server: Server) -> None:
    source, dest, name = _pair(server)
    fields(succeeded(server.put(f"/v0/routers/{name}", {"source": source, "dest": dest})), created=False)


@check
def changed_router_answers_200(server: Server) -> None:
    source, dest, name = _pair(server)
    body = {"source": source, "dest": dest, "preserve_tag": False}
    fields(succeeded(server.put(f"/v0/routers/{name}", body)), created=False, preserve_tag=False)


@check
def get_shows_the_router(server: Server) -> None:
    source, dest, name = _pair(server, guarantee="exactly_once", filter=["tag", "Glob", "a*"])
    body = succeeded(server.get(f"/v0/routers/{name}"))
    fields(body, router=name, source=source, dest=dest, guarantee="exactly_once", filter=["tag", "Glob", "a*"])
    fields(body, forwarded_total=0)


@check
def absent_router_is_404(server: Server) -> None:
    refused(server.get(f"/v0/routers/{server.new_router_name()}"), 404, "router_not_found")


@check
def name_may_have_an_arrow(server: Server) -> None:
    source, dest = server.create(), server.create()
    path = f"/v0/routers/{source}-%3E{dest}"
    fields(succeeded(server.put(path, {"source": source, "dest": dest}), 201), router=f"{source}->{dest}")
    fields(succeeded(server.delete(path)), deleted=True)


@check
def missing_topics_are_created(server: Server) -> None:
    source, dest = server.new_name(), server.new_name()
    server.route(source, dest)
    fields(server.state(source), head_seq=0)
    fields(server.state(dest), head_seq=0)


@check
def create_dest_false_without_the_destination_is_404(server: Server) -> None:
    source, dest, name = server.new_name(), server.new_name(), server.new_router_name()
    body = {"source": source, "dest": dest, "create_dest": False}
    refused(server.put(f"/v0/routers/{name}", body), 404, "topic_not_found")
    refused(server.get(server.topic_path(source)), 404, "topic_not_found")


BAD: dict[str, dict[str, Any]] = {
    "no source": {"source": None},
    "no destination": {"dest": None},
    "source as a number": {"source": 5},
    "a bad source name": {"source": "not a name"},
    "a bad destination name": {"dest": "not a name"},
    "unknown guarantee": {"guarantee": "always"},
    "filter with two parts": {"filter": ["tag", "Eq"]},
    "filter on another field": {"filter": ["node", "Eq", "a"]},
    "filter glob without a star": {"filter": ["tag", "Glob", "a"]},
    "filter with an unknown operator": {"filter": ["tag", "Like", "a"]},
    "preserve_node as text": {"preserve_node": "yes"},
    "preserve_tag as a number": {"preserve_tag": 1},
    "allow_cycle as text": {"allow_cycle": "no"},
    "create_dest as a number": {"create_dest": 0},
}


@cases(BAD)
def bad_router_is_refused_and_creates_nothing(server: Server, change: dict[str, Any]) -> None:
    name, source, dest = server.new_router_name(), server.new_name(), server.new_name()
    refused(server.put(f"/v0/routers/{name}", {"source": source, "dest": dest, **change}), 400, "invalid_request")
    refused(server.get(server.topic_path(source)), 404, "topic_not_found")
    refused(server.get(server.topic_path(dest)), 404, "topic_not_found")
    refused(server.get(f"/v0/routers/{name}"), 404, "router_not_found")


@check
def source_and_destination_must_differ(server: Server) -> None:
    topic = server.create()
    response = server.put(f"/v0/routers/{server.new_router_name()}", {"source": topic, "dest": topic})
    refused(response, 400, "invalid_request")


@cases({"a slash": "a%2Fb", "a leading arrow": "%3Ea", "256 characters": "r" * 256, "a space": "a%20b"})
def bad_router_name_is_refused(server: Server, name: str) -> None:
    body = {"source": server.new_name(), "dest": server.new_name()}
    refused(server.put(f"/v0/routers/{name}", body), 400, "invalid_request")


@check
def cycle_is_refused_and_named(server: Server) -> None:
    a, b, c = server.create(), server.create(), server.create()
    server.route(a, b)
    server.route(b, c)
    response = server.put(f"/v0/routers/{server.new_router_name()}", {"source": c, "dest": a})
    cycle = refused(response, 409, "router_cycle").get("detail", {}).get("cycle", [])
    true(len(cycle) == 4 and cycle[0] == cycle[-1] and {*cycle} == {a, b, c}, f"error.detail.cycle is {cycle}")


@check
def allowed_cycle_stops_by_itself(server: Server) -> None:
    a, b = server.create(), server.create()
    server.route(a, b, allow_cycle=True)
    server.route(b, a, allow_cycle=True)
    server.append(a, 1)
    server.wait_for(lambda: server.state(b)["head_seq"] >= 1, "the record was not forwarded")
    heads: list[int] = []

    def settled() -> bool:
        heads.append(server.state(a)["head_seq"])
        return len(heads) > 20 and len(set(heads[-20:])) == 1

    server.wait_for(settled, "the cycle does not end")


@check
def second_source_into_one_destination_is_refused(server: Server) -> None:
    _, dest, _ = _pair(server)
    response = server.put(f"/v0/routers/{server.new_router_name()}", {"source": server.create(), "dest": dest})
    error = refused(response, 409, "topic_exists_incompatible")
    equal(error.get("detail", {}).get("reason"), "router_dest_fan_in", "error.detail.reason")


@check
def records_are_forwarded_in_order(server: Server) -> None:
    source, dest, name = _pair(server)
    for number in range(5):
        server.append(source, {"data": number, "tag": f"t{number}", "node": "n", "meta": {"m": number}})
    copies = _forwarded(server, dest, 5)
    equal([each["data"] for each in copies], [0, 1, 2, 3, 4], "data")
    equal([each["$seq"] for each in copies], [1, 2, 3, 4, 5], "seqs")
    fields(copies[2], **{"$tag": "t2", "$node": "n", "meta": {"m": 2}})
    server.wait_for(
        lambda: server.get(f"/v0/routers/{name}").json()["forwarded_total"] == 5, "forwarded_total is not 5"
    )


@check
def records_from_before_the_router_are_not_forwarded(server: Server) -> None:
    source, dest = server.create(), server.create()
    server.append(source, "before")
    server.route(source, dest)
    server.append(source, "after")
    equal([each["data"] for each in _forwarded(server, dest, 1)], ["after"], "data")


@check
def filter_selects_by_tag(server: Server) -> None:
    source, dest, _ = _pair(server, filter=["tag", "Glob", "public:*"])
    server.append(
        source,
        {"data": 1, "tag": "public:a"},
        {"data": 2, "tag": "private"},
        {"data": 3},
        {"data": 4, "tag": "public:b"},
    )
    equal([each["data"] for each in _forwarded(server, dest, 2)], [1, 4], "data")


@check
def preserve_node_false_clears_the_node(server: Server) -> None:
    source, dest, _ = _pair(server, preserve_node=False)
    server.append(source, {"data": 1, "node": "n", "tag": "t"})
    copy = _forwarded(server, dest, 1)[0]
    absent(copy, "$node")
    fields(copy, **{"$tag": "t"})


@check
def preserve_tag_false_clears_the_tag(server: Server) -> None:
    source, dest, _ = _pair(server, preserve_tag=False)
    server.append(source, {"data": 1, "node": "n", "tag": "t"})
    copy = _forwarded(server, dest, 1)[0]
    absent(copy, "$tag")
    fields(copy, **{"$node": "n"})


@check
def chain_of_routers_forwards(server: Server) -> None:
    a, b, c = server.create(), server.create(), server.create()
    server.route(a, b)
    server.route(b, c)
    server.append(a, 1, 2)
    equal([each["data"] for each in _forwarded(server, c, 2)], [1, 2], "data")


@check
def one_source_feeds_several_destinations(server: Server) -> None:
    source, first, second = server.create(), server.create(), server.create()
    server.route(source, first)
    server.route(source, second)
    server.append(source, 1)
    for dest in (first, second):
        equal([each["data"] for each in _forwarded(server, dest, 1)], [1], "data")


@check
def exactly_once_marks_copies_and_keeps_user_meta(server: Server) -> None:
    source, dest, _ = _pair(server, guarantee="exactly_once")
    server.append(source, {"data": 1, "meta": {"mine": 1}})
    copy = _forwarded(server, dest, 1)[0]
    present(copy["meta"], "_topics_router")
    fields(copy["meta"], mine=1)
    equal(server.diff(source)["records"][0]["meta"], {"mine": 1}, "meta of the source record")


@check
def copies_become_jobs_of_a_queue(server: Server) -> None:
    source, queue = server.create(), server.create(type="queue")
    server.route(source, queue)
    server.append(source, "job")
    _forwarded(server, queue, 1)
    equal(server.claim(queue)["claimed"][0]["data"], "job", "data of the job")


@check
def copies_wake_a_long_poll(server: Server) -> None:
    source, dest, _ = _pair(server)
    server.append(source, 1)
    equal(server.seqs(dest, 0, wait_ms=10_000), [1], "seqs")


@check
def full_destination_pauses_the_router(server: Server) -> None:
    source, dest = server.create(), server.create(cap_records=2, discard="reject")
    server.route(source, dest)
    server.append(source, 1)
    server.append(source, 2)
    server.append(source, 3)
    _forwarded(server, dest, 2)
    equal(server.state(dest)["head_seq"], 2, "head_seq of the full destination")
    server.remove(dest, before_seq=3)
    equal(_forwarded(server, dest, 3)[-1]["data"], 3, "data of the copy that waited")


@check
def deleted_router_stops_and_keeps_copies(server: Server) -> None:
    source, dest, name = _pair(server)
    server.append(source, 1)
    _forwarded(server, dest, 1)
    fields(succeeded(server.delete(f"/v0/routers/{name}")), router=name, deleted=True)
    server.append(source, 2)
    fields(server.state(dest), head_seq=1, count=1)
    fields(succeeded(server.delete(f"/v0/routers/{name}")), deleted=False)


@check
def list_is_filtered_by_source_dest_and_prefix(server: Server) -> None:
    source, dest, name = _pair(server)
    for query in (f"source={source}", f"dest={dest}", f"prefix={name}"):
        body = succeeded(server.get(f"/v0/routers?{query}"))
        equal([each["router"] for each in body["routers"]], [name], f"routers with {query}")
        fields(body["routers"][0], source=source, dest=dest, guarantee="at_least_once", forwarded_total=0)
        absent(body, "next_cursor")
    equal(succeeded(server.get(f"/v0/routers?source={dest}"))["routers"], [], "routers of another source")


@check
def list_has_pages(server: Server) -> None:
    source = server.create()
    names = sorted([server.route(source, server.create()) for _ in range(3)])
    first = succeeded(server.get(f"/v0/routers?source={source}&page_size=2"))
    equal(len(first["routers"]), 2, "size of the first page")
    cursor = first["next_cursor"].replace("+", "%2B").replace("=", "%3D")
    second = succeeded(server.get(f"/v0/routers?source={source}&page_size=2&cursor={cursor}"))
    equal(sorted([each["router"] for each in first["routers"] + second["routers"]]), names, "routers of both pages")
    absent(second, "next_cursor")


@check
def corrupt_list_cursor_is_refused(server: Server) -> None:
    refused(server.get("/v0/routers?cursor=abc!"), 400, "invalid_request")
