"""Section 1: create, configure, read, list and delete topics; the config object of section 0.10."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topics.conformance.checks import Skipped, absent, cases, check, equal, fields, present, refused, succeeded, true
from topics.conformance.server import Server

DEFAULTS = {
    "type": "log", "ttl_ms": 0, "cap_records": 0, "cap_bytes": 0, "discard": "old", "durable": False,
    "durability": "disk", "priority": None, "auto_priority": True, "auto_create": True,
    "idempotency_window_ms": 120000, "dedupe_node": True, "lease_ms": 30000, "claim_jitter_ms": 0,
    "max_deliveries": 0, "dead_letter": None, "leases_durable": False,
}  # fmt: skip

GOOD_NAMES = {
    "one letter": "a",
    "one digit": "0",
    "every allowed character": "aZ09._:-",
    "255 characters": "n" * 255,
    "two colons": "a::b",
    "dots": "a..b",
}
BAD_NAMES = {
    "256 characters": "n" * 256,
    "a leading dot": ".a",
    "a leading dash": "-a",
    "a leading colon": ":a",
    "a leading underscore": "_a",
    "a space": "a%20b",
    "a slash": "a%2Fb",
    "a NUL": "a%00",
    "a non-ASCII letter": "%C3%A9",
    "a greater-than sign": "a%3Eb",
    "a percent sign": "a%25b",
    "a newline": "a%0A",
    "a star": "a*",
}


@cases(GOOD_NAMES)
def name_is_accepted(server: Server, name: str) -> None:
    if server.get(f"/v0/topics/{name}").status != 404:
        raise Skipped(f"the server has a topic {name}")
    try:
        fields(succeeded(server.put(f"/v0/topics/{name}", {}), 201), topic=name)
        fields(succeeded(server.get(f"/v0/topics/{name}")), topic=name)
    finally:
        server.delete(f"/v0/topics/{name}")


@cases(BAD_NAMES)
def bad_name_is_refused_on_create(server: Server, name: str) -> None:
    refused(server.put(f"/v0/topics/{name}", {}), 400, "invalid_request")


@cases(BAD_NAMES)
def bad_name_is_refused_on_append(server: Server, name: str) -> None:
    refused(server.post(f"/v0/topics/{name}", {"records": [{"data": 1}]}), 400, "invalid_request")


@check
def names_are_case_sensitive(server: Server) -> None:
    name = server.new_name()
    upper = f"{name}:A"
    lower = f"{name}:a"
    server.append(upper, 1)
    refused(server.get(server.topic_path(lower)), 404, "topic_not_found")
    server.delete(server.topic_path(upper))


@check
def percent_encoded_name_is_the_same_topic(server: Server) -> None:
    name = server.create()
    fields(succeeded(server.get("/v0/topics/" + name.replace(":", "%3A"))), topic=name)


@check
def create_answers_201_and_the_whole_config(server: Server) -> None:
    name = server.new_name()
    body = succeeded(server.put(server.topic_path(name), {}), 201)
    fields(body, topic=name, created=True)
    for key, value in DEFAULTS.items():
        fields(body["config"], **{key: value})


@check
def repeated_create_answers_200(server: Server) -> None:
    name = server.create(ttl_ms=60000)
    body = succeeded(server.put(server.topic_path(name), {"ttl_ms": 60000}))
    fields(body, created=False)
    fields(body["config"], ttl_ms=60000)


@check
def exactly_one_of_concurrent_creates_answers_201(server: Server) -> None:
    path = server.topic_path()
    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(lambda _: server.put(path, {}).status, range(8)))
    equal(statuses, [200] * 7 + [201], "statuses")


ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "durable true is fsync": ({"durable": True}, {"durable": True, "durability": "fsync"}),
    "durable false is disk": ({"durable": False}, {"durable": False, "durability": "disk"}),
    "durability wins over durable": ({"durable": True, "durability": "memory"}, {"durable": False, "durability": "memory"}),
    "ephemeral": ({"durability": "ephemeral"}, {"durability": "ephemeral", "durable": False}),
    "memory": ({"durability": "memory"}, {"durability": "memory", "durable": False}),
    "disk": ({"durability": "disk"}, {"durability": "disk", "durable": False}),
    "fsync": ({"durability": "fsync"}, {"durability": "fsync", "durable": True}),
    "priority above 1000 is clamped": ({"priority": 5000}, {"priority": 1000}),
    "priority below -1000 is clamped": ({"priority": -5000}, {"priority": -1000}),
    "priority 0 stays": ({"priority": 0}, {"priority": 0}),
    "lease_ms below 100 is clamped": ({"lease_ms": 1}, {"lease_ms": 100}),
    "lease_ms above a day is clamped": ({"lease_ms": 10**9}, {"lease_ms": 86400000}),
    "claim_jitter_ms above 5000 is clamped": ({"claim_jitter_ms": 60000}, {"claim_jitter_ms": 5000}),
    "discard reject": ({"discard": "reject"}, {"discard": "reject"}),
    "caps": ({"cap_records": 7, "cap_bytes": 1 << 40}, {"cap_records": 7, "cap_bytes": 1 << 40}),
    "queue fields on a log": ({"max_deliveries": 3, "dead_letter": "dead"}, {"type": "log", "max_deliveries": 3, "dead_letter": "dead"}),
    "auto_create false": ({"auto_create": False}, {"auto_create": False}),
    "dedupe_node false": ({"dedupe_node": False}, {"dedupe_node": False}),
    "auto_priority false": ({"auto_priority": False}, {"auto_priority": False}),
    "leases_durable true": ({"leases_durable": True}, {"leases_durable": True}),
    "idempotency window": ({"idempotency_window_ms": 5}, {"idempotency_window_ms": 5}),
    "a queue": ({"type": "queue"}, {"type": "queue", "lease_ms": 30000}),
}  # fmt: skip


@cases(ACCEPTED)
def config_is_echoed(server: Server, case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    sent, expected = case
    name = server.new_name()
    fields(succeeded(server.put(server.topic_path(name), sent), 201)["config"], **expected)
    fields(server.state(name)["config"], **expected)


REFUSED: dict[str, dict[str, Any]] = {
    "unknown type": {"type": "stack"},
    "type null": {"type": 5},
    "unknown durability": {"durability": "paper"},
    "unknown discard": {"discard": "new"},
    "ttl_ms as text": {"ttl_ms": "5"},
    "ttl_ms negative": {"ttl_ms": -1},
    "ttl_ms with a fraction": {"ttl_ms": 1.5},
    "cap_records as text": {"cap_records": "1"},
    "cap_records negative": {"cap_records": -1},
    "cap_bytes boolean": {"cap_bytes": True},
    "durable as text": {"durable": "yes"},
    "durable as a number": {"durable": 1},
    "priority as text": {"priority": "high"},
    "priority with a fraction": {"priority": 0.5},
    "auto_create as a number": {"auto_create": 0},
    "dedupe_node as text": {"dedupe_node": "no"},
    "lease_ms as text": {"lease_ms": "100"},
    "claim_jitter_ms negative": {"claim_jitter_ms": -5},
    "max_deliveries negative": {"max_deliveries": -1},
    "dead_letter as a number": {"dead_letter": 5},
    "dead_letter with a bad name": {"dead_letter": "not a name"},
    "leases_durable as text": {"leases_durable": "true"},
    "idempotency_window_ms negative": {"idempotency_window_ms": -1},
}


@cases(REFUSED)
def bad_config_is_refused_and_creates_nothing(server: Server, config: dict[str, Any]) -> None:
    name = server.new_name()
    refused(server.put(server.topic_path(name), config), 400, "invalid_request")
    refused(server.get(server.topic_path(name)), 404, "topic_not_found")


@check
def dead_letter_may_not_be_the_topic_itself(server: Server) -> None:
    name = server.new_name()
    refused(server.put(server.topic_path(name), {"type": "queue", "dead_letter": name}), 400, "invalid_request")


@check
def update_keeps_fields_it_does_not_name(server: Server) -> None:
    name = server.create(ttl_ms=60000, cap_records=50)
    body = succeeded(server.put(server.topic_path(name), {"cap_records": 60}))
    fields(body["config"], ttl_ms=60000, cap_records=60)


@check
def update_keeps_records(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    succeeded(server.put(server.topic_path(name), {"ttl_ms": 600000}))
    equal(server.seqs(name), [1, 2], "seqs")


@check
def durability_can_be_changed_in_place(server: Server) -> None:
    name = server.create()
    for durability in ("fsync", "memory", "ephemeral", "disk"):
        body = succeeded(server.put(server.topic_path(name), {"durability": durability}))
        fields(body["config"], durability=durability, durable=durability == "fsync")


@cases({"log to queue": ("log", "queue"), "queue to log": ("queue", "log")})
def type_cannot_be_changed(server: Server, types: tuple[str, str]) -> None:
    name = server.create(type=types[0])
    refused(server.put(server.topic_path(name), {"type": types[1]}), 409, "topic_exists_incompatible")
    fields(server.state(name), type=types[0])


@check
def state_of_a_fresh_topic(server: Server) -> None:
    name = server.create()
    body = succeeded(server.get(server.topic_path(name)))
    fields(body, topic=name, head_seq=0, earliest_seq=1, next_seq=1, count=0, bytes=0, last_write_ts=None)
    present(body, "config", "effective_priority", "last_read_ts")
    absent(body, "queue")


@check
def state_after_appends(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    body = server.state(name)
    fields(body, head_seq=3, earliest_seq=1, next_seq=4, count=3)
    true(body["bytes"] > 0, f"bytes is {body['bytes']}")
    true(isinstance(body["last_write_ts"], int), f"last_write_ts is {body['last_write_ts']!r}")


@check
def state_of_a_queue_has_counts(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, 1, 2)
    body = server.state(name)
    fields(body, type="queue", queue={"ready": 2, "in_flight": 0, "dead_lettered": 0})


@check
def state_with_touch_false_does_not_count_as_a_read(server: Server) -> None:
    name = server.create()
    equal(succeeded(server.get(server.topic_path(name) + "?touch=false"))["last_read_ts"], None, "last_read_ts")
    equal(succeeded(server.get(server.topic_path(name) + "?touch=false"))["last_read_ts"], None, "last_read_ts")
    server.state(name)
    read = succeeded(server.get(server.topic_path(name) + "?touch=false"))["last_read_ts"]
    true(isinstance(read, int), f"last_read_ts after a read is {read!r}")


@check
def diff_counts_as_a_read(server: Server) -> None:
    name = server.create()
    server.diff(name)
    read = succeeded(server.get(server.topic_path(name) + "?touch=false"))["last_read_ts"]
    true(isinstance(read, int), f"last_read_ts is {read!r}")


@check
def listing_does_not_count_as_a_read(server: Server) -> None:
    name = server.create()
    server.get(f"/v0/topics?prefix={name}")
    equal(succeeded(server.get(server.topic_path(name) + "?touch=false"))["last_read_ts"], None, "last_read_ts")


@check
def manual_priority_is_the_effective_priority(server: Server) -> None:
    equal(server.state(server.create(priority=77))["effective_priority"], 77, "effective_priority")


@check
def bad_touch_is_refused(server: Server) -> None:
    refused(server.get(server.topic_path(server.create()) + "?touch=maybe"), 400, "invalid_request")


@check
def head_request_answers_like_get_without_a_body(server: Server) -> None:
    response = server.send("HEAD", server.topic_path(server.create()))
    equal(response.status, 200, "status")
    equal(response.body, b"", "body")


# Lists


@check
def list_entry_has_the_documented_fields(server: Server) -> None:
    name = server.create(durability="fsync")
    server.append(name, 1, 2)
    body = succeeded(server.get(f"/v0/topics?prefix={name}"))
    equal(len(body["topics"]), 1, "number of topics")
    fields(body["topics"][0], topic=name, head_seq=2, earliest_seq=1, count=2, durable=True)
    present(body["topics"][0], "bytes", "effective_priority")
    absent(body, "next_cursor")


def _family(server: Server, number: int) -> tuple[str, list[str]]:
    base = server.new_name()
    names = [f"{base}:{index:02}" for index in range(number)]
    for name in names:
        server.put(server.topic_path(name), {})
    return f"{base}:", names


@check
def list_pages_are_complete_and_the_last_has_no_cursor(server: Server) -> None:
    prefix, names = _family(server, 5)
    try:
        found: list[str] = []
        path = f"/v0/topics?prefix={prefix}&page_size=2"
        sizes = []
        cursor = ""
        while True:
            body = succeeded(server.get(path + cursor))
            found += [entry["topic"] for entry in body["topics"]]
            sizes.append(len(body["topics"]))
            if "next_cursor" not in body:
                break
            cursor = f"&cursor={body['next_cursor'].replace('+', '%2B').replace('=', '%3D')}"
        equal(sorted(found), names, "topics of all pages")
        equal(sizes, [2, 2, 1], "sizes of the pages")
    finally:
        for name in names:
            server.delete(server.topic_path(name))


@check
def an_exactly_full_last_page_has_no_cursor(server: Server) -> None:
    prefix, names = _family(server, 2)
    try:
        body = succeeded(server.get(f"/v0/topics?prefix={prefix}&page_size=2"))
        equal(len(body["topics"]), 2, "number of topics")
        absent(body, "next_cursor")
    finally:
        for name in names:
            server.delete(server.topic_path(name))


@cases({"text": "abc!", "wrong base64": "%%%", "other JSON": "W10"})
def corrupt_cursor_is_refused(server: Server, cursor: str) -> None:
    refused(server.get(f"/v0/topics?cursor={cursor.replace('%', '%25')}"), 400, "invalid_request")


@cases({"text": "many", "negative": "-1"})
def bad_page_size_is_refused(server: Server, size: str) -> None:
    refused(server.get(f"/v0/topics?page_size={size}"), 400, "invalid_request")


@check
def a_prefix_that_matches_nothing_is_an_empty_list(server: Server) -> None:
    equal(succeeded(server.get(f"/v0/topics?prefix={server.new_name()}"))["topics"], [], "topics")


# Delete


@check
def delete_removes_the_topic(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    fields(succeeded(server.delete(server.topic_path(name))), topic=name, deleted=True, routers_removed=[])
    refused(server.get(server.topic_path(name)), 404, "topic_not_found")


@check
def delete_of_an_absent_topic_is_200(server: Server) -> None:
    fields(succeeded(server.delete(server.topic_path())), deleted=False, routers_removed=[])


@check
def recreated_topic_starts_at_seq_1_with_defaults(server: Server) -> None:
    name = server.create(ttl_ms=60000)
    server.append(name, 1, 2)
    server.delete(server.topic_path(name))
    fields(server.append(name, 1), first_seq=1, created=True)
    fields(server.state(name)["config"], ttl_ms=0)


@check
def delete_if_empty_refuses_a_topic_with_records(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    refused(server.delete(server.topic_path(name) + "?if_empty=true"), 409, "topic_not_empty")
    fields(server.state(name), count=1)


@check
def delete_if_empty_removes_an_empty_topic(server: Server) -> None:
    fields(succeeded(server.delete(server.topic_path(server.create()) + "?if_empty=true")), deleted=True)


@check
def a_topic_whose_records_were_deleted_is_empty(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    server.remove(name, before_seq=3)
    fields(succeeded(server.delete(server.topic_path(name) + "?if_empty=true")), deleted=True)


@check
def delete_forgets_idempotency_keys(server: Server) -> None:
    name = server.new_name()
    server.append(name, 1, idempotency_key="k")
    server.delete(server.topic_path(name))
    fields(server.append(name, 1, idempotency_key="k"), deduped=False, first_seq=1)


@check
def delete_removes_routers_on_both_sides(server: Server) -> None:
    a, b, c = server.create(), server.create(), server.create()
    first, second = server.route(a, b), server.route(b, c)
    body = succeeded(server.delete(server.topic_path(b)))
    equal(sorted(body["routers_removed"]), sorted([first, second]), "routers_removed")
    refused(server.get(f"/v0/routers/{first}"), 404, "router_not_found")
