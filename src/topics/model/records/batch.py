"""The body of an append: decoded strictly, checked against the limits, and turned into columns.

Most writes carry nothing but `data`; those are decoded by a narrower decoder whose success already proves that no
record has a tag, node or meta to look at (100 records: 13 us to decode, 3 us to turn into a column). Everything else
takes the full decoder. `data` and `meta` stay the client's own bytes.

Bodies with one record each that arrive together become one batch: see `decode_singles`.
"""

from array import array
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from topics.model.config import ConfigChange
from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from topics.model.limits import Limits
from topics.model.records.page import RECORD_OVERHEAD, SEPARATOR, Page, page_size
from topics.model.records.surrogates import MAX_COVERED_BYTES, cover_halves, decodable_json

# Bytes that a record counts besides its payload and the separator before it. The first record has no separator.
PLAIN_OVERHEAD = RECORD_OVERHEAD - 1
# Maximum delay of a job, when it is appended or by a nack.
MAX_DELAY_MS = 86_400_000


class Batch(Struct, gc=False):
    """A checked write: columns as pages hold them, and how the write is to be done."""

    count: int
    data: bytes
    metas: bytes | None
    nodes: bytes | None
    tags: bytes | None
    size: int
    # Records for the first partition without delays: the write may share a group with others.
    joins: bool = False
    key: str | None = None
    create: bool | None = None
    config: ConfigChange | None = None
    disable_backpressure: bool = False
    partition: int = 0
    partition_key: str | None = None
    # Per record: how long it is not to be claimed, in a queue; None when no record says so.
    delays: list[int] | None = None
    # The columns of a large batch, in parts that have no seqs yet; the columns above are empty then.
    pages: list[Page] | None = None
    # The key of each record, in a batch of writes of one record each; None when no write has a key.
    keys: list[str | None] | None = None

    def parts(self) -> "list[Page]":
        """The columns as pages that have no seqs yet."""
        if self.pages is not None:
            return self.pages
        return [Page(0, self.count, 0, self.data, self.metas, self.nodes, self.tags, self.size)]


class PlainRecord(Struct, forbid_unknown_fields=True, gc=False):
    """A record that is nothing but its payload."""

    data: Raw


class _PlainBody(Struct, forbid_unknown_fields=True, gc=False):
    records: list[PlainRecord]
    idempotency_key: str | None = None


class _PlainSingleBody(Struct, forbid_unknown_fields=True, gc=False):
    records: tuple[PlainRecord]


class _SingleRecord(Struct, forbid_unknown_fields=True, gc=False):
    """An `AppendRecord` without a delay."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Raw | UnsetType = UNSET


class _SingleBody(Struct, forbid_unknown_fields=True, gc=False):
    """An `AppendBody` with one record that goes to the first partition of a topic that exists."""

    records: tuple[_SingleRecord]
    node: str | None = None
    idempotency_key: str | None = None


class AppendRecord(Struct, gc=False):
    """One record of a write."""

    data: Annotated[Raw, Meta(description="The payload: any JSON. Kept byte for byte.")]
    tag: Annotated[str | None, Meta(description="For deletes and filters; up to 256 bytes.")] = None
    node: Annotated[str | None, Meta(description="Who writes it; overrides `node` of the batch. Up to 128 bytes.")] = (
        None
    )
    meta: (
        Annotated[
            Raw,
            Meta(
                description="Small metadata: an object of up to 64 keys and 16 KiB.",
                extra_json_schema={"type": "object"},
            ),
        ]
        | UnsetType
    ) = UNSET
    delay_ms: (
        Annotated[int, Meta(ge=0, description="Queues: the job becomes claimable after this long; at most 24 hours.")]
        | None
    ) = None


class AppendBody(Struct):
    """The body of an append: the declaration of all its fields."""

    records: Annotated[
        list[AppendRecord], Meta(description="1 to 10,000 records, appended in this order: all of them or none.")
    ]
    node: Annotated[str | None, Meta(description="Who writes: default for the records. Up to 128 bytes.")] = None
    idempotency_key: Annotated[
        str | None,
        Meta(description="A repeat with the same key appends nothing and answers as the first. Up to 256 characters."),
    ] = None
    create: Annotated[
        bool | None, Meta(description="Whether to create the topic if it does not exist; false answers 404 instead.")
    ] = None
    config: Annotated[
        ConfigChange | None,
        Meta(
            description="Configuration for a topic that this write creates; requires `admin`. Ignored if the topic exists."
        ),
    ] = None
    disable_backpressure: Annotated[bool, Meta(description="Wait under load instead of getting 429.")] = False
    partition: Annotated[int, Meta(ge=0, le=2**31, description="Partition to append to.")] | None = None
    partition_key: Annotated[
        str | None, Meta(description="Text whose hash selects the partition; not together with `partition`.")
    ] = None


_decode_plain = msgspec.json.Decoder(_PlainBody).decode
_decode_plain_single = msgspec.json.Decoder(_PlainSingleBody).decode
_decode_single = msgspec.json.Decoder(_SingleBody).decode
_encode_text = msgspec.json.Encoder().encode
_decode_full = msgspec.json.Decoder(AppendBody).decode
_meta_keys = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_texts = msgspec.json.Decoder(list[Raw]).decode


def check_text(body: bytes) -> None:
    """JSON is UTF-8; the decoders do not look inside the parts they skip."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not valid UTF-8 at byte {error.start}") from None


