"""Images of a snapshot: every cut is refused, and garbage is refused or an image."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.model.config import TopicConfig
from topics.storage.snapshots.snapshot_format import (
    HeaderImage,
    TopicImage,
    decode_header,
    decode_section,
    encode_image,
)


def test_every_cut_of_an_image_is_refused() -> None:
    header = encode_image(HeaderImage({0: 5}, 9, 2, 1000, True, lsns={0: 8}))
    topic = encode_image(TopicImage(1, "a", 1, [], TopicConfig()))
    for cut in range(len(header)):
        with pytest.raises(msgspec.MsgspecError):
            decode_header(header[:cut])
    for cut in range(len(topic)):
        with pytest.raises(msgspec.MsgspecError):
            decode_section(topic[:cut])
    assert decode_header(header).lsns == {0: 8}


@given(st.binary(max_size=200))
def test_an_image_of_garbage_is_refused_or_an_image(garbage: bytes) -> None:
    for decoder in (decode_header, decode_section):
        try:
            decoder(garbage)
        except msgspec.MsgspecError:
            pass
