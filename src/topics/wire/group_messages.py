"""Records as a consumer of a group reads them."""

import msgspec
from msgspec import Raw, Struct

from topics.model.records.surrogates import cover_halves


class Message(Struct):
    """A record as it is read for a consumer; `data` and `meta` are the bytes that were written."""

    offset: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: Raw
    meta: Raw = Raw()


_decode_messages = msgspec.json.Decoder(list[Message]).decode


def decode_messages(text: bytes) -> list[Message]:
    try:
        return _decode_messages(text)
    except msgspec.DecodeError:
        # Payloads may hold half surrogate pairs, which the decoder refuses.
        covered = cover_halves(text, max_bytes=len(text))
        if covered is None:
            raise
    messages = _decode_messages(covered.body)
    for message in messages:
        message.data = Raw(covered.uncover(bytes(message.data)))
        message.meta = Raw(covered.uncover(bytes(message.meta)))
    return messages
