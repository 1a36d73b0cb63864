"""A large body decoded in steps has the records that the same body has when it is decoded at once."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, TopicsError
from topics.model.limits import Limits
from topics.model.records import large_batch
from topics.model.records.batch import Batch, decode_batch
from topics.model.records.large_batch import decode_large
from topics.model.records.page import SEPARATOR, joined_columns, record_sizes
from topics.model.steps import finish

LIMITS = Limits()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_batch, "PIECE_BYTES", 200)
    monkeypatch.setattr(large_batch, "PAGE_RECORDS", 3)
    monkeypatch.setattr(large_batch, "MAX_JOINED_BYTES", 300)


def in_steps(body: bytes, limits: Limits = LIMITS) -> Batch:
    """The batch with its columns in one part, as `decode_batch` has them."""
    batch = finish(decode_large(body, limits))
    pages = batch.pages
    if pages is not None:
        assert sum([page.count for page in pages]) == batch.count
        assert [page.size for page in pages] == [sum(record_sizes(page)) for page in pages]
        batch.data = SEPARATOR.join([page.data for page in pages])
        batch.metas = joined_columns([(page.metas, page.count) for page in pages])
        batch.nodes = joined_columns([(page.nodes, page.count) for page in pages])
        batch.tags = joined_columns([(page.tags, page.count) for page in pages])
        batch.pages = None
    return batch


def outcome(decode: Any, body: bytes, limits: Limits) -> Any:
    try:
        batch = decode(body, limits)
    except TopicsError as error:
        return type(error)
    batch.joins = False
    return batch


def same(body: bytes, limits: Limits = LIMITS) -> Any:
    found = outcome(in_steps, body, limits)
    assert found == outcome(decode_batch, body, limits)
    return found


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=20) | st.sampled_from(["},{", '"data":', '},{"data":', "]}", "\\"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "tag", "x", "records"]), inner, max_size=3)
    ),
    max_leaves=8,
)
RECORDS = st.fixed_dictionaries(
    {"data": JSON},
    optional={
        "tag": st.none() | st.text(max_size=5),
        "node": st.none() | st.text(max_size=5),
        "meta": st.none() | st.dictionaries(st.text(max_size=3), JSON, max_size=2),
        "delay_ms": st.none() | st.integers(0, 10),
        "unknown": JSON,
    },
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "node": st.none() | st.text(max_size=5),
        "idempotency_key": st.none() | st.text(max_size=5),
        "create": st.booleans(),
        "partition": st.integers(0, 3),
        "partition_key": st.text(max_size=3),
        "config": st.just({"ttl_ms": 5}),
        "disable_backpressure": st.booleans(),
        "unknown": JSON,
    },
)


@given(st.lists(RECORDS, max_size=12), FIELDS, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=300)
def test_any_body_is_read_as_it_is_at_once(
    records: list[Any], fields: dict[str, Any], chance: random.Random, ascii_only: bool
) -> None:
    for record in records:
        if chance.random() < 0.5:
            # Records differ in the order of their fields.
            record["data"] = record.pop("data")
    keys = [*fields.items(), ("records", records)]
    chance.shuffle(keys)
    separators = chance.choice([(",", ":"), (", ", ": "), (" ,\n", " :\t")])
    same(json.dumps(dict(keys), ensure_ascii=ascii_only, separators=separators).encode())


@given(st.lists(RECORDS, min_size=1, max_size=8), st.integers(0, 10_000), st.binary(max_size=3))
@settings(max_examples=300)
def test_body_with_a_fault_is_refused_or_read_as_it_is_at_once(records: list[Any], place: int, fault: bytes) -> None:
    body = json.dumps({"records": records}).encode()
    place %= len(body)
    same(body[:place] + fault + body[place + 1 :])


@pytest.mark.parametrize(
    "record",
    [
        b'{"data":1}',
        b'{"data":"' + b"x" * 300 + b'"}',
        b'{"data":[{"data":1},{"data":2}]}',
        b'{"data":"},{\\"data\\":"}',
        b'{"data":1,"tag":"t","meta":{"a":[{},{}]}}',
        '{"data":"é","node":"ü"}'.encode(),
        b'{ "tag" : "t" , "data" : {"records":[{"data":1},{"data":2}]} }',
    ],
)
def test_many_equal_records(record: bytes) -> None:
    batch = same(b'{"records":[' + b",".join([record] * 100) + b"]}")
    assert batch.count == 100


def test_plain_and_rich_records_take_turns() -> None:
    records = [{"data": n} if n % 3 else {"data": n, "tag": "t", "delay_ms": n % 2} for n in range(100)]
    assert same(msgspec.json.encode({"records": records, "node": "n"})).count == 100


def test_of_a_repeated_field_the_last_one_counts() -> None:
    batch = same(b'{"records":[{"data":1},{"data":2}],"node":"a","records":[{"data":3}],"node":"b"}')
    assert (batch.data, batch.nodes) == (b"3", b'"b"')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"records":[]}',
        b'{"records":null}',
        b'{"records":{}}',
        b'{"records":[1]}',
        b'{"records":[{"data":1},]}',
        b'{"records":[{"data":1}',
        b'{"records":[{"data":1}]',
        b'{"records":[{"data":1}]}x',
        b'{"records":[{"data":1}],}',
        b'{"records":[{"data":1}] "node":"n"}',
        b'{"records":[{"data":1}],"node":5}',
        b'{"records":[{"data":1}],"idempotency_key":"' + b"k" * 300 + b'"}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":1}],"x":"\xff"}',
        b'{"records":[{"data":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
    ],
)
def test_what_is_refused_at_once_is_refused_in_steps(body: bytes) -> None:
    assert issubclass(same(body), InvalidRequest)


def test_lone_surrogates_in_data_stay_as_they_are() -> None:
    batch = same(b'{"records":[{"data":"\\ud800 x"},{"data":2,"meta":{"a":"\\udfff"}}]}')
    assert b"\\ud800" in batch.data
    assert same(b'{"records":[{"data":1,"tag":"\\ud800"}]}') is InvalidRequest


def test_body_is_refused_after_as_many_records_as_are_allowed() -> None:
    limits = Limits(max_batch_records=10)
    assert same(b'{"records":[' + b",".join([b'{"data":1}'] * 10) + b"]}", limits).count == 10
    steps = decode_large(b'{"records":[' + b",".join([b'{"data":1}'] * 1_000_000) + b"]}", limits)
    with pytest.raises(BatchTooLarge) as refused:
        finish(steps)
    assert refused.value.detail == {"max": 10}


def test_both_sides_of_the_size_of_a_record() -> None:
    limits = Limits(max_record_bytes=500)
    for record in (b'{"data":"%b"}', b'{"data":"%b","tag":"t"}'):
        assert same(b'{"records":[' + record % (b"x" * 498) + b"]}", limits).count == 1
        assert same(b'{"records":[{"data":1},' + record % (b"x" * 499) + b"]}", limits) is RecordTooLarge


def test_record_with_a_huge_unknown_field_is_refused_without_reading_it() -> None:
    body = b'{"records":[{"data":1,"x":"' + b"x" * 8_000_000 + b'"}]}'
    with pytest.raises(RecordTooLarge):
        finish(decode_large(body, LIMITS))
    body = b'{"x":"' + b"x" * 8_000_000 + b'","records":[{"data":1}]}'
    with pytest.raises(InvalidRequest, match="more than"):
        finish(decode_large(body, LIMITS))


def test_error_names_the_record() -> None:
    records = b",".join([b'{"data":1}'] * 50)
    with pytest.raises(InvalidRequest, match=r"records\[50\]"):
        finish(decode_large(b'{"records":[' + records + b',{"data":1,"tag":5}]}', LIMITS))
    with pytest.raises(InvalidRequest, match=r"records\[50\]\.tag"):
        finish(decode_large(b'{"records":[' + records + b',{"data":1,"tag":"' + b"t" * 300 + b'"}]}', LIMITS))
