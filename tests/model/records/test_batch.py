"""An append body becomes columns, or is refused as a whole."""

import json

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from topics.model.limits import Limits
from topics.model.records.batch import Batch, decode_batch, node_text
from topics.model.records.page import RECORD_OVERHEAD, record_sizes
from topics.model.records.page import Page as ModelPage

LIMITS = Limits()
SMALL = Limits(
    max_batch_records=3, max_record_bytes=20, max_meta_bytes=15, max_meta_keys=2, max_tag_bytes=4, max_node_bytes=3
)


def batch(body: bytes, limits: Limits = LIMITS) -> Batch:
    return decode_batch(body, limits)


def test_a_plain_batch_has_a_column_of_data_and_nothing_else() -> None:
    found = batch(b'{"records":[{"data":1.0},{"data": {"a":[ ]} },{"data":null}]}')
    assert (found.count, found.data) == (3, b'1.0\0{"a":[ ]}\0null')
    assert (found.metas, found.nodes, found.tags, found.key) == (None, None, None, None)


def test_a_full_batch_has_every_column_with_gaps_where_a_record_has_none() -> None:
    found = batch(
        b'{"records":[{"data":1,"tag":"t"},{"data":2,"node":"own","meta":{ "k":1 }},{"data":3}],"node":"all"}'
    )
    assert found.data == b"1\x002\x003"
    assert found.tags == b'"t"\0\0'
    assert found.nodes == b'"all"\0"own"\0"all"'
    assert found.metas == b'\0{ "k":1 }\0'


def test_the_order_of_the_fields_makes_no_difference() -> None:
    one = batch(b'{"idempotency_key":"k","records":[{"tag":"t","data":1}],"node":"n"}')
    other = batch(b'{"node":"n","records":[{"data":1,"tag":"t"}],"idempotency_key":"k"}')
    assert one == other
    assert one.key == "k"


def test_plain_and_full_decoding_agree_on_the_size() -> None:
    plain = batch(b'{"records":[{"data":"xyz"},{"data":1}]}')
    full = batch(b'{"records":[{"data":"xyz"},{"data":1}],"unknown":0}')
    assert plain == full
    assert plain.size == 2 * RECORD_OVERHEAD + len(b'"xyz"') + len(b"1")


def test_the_size_is_the_sum_of_its_records() -> None:
    found = batch(b'{"records":[{"data":1,"tag":"t"},{"data":22,"node":"n","meta":{}},{"data":333}]}')
    page = ModelPage(1, 3, 0, found.data, found.metas, found.nodes, found.tags, found.size)
    assert sum(record_sizes(page)) == found.size


def test_how_the_write_is_to_be_done_is_kept() -> None:
    found = batch(
        b'{"records":[{"data":1}],"create":false,"config":{"ttl_ms":5},"disable_backpressure":true,"partition":2,'
        b'"partition_key":"p"}'
    )
    assert (found.create, found.disable_backpressure, found.partition, found.partition_key) == (False, True, 2, "p")
    assert found.config is not None
    assert found.config.ttl_ms == 5


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"records":[]}',
        b'{"records":[{}]}',
        b'{"records":[{"data":NaN}]}',
        b'{"records":[{"data":"\x01"}]}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":1}]}x',
        b'{"records":[{"data":1,"tag":5}]}',
        b'{"records":[{"data":1,"meta":[]}]}',
        b'{"records":[{"data":1}],"create":1}',
        b'{"records":[{"data":' + b"[" * 5000 + b"]" * 5000 + b"}]}",
        b'{"records":[{"data":1,"tag":"\\ud800"}]}',
        b'{"records":[{"data":1}],"node":"\\udfff"}',
        b'{"records":[{"data":1}],"idempotency_key":"\\ud800"}',
        b'{"records":[{"data":"\\ud800"}],"config":{"dead_letter":5}}',
    ],
)
def test_what_is_malformed_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        batch(body)


@pytest.mark.parametrize(
    ("good", "bad", "error"),
    [
        (b'{"data":1},{"data":1},{"data":1}', b'{"data":1},{"data":1},{"data":1},{"data":1}', BatchTooLarge),
        (b'{"data":"' + b"x" * 18 + b'"}', b'{"data":"' + b"x" * 19 + b'"}', RecordTooLarge),
        (b'{"data":"' + b"x" * 16 + b'","meta":{}}', b'{"data":"' + b"x" * 17 + b'","meta":{}}', RecordTooLarge),
        (b'{"data":1,"meta":{"a":"1234567"}}', b'{"data":1,"meta":{"a":"12345678"}}', InvalidRequest),
        (b'{"data":1,"meta":{"a":1,"b":2}}', b'{"data":1,"meta":{"a":1,"b":2,"c":3}}', InvalidRequest),
        (b'{"data":1,"tag":"1234"}', b'{"data":1,"tag":"12345"}', InvalidRequest),
        ('{"data":1,"tag":"éé"}'.encode(), '{"data":1,"tag":"ééx"}'.encode(), InvalidRequest),
        (b'{"data":1,"node":"123"}', b'{"data":1,"node":"1234"}', InvalidRequest),
    ],
)
def test_both_sides_of_every_limit(good: bytes, bad: bytes, error: type[InvalidRequest]) -> None:
    batch(b'{"records":[' + good + b"]}", SMALL)
    with pytest.raises(error) as refused:
        batch(b'{"records":[' + bad + b"]}", SMALL)
    assert type(refused.value) is error


def test_colons_inside_values_are_not_keys() -> None:
    limits = msgspec.structs.replace(LIMITS, max_meta_keys=2)
    batch(b'{"records":[{"data":1,"meta":{"a":"::::","b":{"c":{"d":1}}}}]}', limits)


def test_a_large_batch_of_small_records_is_not_a_large_record() -> None:
    found = batch(b'{"records":[' + b",".join([b'{"data":1}'] * 3) + b"]}" + b" " * 100, SMALL)
    assert found.count == 3


def test_a_node_is_kept_as_canonical_json_however_it_was_spelled() -> None:
    found = batch(b'{"records":[{"data":1,"node":"\\u0061\\/"}]}')
    assert found.nodes == node_text("a/") == b'"a/"'


BODY = json.dumps(
    {
        "records": [{"data": {"x": [1.5, None, "é\u0000"]}, "tag": "t", "node": "n", "meta": {"k": 1}}, {"data": 2}],
        "node": "batch",
        "idempotency_key": "k",
        "create": True,
        "config": {"durability": "fsync", "cap_records": 5},
    },
    ensure_ascii=False,
).encode()


def test_every_cut_of_an_append_request_is_an_invalid_request() -> None:
    assert decode_batch(BODY, Limits()).count == 2
    for cut in range(len(BODY)):
        with pytest.raises(InvalidRequest):
            decode_batch(BODY[:cut], Limits())


@given(st.binary(max_size=100))
def test_garbage_is_an_invalid_request(garbage: bytes) -> None:
    # Hypothesis also draws constants of the modules that are loaded; one of them is a whole request.
    assume(b"records" not in garbage)
    with pytest.raises(InvalidRequest):
        decode_batch(garbage, Limits())


@given(st.integers(0, len(BODY) - 1), st.binary(max_size=4))
def test_a_changed_append_request_is_invalid_or_a_valid_batch(place: int, spoilt: bytes) -> None:
    try:
        batch = decode_batch(BODY[:place] + spoilt + BODY[place + 1 :], Limits())
    except InvalidRequest:
        return
    assert isinstance(batch, Batch)
    texts = batch.data.split(b"\0")
    assert len(texts) == batch.count
    for text in texts:
        json.loads(text)
