"""Images in a snapshot: every cut and garbage are refused, and recovery does not start from them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.world import SMALL
from topics.broker.durability.recovery import recover
from topics.model.config import TopicConfig
from topics.model.errors import CorruptStorage
from topics.storage.snapshot import write_snapshot
from topics.storage.snapshot_format import HeaderImage, TopicImage, decode_header, decode_section, encode_image
from topics.testing.disk import FakeDisk


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=3))
def test_a_valid_snapshot_with_garbage_sections_is_corrupt(sections: list[bytes]) -> None:
    disk = FakeDisk()
    disk.make_directory("")
    write_snapshot(disk, 1, sections)
    try:
        header = decode_header(sections[0]) if sections else None
    except msgspec.MsgspecError:
        header = None
    if header is None:
        with pytest.raises(CorruptStorage):
            recover(disk, SMALL)


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