def decode_singles(bodies: list[bytes], limits: Limits) -> Batch | None:
    """All bodies as one batch, in their order, if each is a write of one record to the first partition.

    None when one of them is not, or exceeds a limit: then each must be decoded by itself.
    """
    text = SEPARATOR.join(bodies)
    if len(text) > limits.max_record_bytes:
        return None
    try:
        if not text.isascii():
            text.decode()
        try:
            data = SEPARATOR.join([single.records[0].data for single in map(_decode_plain_single, bodies)])
        except msgspec.ValidationError:
            return _batch_of_singles(list(map(_decode_single, bodies)), limits)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, InvalidRequest):
        return None
    count = len(bodies)
    return Batch(count, data, None, None, None, len(data) + 1 + count * PLAIN_OVERHEAD, True)


def _batch_of_singles(singles: list[_SingleBody], limits: Limits) -> Batch:
    """Raises InvalidRequest if a field exceeds a limit."""
    records = [single.records[0] for single in singles]
    count = len(records)
    data = SEPARATOR.join([record.data for record in records])
    metas = None
    if any([record.meta for record in records]):
        metas = _joined([_checked_meta(0, bytes(record.meta or b""), limits) for record in records])
    tags = _single_texts([record.tag for record in records], limits.max_tag_bytes)
    nodes = [record.node for record in records]
    if None in nodes:
        nodes = [single.node if node is None else node for single, node in zip(singles, nodes, strict=True)]
    all_nodes = _single_texts(nodes, limits.max_node_bytes)
    keys = [single.idempotency_key for single in singles]
    for key in keys:
        if key is not None:
            check_key(key, limits)
    size = page_size(count, data, metas, all_nodes, tags)
    return Batch(count, data, metas, all_nodes, tags, size, True, keys=None if keys.count(None) == count else keys)


def _single_texts(texts: list[str | None], max_bytes: int) -> bytes | None:
    """The column of these nodes or tags. Raises InvalidRequest if one may be too long."""
    missing = texts.count(None)
    if missing == len(texts):
        return None
    encoded = list(map(_encode_text, texts))
    if max(map(len, encoded)) - 2 > max_bytes:
        raise InvalidRequest("too long")
    if missing:
        encoded = [b"" if text == b"null" else text for text in encoded]
    return SEPARATOR.join(encoded)


def decode_batch(body: bytes, limits: Limits) -> Batch:
    """The batch of an append body. Raises InvalidRequest, BatchTooLarge or RecordTooLarge; nothing is half done."""
    if not body.isascii():
        check_text(body)
    try:
        plain = _decode_plain(body)
    except msgspec.ValidationError:
        try:
            return batch_of(_decode_full(body), limits)
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None
        except msgspec.MsgspecError as error:
            return _decode_covered(body, limits, error)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        return _decode_covered(body, limits, error)
    records = plain.records
    count = len(records)
    if not 0 < count <= limits.max_batch_records:
        _check_count(count, limits)
    key = plain.idempotency_key
    if key is not None:
        check_key(key, limits)
    if len(body) > limits.max_record_bytes:
        for index, record in enumerate(records):
            check_record_size(index, len(record.data), limits)
    data = SEPARATOR.join([record.data for record in records])
    return Batch(count, data, None, None, None, len(data) + 1 + count * PLAIN_OVERHEAD, True, key)


