"""The keys of `meta` that say where a dead letter came from. A job's own keys keep their bytes."""

import msgspec

# Keys of `meta` that say where a dead letter came from, and why.
ORIGIN_KEYS = (b"$dead_letter_from", b"$dead_letter_deliveries", b"$dead_letter_src_seq", b"$dead_letter_reason")
_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def with_origin(meta: bytes, topic: str, deliveries: int, seq: int, reason: str | None = None) -> bytes:
    """The job's `meta` with the keys that say where it came from, and why if that is known; its own keys keep their bytes."""
    origin = b'"%b":%b,"%b":%d,"%b":%d' % (
        ORIGIN_KEYS[0],
        msgspec.json.encode(topic),
        ORIGIN_KEYS[1],
        deliveries,
        ORIGIN_KEYS[2],
        seq,
    )
    if reason is not None:
        origin += b',"%b":%b' % (ORIGIN_KEYS[3], msgspec.json.encode(reason))
    if not meta:
        return b"{" + origin + b"}"
    if b'"$dead_letter_' in meta:
        # It was a dead letter before: replace the keys of the earlier move.
        names = {key.decode() for key in ORIGIN_KEYS}
        try:
            kept = {key: value for key, value in _decode_meta(meta).items() if key not in names}
            meta = msgspec.json.encode(kept)
        except msgspec.DecodeError:
            # The decoder refuses lone surrogates. Then the keys are there twice; readers use the last ones.
            pass
    body = meta.rstrip()[:-1].rstrip()
    return body + (b"" if body == b"{" else b",") + origin + b"}"


def origin_of(meta: bytes) -> str | None:
    """The queue that a dead letter came from; None for other records."""
    if ORIGIN_KEYS[0] not in meta:
        return None
    try:
        return _decode_text(_decode_meta(meta)[ORIGIN_KEYS[0].decode()])
    except (msgspec.DecodeError, KeyError):
        return None


def without_origin(meta: bytes) -> bytes:
    """The meta that the job had before it was a dead letter; its own keys keep their bytes."""
    names = {key.decode() for key in ORIGIN_KEYS}
    kept = {key: value for key, value in _decode_meta(meta).items() if key not in names}
    return msgspec.json.encode(kept) if kept else b""
