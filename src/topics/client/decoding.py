r"""Decode responses, also those that hold a lone surrogate such as `"\ud800"`.

JSON's grammar allows the escape of a lone surrogate and the server returns payloads byte for byte, but no Unicode text can
hold one and the decoder refuses the whole response. So a response is decoded a second time when the first attempt
fails, and what becomes of the record with the lone surrogate is the caller's choice:

    replace   each lone surrogate becomes U+FFFD, the replacement character
    raw       `data` or `meta` is the bytes of its JSON text, as it was written; all other records are decoded
    error     UndecodablePayload, naming the seq
"""

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from topics.client.errors import UndecodablePayload
from topics.model.surrogates import Covered, cover_halves, replace_halves

LoneSurrogates = Literal["replace", "raw", "error"]
CHOICES = ("replace", "raw", "error")
T = TypeVar("T")


class _Payload(Struct, rename={"seq": "$seq"}):
    """The parts of a record that hold a client's own JSON."""

    seq: int = 0
    data: Raw = Raw(b"")
    meta: Raw = Raw(b"")


class _Records(Struct):
    """The records of a page, of a claim or of an event: a response has one of the two."""

    records: list[_Payload] = []
    claimed: list[_Payload] = []


def decode(body: bytes, kind: type[T], lone_surrogates: LoneSurrogates) -> T:
    """Decode a response. Raises msgspec.MsgspecError when it is not one, UndecodablePayload as asked."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        covered = cover_halves(body, len(body))
        if covered is None:
            raise
    value = msgspec.json.decode(replace_halves(body), type=kind)
    if lone_surrogates != "replace":
        for record in _restore(value, covered):
            if lone_surrogates == "error":
                check_decoded(record)
    return value


def check_decoded(record: Any) -> None:
    """Raise UndecodablePayload when decoding left `data` or `meta` as bytes."""
    if isinstance(record.data, bytes) or isinstance(record.meta, bytes):
        raise UndecodablePayload(
            f"record {record.seq} holds a lone surrogate, which no text can hold; read it with lone_surrogates='raw'",
            detail={"seq": record.seq},
        )


def _restore(value: Any, covered: Covered) -> list[Any]:
    """Put the original bytes in place of `data` and `meta` that hold a lone surrogate; returns the records."""
    found = msgspec.json.decode(covered.body, type=_Records)
    decoded: list[Any] = getattr(value, "records", None) or getattr(value, "claimed", None) or []
    for record, payload in zip(decoded, found.records or found.claimed, strict=True):
        for name in ("data", "meta"):
            text = bytes(getattr(payload, name))
            original = covered.uncover(text)
            if original != text:
                setattr(record, name, original)
    return decoded