def _decode_covered(body: bytes, limits: Limits, refused: msgspec.MsgspecError) -> Batch:
    """What the decoder refused, if half surrogate pairs in `data` or `meta` are all that is unusual about it."""
    covered = cover_halves(body)
    if covered is None:
        raise InvalidRequest(str(refused)) from None
    try:
        batch = batch_of(_decode_full(covered.body), limits)
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidRequest(str(refused)) from None
    texts = [batch.key, batch.partition_key, *[_text(column) for column in (batch.nodes, batch.tags)]]
    if any([text is not None and covered.touches(text) for text in texts]):
        raise InvalidRequest("node, tag and idempotency_key must be whole characters: half a surrogate pair is none")
    batch.data = covered.uncover(batch.data)
    if batch.metas is not None:
        batch.metas = covered.uncover(batch.metas)
    return batch


def batch_of(body: AppendBody, limits: Limits) -> Batch:
    """The batch of a decoded body whose text has been checked."""
    records = body.records
    count = len(records)
    _check_count(count, limits)
    if body.idempotency_key is not None:
        check_key(body.idempotency_key, limits)
    default_node = node_of(body, limits)
    data, all_metas, all_nodes, all_tags = record_columns(records, 0, default_node, limits)
    delays = record_delays(records)
    size = page_size(count, data, all_metas, all_nodes, all_tags)
    batch = Batch(count, data, all_metas, all_nodes, all_tags, size, delays=delays)
    take_fields(batch, body)
    batch.joins = not batch.partition and batch.partition_key is None and delays is None
    return batch


def take_fields(batch: Batch, body: AppendBody) -> None:
    """Copy to the batch what the body says beside its records."""
    batch.key = body.idempotency_key
    batch.create = body.create
    batch.config = body.config
    batch.disable_backpressure = body.disable_backpressure
    batch.partition = body.partition or 0
    batch.partition_key = body.partition_key


def node_of(body: AppendBody, limits: Limits) -> bytes:
    """The node of all records that name none, as pages hold it; empty when there is none."""
    return b"" if body.node is None else _checked("node", body.node, limits.max_node_bytes)


def record_columns(
    records: Sequence[AppendRecord], start: int, default_node: bytes, limits: Limits
) -> tuple[bytes, bytes | None, bytes | None, bytes | None]:
    """Data, metas, nodes and tags of these records, checked; the first one is `records[start]` of its body."""
    metas: list[bytes] = []
    nodes: list[bytes] = []
    tags: list[bytes] = []
    for index, record in enumerate(records, start):
        meta = b"" if record.meta is UNSET else _checked_meta(index, bytes(record.meta), limits)
        metas.append(meta)
        nodes.append(
            default_node
            if record.node is None
            else _checked(f"records[{index}].node", record.node, limits.max_node_bytes)
        )
        tags.append(b"" if record.tag is None else _checked(f"records[{index}].tag", record.tag, limits.max_tag_bytes))
        check_record_size(index, len(record.data) + len(meta), limits)
    return SEPARATOR.join([record.data for record in records]), _joined(metas), _joined(nodes), _joined(tags)


def columns_of(
    datas: list[str | None],
    tags: list[str | None] | None,
    nodes: list[str | None] | None,
    metas: list[str | None] | None,
    limits: Limits,
    max_records: int,
) -> Batch:
    """A batch from columns of texts, checked as a JSON body would be. `data` and `meta` must be JSON texts."""
    count = len(datas)
    if not count:
        raise InvalidRequest("there must be at least one record")
    if count > max_records:
        raise BatchTooLarge(
            f"{count} records in one write; at most {max_records}", detail={"max": max_records, "count": count}
        )
    data_texts, _ = _json_texts("data", datas)
    meta_texts = [b""] * count
    if metas is not None:
        present = [index for index, meta in enumerate(metas) if meta is not None]
        sent, covered = _json_texts("meta", [metas[index] for index in present])
        for index, meta_text, decodable in zip(present, sent, covered, strict=True):
            meta_texts[index] = meta_text if _checked_meta(index, decodable, limits) else b""
    for index, text in enumerate(data_texts):
        if len(text) + len(meta_texts[index]) > limits.max_record_bytes:
            check_record_size(index, len(text) + len(meta_texts[index]), limits)
    node_texts = _named_texts("node", nodes, count, limits.max_node_bytes)
    tag_texts = _named_texts("tag", tags, count, limits.max_tag_bytes)
    data = SEPARATOR.join(data_texts)
    all_metas, all_nodes, all_tags = _joined(meta_texts), _joined(node_texts), _joined(tag_texts)
    size = page_size(count, data, all_metas, all_nodes, all_tags)
    return Batch(count, data, all_metas, all_nodes, all_tags, size)


