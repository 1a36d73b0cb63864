"""Nulls of optional fields are as good as left out; everything else of a body stays what it was."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw, Struct, UnsetType

from topics.model import nulls
from topics.model.nulls import decode_again


class Inner(Struct, forbid_unknown_fields=True):
    must: int
    may: int = 7
    cleared: int | None | UnsetType = UNSET


class Outer(Struct):
    must: str
    count: int = 3
    flag: bool = True
    word: str = msgspec.field(name="from", default="here")
    left: int | UnsetType = UNSET
    anything: Any = 1
    raw: Raw = Raw(b"1")
    one: Inner | None = None
    many: list[Inner] = []
    named: dict[str, Inner] = {}


decoder = msgspec.json.Decoder(Outer)


def decode(body: bytes) -> Outer:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as refused:
        return decode_again(body, decoder, refused)


def test_null_for_an_optional_field_is_its_default() -> None:
    body = b'{"must":"x","count":null,"flag":null,"from":null,"left":null,"many":null,"named":null,"one":null}'
    assert decode(body) == decoder.decode(b'{"must":"x"}')


@pytest.mark.parametrize(
    "body",
    [
        b'{"must":"x","one":{"must":1,"may":null}}',
        b'{"must":"x","many":[{"must":1,"may":null}]}',
        b'{"must":"x","named":{"a":{"must":1,"may":null}}}',
        b' { "must" : "x" , "many" : [ { "may" : null , "must" : 1 } ] } ',
    ],
)
def test_so_it_is_wherever_the_object_stands(body: bytes) -> None:
    found = decode(body)
    assert (found.one or [*found.many, *found.named.values()][0]) == Inner(1, 7)


def test_null_that_means_something_is_kept_beside_one_that_does_not() -> None:
    found = decode(b'{"must":"x","count":null,"anything":null,"raw":null,"one":{"must":1,"may":null,"cleared":null}}')
    assert (found.anything, bytes(found.raw), found.one) == (None, b"null", Inner(1, 7, None))


def test_the_rest_keeps_its_bytes() -> None:
    value = b'{ "a":1.0, "a" : 1e400,"\\u0041":[ null ,"\\/"] }'
    assert bytes(decode(b'{"raw":%b,"count":null,"must":"\\u00e9"}' % value).raw) == value
    assert decode(b'{"count":null,"must":"\\u00e9\\""}').must == 'é"'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"must":null,"count":null}', r"null.*\$\.must"),
        (b'{"count":null}', "must"),
        (b'{"must":"x","count":null,"flag":1}', r"\$\.flag"),
        (b'{"must":"x","one":{"must":null}}', r"\$\.one\.must"),
        (b'{"must":"x","one":{"must":1,"unknown":null}}', "unknown"),
        (b'{"must":"x","many":[null]}', r"\$\.many"),
        (b'{"must":"x","named":{"a":null}}', r"\$\.named"),
        (b'{"must":"x","count":"null"}', r"\$\.count"),
        (b"null", "null"),
        (b"[null]", "array"),
    ],
)
def test_what_is_wrong_otherwise_stays_wrong_and_is_named(body: bytes, why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        decode(body)


def test_a_body_of_too_many_parts_is_refused_for_its_null(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"must":"x","count":null,"many":[%b]}' % b",".join([b'{"must":1}'] * 5)
    assert len(decode(body).many) == 5
    monkeypatch.setattr(nulls, "LOOKS_MOST", 7)
    assert len(decode(body).many) == 5
    monkeypatch.setattr(nulls, "LOOKS_MOST", 6)
    with pytest.raises(msgspec.ValidationError, match="count"):
        decode(body)
