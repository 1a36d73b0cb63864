"""Records as a consumer of a group reads them keep their bytes."""

import pytest
from msgspec import DecodeError

from topics.wire.group_messages import decode_messages


def test_data_and_meta_keep_their_bytes() -> None:
    (message,) = decode_messages(b'[{"$seq":7,"$ts":9,"data":{"a": 1.50},"meta":{"m" :1}}]')
    assert (message.offset, message.ts, bytes(message.data), bytes(message.meta)) == (7, 9, b'{"a": 1.50}', b'{"m" :1}')


def test_lone_surrogates_are_kept() -> None:
    (message,) = decode_messages(b'[{"$seq":7,"$ts":9,"data":"\\ud800"}]')
    assert bytes(message.data) == b'"\\ud800"'


def test_invalid_text_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_messages(b'[{"$seq":7')