def proven_json(joined: bytes | memoryview, lengths: bytes) -> bool:
    """Whether texts of these lengths (int32 each), joined by commas, are one JSON value each with no space around it.

    Decoded together as an array. As many values as texts, each as long as its text, leave no byte for anything but the
    commas between them: so they also begin where the texts begin.
    """
    try:
        values = _decode_texts(b"".join((b"[", joined, b"]")))
    except (msgspec.MsgspecError, RecursionError):
        return False
    # As bytes, because comparing arrays makes two objects of each entry.
    return array("i", map(len, values)).tobytes() == lengths


def _json_texts(what: str, texts: list[str | None]) -> tuple[list[bytes], list[bytes]]:
    """The texts as bytes, each proven to be one JSON value, and the same with their lone surrogates covered."""
    encoded: list[bytes] = []
    for index, text in enumerate(texts):
        if text is None:
            raise InvalidRequest(f"{what} of record {index} is missing")
        encoded.append(text.encode().strip(b" \t\r\n"))
    if _are_json(encoded):
        return encoded, encoded
    covered: list[bytes] = []
    # As of a JSON body: covering takes long.
    bytes_left = MAX_COVERED_BYTES
    for index, text_bytes in enumerate(encoded):
        try:
            covered.append(decodable_json(text_bytes, bytes_left))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidRequest(f"{what} of record {index} is not JSON: {error}") from None
        if covered[-1] is not text_bytes:
            bytes_left -= len(text_bytes)
    if not _are_json(covered):
        raise InvalidRequest(f"{what} is not JSON")
    return encoded, covered


def _are_json(texts: list[bytes]) -> bool:
    """Whether each text is one JSON value: decoded together as an array and compared one by one."""
    try:
        return [bytes(raw) for raw in _decode_texts(b"[" + b",".join(texts) + b"]")] == texts
    except (msgspec.MsgspecError, RecursionError):
        return False


def _named_texts(what: str, texts: list[str | None] | None, count: int, max_bytes: int) -> list[bytes]:
    if texts is None:
        return [b""] * count
    return [
        b"" if text is None else _checked(f"{what} of record {index}", text, max_bytes)
        for index, text in enumerate(texts)
    ]


def node_text(node: str) -> bytes:
    """A node or tag as pages hold it."""
    return msgspec.json.encode(node)


def _text(column: bytes | None) -> str | None:
    return None if column is None else column.decode()


def record_delays(records: Sequence[AppendRecord]) -> list[int] | None:
    """How long each record is not to be claimed; None when no record has a delay."""
    delays = [min(record.delay_ms or 0, MAX_DELAY_MS) for record in records]
    return delays if any(delays) else None


def _joined(texts: list[bytes]) -> bytes | None:
    return SEPARATOR.join(texts) if any(texts) else None


def _checked(what: str, text: str, max_bytes: int) -> bytes:
    encoded = _encode_text(text)
    # Escapes make it longer, never shorter.
    if len(encoded) - 2 > max_bytes and len(text.encode()) > max_bytes:
        raise InvalidRequest(f"{what} is longer than {max_bytes} bytes", detail={"max": max_bytes})
    return encoded


def _checked_meta(index: int, meta: bytes, limits: Limits) -> bytes:
    if not meta or meta == b"null":
        return b""
    if not meta.startswith(b"{"):
        raise InvalidRequest(f"records[{index}].meta must be an object")
    if len(meta) > limits.max_meta_bytes:
        raise InvalidRequest(
            f"records[{index}].meta is longer than {limits.max_meta_bytes} bytes", detail={"max": limits.max_meta_bytes}
        )
    # Every key has a colon behind it, so few colons prove few keys without decoding.
    if meta.count(b":") > limits.max_meta_keys and len(_meta_keys(meta)) > limits.max_meta_keys:
        raise InvalidRequest(
            f"records[{index}].meta has more than {limits.max_meta_keys} keys", detail={"max": limits.max_meta_keys}
        )
    return meta


def _check_count(count: int, limits: Limits) -> None:
    if not count:
        raise InvalidRequest("records must hold at least one record")
    if count > limits.max_batch_records:
        raise BatchTooLarge(
            f"{count} records in one write; at most {limits.max_batch_records}",
            detail={"max": limits.max_batch_records, "count": count},
        )


def check_key(key: str, limits: Limits) -> None:
    if len(key) > limits.max_key_chars:
        raise InvalidRequest(f"idempotency_key is longer than {limits.max_key_chars} characters")


def check_record_size(index: int, size: int, limits: Limits) -> None:
    if size > limits.max_record_bytes:
        raise RecordTooLarge(
            f"records[{index}]: data and meta take {size} bytes; at most {limits.max_record_bytes}",
            detail={"index": index, "bytes": size, "max": limits.max_record_bytes},
        )
