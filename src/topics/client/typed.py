"""Payloads as types: msgspec Structs, dataclasses, TypedDicts and builtins, or pydantic models.

    decoder = payload_decoder(Order)
    decoder(b'{"sku": "FILTERS"}')          # Order(sku="FILTERS")

pydantic is used only for classes that are its models, so it need not be installed.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from topics.client.decoding import LoneSurrogates, decode_record
from topics.client.values import Job, Record, Tombstone

T = TypeVar("T")


class RawPage(Struct):
    """A page of records whose payloads are not decoded yet."""

    records: list[Record[Raw]]
    next_from_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    epoch: int = 0


class RawClaimed(Struct):
    """Claimed jobs whose payloads are not decoded yet."""

    claimed: list[Job[Raw]]
    ready: int = 0


def payload_decoder(kind: type[T]) -> Callable[[bytes | Raw], T]:
    """A function from the JSON of a payload to a value of this type.

    Raises ValueError (msgspec.ValidationError or pydantic.ValidationError) when the payload does not fit.
    """
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return lambda payload: validate(bytes(payload))
    return msgspec.json.Decoder(kind).decode


def typed_record(
    decoder: Callable[[bytes | Raw], T], topic: str, record: Record[Raw], lone_surrogates: LoneSurrogates
) -> Record[T]:
    """The record with its payload as its type."""
    decode_record(decoder, record, f'topic "{topic}"', lone_surrogates)
    return record  # type: ignore[return-value]
