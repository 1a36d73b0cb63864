r"""Decode responses, also those that hold a lone surrogate such as `"\ud800"`.

JSON's grammar allows the escape of a lone surrogate and the server returns payloads byte for byte, but no Unicode text can
hold one and the decoder refuses the whole response. So a response is decoded a second time when the first attempt
fails, and what becomes of the record with the lone surrogate is the caller's choice:

    replace   each lone surrogate becomes U+FFFD, the replacement character
    raw       `data` or `meta` is the bytes of its JSON text, as it was written; all other records are decoded
    error     UndecodablePayload, naming the seq
"""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from topics.client.errors import PayloadMismatch, UndecodablePayload
from topics.model.records.surrogates import Covered, cover_halves, replace_halves

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
        raise undecodable(record.seq)


def decode_payload(
    decoder: Callable[[bytes | Raw], Any], payload: bytes | Raw, where: str, seq: int, lone_surrogates: LoneSurrogates
) -> Any:
    """Decode the payload of one record; one with a lone surrogate as asked.

    Raises PayloadMismatch when it does not fit the decoder's type, UndecodablePayload as asked; both name the record.
    """
    try:
        return decoder(payload)
    except ValueError as error:
        text = bytes(payload)
        replaced = replace_halves(text)
        if replaced == text:
            raise PayloadMismatch(f"{where}, seq {seq}: {error}", detail={"seq": seq}) from error
    if lone_surrogates == "raw":
        return text
    if lone_surrogates == "error":
        raise undecodable(seq)
    return decode_payload(decoder, replaced, where, seq, lone_surrogates)


def decode_record(
    decoder: Callable[[bytes | Raw], Any], record: Any, where: str, lone_surrogates: LoneSurrogates
) -> None:
    """Decode `data` of a record, and `meta` where decoding its response as "raw" left bytes. Raises as `decode_payload`."""
    record.data = decode_payload(decoder, record.data, where, record.seq, lone_surrogates)
    if isinstance(record.meta, bytes):
        record.meta = decode_payload(msgspec.json.decode, record.meta, where, record.seq, lone_surrogates)


def undecodable(seq: int) -> UndecodablePayload:
    """The error for a record with a lone surrogate."""
    return UndecodablePayload(
        f"record {seq} holds a lone surrogate, which no text can hold; read it with lone_surrogates='raw'",
        detail={"seq": seq},
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
