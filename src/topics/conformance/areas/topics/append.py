"""Section 2: append records, its limits and its idempotency keys (section 0.8)."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topics.conformance.checks import absent, cases, check, equal, fields, refused, succeeded, true
from topics.conformance.server import Server


@check
def first_write_creates_the_topic(server: Server) -> None:
    name = server.new_name()
    body = succeeded(server.post(server.topic_path(name), {"records": [{"data": 1}]}), 201)
    fields(body, topic=name, first_seq=1, last_seq=1, seqs=[1], head_seq=1, count=1, created=True, deduped=False)


@check
def later_write_answers_200(server: Server) -> None:
    name = server.create()
    body = succeeded(server.post(server.topic_path(name), {"records": [{"data": 1}, {"data": 2}]}))
    fields(body, first_seq=1, last_seq=2, seqs=[1, 2], head_seq=2, count=2, created=False, deduped=False)


@check
def count_is_the_number_of_records_of_this_write(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    fields(server.append(name, 4, 5), count=2, first_seq=4, last_seq=5, head_seq=5)


@check
def return_seqs_false_leaves_out_the_seqs(server: Server) -> None:
    name = server.create()
    body = succeeded(server.post(server.topic_path(name) + "?return_seqs=false", {"records": [{"data": 1}] * 3}))
    absent(body, "seqs")
    fields(body, first_seq=1, last_seq=3)


@check
def records_keep_their_order(server: Server) -> None:
    name = server.create()
    server.append(name, *range(300))
    equal([each["data"] for each in server.diff(name, limit=1000)["records"]], list(range(300)), "data")


@check
def timestamps_do_not_decrease(server: Server) -> None:
    name = server.create()
    for number in range(10):
        server.append(name, number)
    times = [each["$ts"] for each in server.diff(name)["records"]]
    true(all([isinstance(each, int) for each in times]), f"$ts is not an integer: {times}")
    true(times == sorted(times), f"$ts decreases: {times}")
    true(1.6e12 < times[0] < 1e13, f"$ts is not in milliseconds: {times[0]}")


@check
def concurrent_batches_are_contiguous_and_without_gaps(server: Server) -> None:
    name = server.create()
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda number: server.append(name, *[number] * 5)["seqs"], range(16)))
    for seqs in batches:
        equal(seqs, list(range(seqs[0], seqs[0] + 5)), "seqs of one batch")
    equal(sorted(itertools.chain(*batches)), list(range(1, 81)), "all seqs")


DATA: dict[str, Any] = {
    "null": None, "true": True, "false": False, "a number": 5, "a negative number": -1.5, "text": "text", "empty text": "",
    "an array": [1, [2]], "an object": {"a": {"b": []}}, "an empty object": {}, "an empty array": [],
}  # fmt: skip


@cases(DATA)
def data_may_be(server: Server, data: Any) -> None:
    name = server.create()
    server.append(name, {"data": data})
    equal(server.diff(name)["records"][0]["data"], data, "data")


@check
def record_carries_tag_node_and_meta(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1, "tag": "t:1", "node": "n1", "meta": {"trace": "abc"}})
    record = server.diff(name, include_tags=True)["records"][0]
    fields(record, **{"$seq": 1, "$tag": "t:1", "$node": "n1", "meta": {"trace": "abc"}, "data": 1})


@check
def absent_fields_of_a_record_are_absent(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    absent(server.diff(name, include_tags=True)["records"][0], "$tag", "$node", "meta", "$type")


@check
def batch_node_is_the_default_and_a_record_overrides_it(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1}, {"data": 2, "node": "own"}, node="batch")
    equal([each["$node"] for each in server.diff(name)["records"]], ["batch", "own"], "$node")


@check
def dollar_fields_of_a_client_are_not_honoured(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1, "$seq": 900, "$ts": 1, "$node": "x", "$tag": "y"})
    record = server.diff(name, include_tags=True)["records"][0]
    equal(record["$seq"], 1, "$seq")
    true(record["$ts"] > 1.6e12, "$ts of the client was used")
    absent(record, "$node", "$tag")


BAD_BODIES: dict[str, Any] = {
    "no records": {},
    "empty records": {"records": []},
    "records as an object": {"records": {"data": 1}},
    "records null": {"records": None},
    "a record that is no object": {"records": [5]},
    "a record without data": {"records": [{"tag": "a"}]},
    "one bad record among good ones": {"records": [{"data": 1}, {}, {"data": 3}]},
    "tag as a number": {"records": [{"data": 1, "tag": 5}]},
    "tag of 257 bytes": {"records": [{"data": 1, "tag": "t" * 257}]},
    "tag of 129 two-byte characters": {"records": [{"data": 1, "tag": "é" * 129}]},
    "node as a number": {"records": [{"data": 1, "node": 5}]},
    "node of 129 bytes": {"records": [{"data": 1, "node": "n" * 129}]},
    "batch node of 129 bytes": {"records": [{"data": 1}], "node": "n" * 129},
    "batch node as a list": {"records": [{"data": 1}], "node": ["a"]},
    "meta as text": {"records": [{"data": 1, "meta": "m"}]},
    "meta as an array": {"records": [{"data": 1, "meta": []}]},
    "meta with 65 keys": {"records": [{"data": 1, "meta": {f"k{number}": 1 for number in range(65)}}]},
    "idempotency key as a number": {"records": [{"data": 1}], "idempotency_key": 5},
    "idempotency key of 257 characters": {"records": [{"data": 1}], "idempotency_key": "k" * 257},
    "create as text": {"records": [{"data": 1}], "create": "yes"},
    "disable_backpressure as a number": {"records": [{"data": 1}], "disable_backpressure": 1},
    "config as a list": {"records": [{"data": 1}], "config": []},
    "config with a bad value": {"records": [{"data": 1}], "config": {"ttl_ms": -1}},
}


@cases(BAD_BODIES)
def bad_body_is_refused_and_creates_nothing(server: Server, body: Any) -> None:
    name = server.new_name()
    refused(server.post(server.topic_path(name), body), 400, ("invalid_request", "record_too_large", "batch_too_large"))
    refused(server.get(server.topic_path(name)), 404, "topic_not_found")


@check
def refused_write_consumes_no_seq(server: Server) -> None:
    name = server.create()
    refused(server.post(server.topic_path(name), {"records": [{"data": 1}, {}]}), 400, "invalid_request")
    fields(server.append(name, 1), first_seq=1)


@cases(
    {
        "tag of 256 bytes": {"data": 1, "tag": "t" * 256},
        "node of 128 bytes": {"data": 1, "node": "n" * 128},
        "meta with 64 keys": {"data": 1, "meta": {f"k{number}": 1 for number in range(64)}},
        "empty meta": {"data": 1, "meta": {}},
        "1 MB of data": {"data": "x" * 1_000_000},
    }
)
def record_at_its_limit_is_accepted(server: Server, record: Any) -> None:
    fields(server.append(server.create(), record), count=1)


@check
def record_above_1_mib_is_refused(server: Server) -> None:
    body = {"records": [{"data": "x" * (1 << 20)}]}
    refused(server.post(server.topic_path(), body), 400, "record_too_large")


@check
def meta_above_16_kib_is_refused(server: Server) -> None:
    body = {"records": [{"data": 1, "meta": {"m": "x" * (16 << 10)}}]}
    refused(server.post(server.topic_path(), body), 400, ("invalid_request", "record_too_large"))


@check
def batch_of_10000_records_is_accepted(server: Server) -> None:
    fields(server.append(server.create(), *[1] * 10_000), count=10_000, last_seq=10_000)


@check
def batch_of_10001_records_is_refused(server: Server) -> None:
    body = {"records": [{"data": 1}] * 10_001}
    refused(server.post(server.topic_path(), body), 400, "batch_too_large")


@check
def create_false_on_an_absent_topic_is_404(server: Server) -> None:
    name = server.new_name()
    refused(server.post(server.topic_path(name), {"records": [{"data": 1}], "create": False}), 404, "topic_not_found")
    refused(server.get(server.topic_path(name)), 404, "topic_not_found")


@check
def create_false_on_an_existing_topic_appends(server: Server) -> None:
    fields(server.append(server.create(), 1, create=False), first_seq=1)


@check
def config_counts_when_the_write_creates_the_topic(server: Server) -> None:
    name = server.new_name()
    server.append(name, 1, config={"ttl_ms": 60000, "cap_records": 9})
    fields(server.state(name)["config"], ttl_ms=60000, cap_records=9)


@check
def config_is_ignored_when_the_topic_exists(server: Server) -> None:
    name = server.create()
    server.append(name, 1, config={"ttl_ms": 60000})
    fields(server.state(name)["config"], ttl_ms=0)


@check
def disable_backpressure_is_accepted(server: Server) -> None:
    fields(server.append(server.create(), 1, disable_backpressure=True), count=1)


@check
def put_to_a_full_topic_is_422(server: Server) -> None:
    name = server.create(cap_records=2, discard="reject")
    server.append(name, 1, 2)
    refused(server.post(server.topic_path(name), {"records": [{"data": 3}]}), 422, "topic_full")
    fields(server.state(name), head_seq=2, count=2)


@check
def a_batch_that_fits_only_in_part_is_refused_as_a_whole(server: Server) -> None:
    name = server.create(cap_records=3, discard="reject")
    server.append(name, 1, 2)
    refused(server.post(server.topic_path(name), {"records": [{"data": 3}, {"data": 4}]}), 422, "topic_full")
    fields(server.append(name, 3), first_seq=3)


@check
def deletes_free_space_in_a_full_topic(server: Server) -> None:
    name = server.create(cap_records=2, discard="reject")
    server.append(name, 1, 2)
    server.remove(name, before_seq=2)
    fields(server.append(name, 3), first_seq=3)


@check
def cap_bytes_refuses_when_full(server: Server) -> None:
    name = server.create(cap_bytes=2000, discard="reject")
    server.append(name, "x" * 1000)
    refused(server.post(server.topic_path(name), {"records": [{"data": "x" * 1500}]}), 422, "topic_full")


# Idempotency


@check
def repeated_key_returns_the_original_seqs(server: Server) -> None:
    name = server.create()
    first = server.append(name, 1, 2, idempotency_key="k")
    body = succeeded(server.post(server.topic_path(name), {"records": [{"data": 1}], "idempotency_key": "k"}))
    fields(body, deduped=True, seqs=first["seqs"], first_seq=1, last_seq=2)
    fields(server.state(name), head_seq=2)


@check
def key_may_come_in_the_header(server: Server) -> None:
    path = server.topic_path(server.create())
    body = {"records": [{"data": 1}]}
    fields(succeeded(server.post(path, body, {"Idempotency-Key": "h"})), deduped=False)
    fields(succeeded(server.post(path, body, {"Idempotency-Key": "h"})), deduped=True)


@check
def header_and_body_share_one_key_space(server: Server) -> None:
    path = server.topic_path(server.create())
    succeeded(server.post(path, {"records": [{"data": 1}]}, {"Idempotency-Key": "both"}))
    fields(succeeded(server.post(path, {"records": [{"data": 1}], "idempotency_key": "both"})), deduped=True)


@check
def body_key_wins_over_the_header(server: Server) -> None:
    path = server.topic_path(server.create())
    succeeded(server.post(path, {"records": [{"data": 1}], "idempotency_key": "body"}, {"Idempotency-Key": "header"}))
    fields(succeeded(server.post(path, {"records": [{"data": 1}]}, {"Idempotency-Key": "header"})), deduped=False)


@check
def key_belongs_to_one_topic(server: Server) -> None:
    server.append(server.create(), 1, idempotency_key="k")
    fields(server.append(server.create(), 1, idempotency_key="k"), deduped=False)


@check
def key_is_forgotten_after_its_window(server: Server) -> None:
    name = server.create(idempotency_window_ms=50)
    server.append(name, 1, idempotency_key="k")
    server.wait_for(lambda: not server.append(name, 1, idempotency_key="k")["deduped"], "the key is still remembered")


@check
def refused_write_does_not_record_its_key(server: Server) -> None:
    name = server.create(cap_records=1, discard="reject")
    server.append(name, 1)
    body = {"records": [{"data": 2}], "idempotency_key": "k"}
    refused(server.post(server.topic_path(name), body), 422, "topic_full")
    server.remove(name, before_seq=2)
    fields(succeeded(server.post(server.topic_path(name), body)), deduped=False)


@check
def repeated_key_succeeds_on_a_full_topic(server: Server) -> None:
    name = server.create(cap_records=1, discard="reject")
    server.append(name, 1, idempotency_key="k")
    fields(server.append(name, 1, idempotency_key="k"), deduped=True, seqs=[1])


@check
def repeated_key_returns_seqs_of_deleted_records(server: Server) -> None:
    name = server.create()
    server.append(name, 1, idempotency_key="k")
    server.remove(name, before_seq=2)
    fields(server.append(name, 1, idempotency_key="k"), deduped=True, seqs=[1])


@check
def concurrent_writes_with_one_key_append_once(server: Server) -> None:
    name = server.create()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: server.append(name, 1, idempotency_key="one"), range(8)))
    equal(sorted([each["deduped"] for each in results]), [False] + [True] * 7, "deduped")
    equal({tuple(each["seqs"]) for each in results}, {(1,)}, "seqs")
    fields(server.state(name), head_seq=1)
