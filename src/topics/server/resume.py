"""Resume tokens: the `id:` of an event, which says where its reader is in every topic.

    base64url, without padding, of
        {"jobs":5210,"events":88130}          up to 64 topics; one blank behind it for every topic told to be gone
        [1,5210,88130,...]                    more: how many topics were told to be gone, then the cursors in order

The blanks tell apart two places that the map alone does not: before and after a caught-up reader was told that a topic
is gone. To everybody who reads the map they mean nothing.
"""

import base64
import binascii

import msgspec

from topics.broker.feed import Feed

# With more topics than this the names would make up most of a stream.
NAMED_TOPICS_MOST = 64

_decode = msgspec.json.Decoder(dict[str, int] | list[int]).decode


def resume_token(feed: Feed) -> bytes:
    """Where the feed is now."""
    places = feed.places.values()
    if len(places) > NAMED_TOPICS_MOST:
        text = b"[%d,%b]" % (len(feed.ended), b",".join([b"%d" % place.cursor for place in places]))
    else:
        named = b",".join([b'"%b":%d' % (place.name, place.cursor) for place in places])
        text = b"{%b}%b" % (named, b" " * len(feed.ended))
    return base64.urlsafe_b64encode(text).rstrip(b"=")


def rewind(feed: Feed, token: bytes) -> None:
    """Take the feed back to where the token says, for all topics at once. What is no token of this feed changes nothing."""
    try:
        text = base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        found = _decode(text)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return
    if isinstance(found, dict):
        cursors = found
        ends_told = len(text) - len(text.rstrip(b" "))
    else:
        if len(found) != len(feed.places) + 1:
            return
        cursors = dict(zip(feed.places, found[1:], strict=True))
        ends_told = found[0]
    if ends_told < 0 or any([cursor < 0 for cursor in cursors.values()]):
        return
    feed.rewind(cursors, ends_told)
