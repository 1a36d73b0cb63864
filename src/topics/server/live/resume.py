"""Resume tokens: the `id:` of an event, which says where its reader is in every topic.

    base64url, without padding, of
        {"jobs":5210,"events":88130}          up to 64 topics; behind it the generation, as spaces and tabs
        [1,5210,88130,...]                    more: the generation, then the cursors in order

The generation increases with every deletion of a topic and every creation of one with the same name, which the cursors do not show. It
is written in base two, a space for 0 and a tab for 1, lowest first: for other readers of the map it is white space.
"""

import base64
import binascii
from collections.abc import Collection

import msgspec

from topics.broker.topics.feed import Feed
from topics.model.errors import InvalidRequest

# With more topics than this the names would make up most of a stream.
MAX_NAMED_TOPICS = 64

_decode = msgspec.json.Decoder(dict[str, int] | list[int]).decode


def resume_token(feed: Feed) -> bytes:
    """Where the feed is now."""
    places = feed.places.values()
    if len(places) > MAX_NAMED_TOPICS:
        text = b"[%d,%b]" % (feed.generation, b",".join([b"%d" % place.cursor for place in places]))
    else:
        named = b",".join([b'"%b":%d' % (place.name, place.cursor) for place in places])
        text = b"{%b}%b" % (named, _blanks(feed.generation) if feed.generation else b"")
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def rewind(feed: Feed, token: bytes) -> None:
    """Take the feed back to where the token says, for all topics at once. What is no token of this feed changes nothing."""
    found = _parse(token, feed.places)
    if found is not None:
        feed.rewind(*found)


def cursors_in(token: str, names: Collection[str]) -> dict[str, int]:
    """Where the token of an earlier session says its reader is. Raises InvalidRequest for what is no token for these topics."""
    found = _parse(token.encode(), names)
    if found is None:
        raise InvalidRequest("cursor is not the id of an event of these topics")
    return found[0]


def _parse(token: bytes, names: Collection[str]) -> tuple[dict[str, int], int] | None:
    """The cursors and the generation; None when it is no token for topics of these names."""
    try:
        text = base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        found = _decode(text)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return None
    if isinstance(found, dict):
        cursors = found
        generation = _number(text[text.rindex(b"}") + 1 :])
    else:
        if len(found) != len(names) + 1:
            return None
        cursors = dict(zip(names, found[1:], strict=True))
        generation = found[0]
    if generation < 0 or any([cursor < 0 for cursor in cursors.values()]):
        return None
    return cursors, generation


def _blanks(number: int) -> bytes:
    return bin(number)[:1:-1].translate({48: " ", 49: "\t"}).encode()


def _number(blanks: bytes) -> int:
    return sum([1 << place for place, blank in enumerate(blanks) if blank == 9])
