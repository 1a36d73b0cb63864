"""Resume tokens: the `id:` of an event, which says where its reader is in every topic.

    base64url, without padding, of
        {"jobs":5210,"events":88130}          up to 64 topics; behind it the number of turns, in blanks and tabs
        [1,5210,88130,...]                    more: the number of turns, then the cursors in order

A turn is the end of a topic, or its going on as another one of the same name; the map alone looks the same before and
after. The number is written in base two, a blank for 0 and a tab for 1, lowest first: to everybody who reads the map it
is white space and means nothing.
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
        text = b"[%d,%b]" % (feed.turns_told, b",".join([b"%d" % place.cursor for place in places]))
    else:
        named = b",".join([b'"%b":%d' % (place.name, place.cursor) for place in places])
        text = b"{%b}%b" % (named, _blanks(feed.turns_told) if feed.turns_told else b"")
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
        turns_told = _number(text[text.rindex(b"}") + 1 :])
    else:
        if len(found) != len(feed.places) + 1:
            return
        cursors = dict(zip(feed.places, found[1:], strict=True))
        turns_told = found[0]
    if turns_told >= 0 and all([cursor >= 0 for cursor in cursors.values()]):
        feed.rewind(cursors, turns_told)


def _blanks(number: int) -> bytes:
    return bin(number)[:1:-1].translate({48: " ", 49: "\t"}).encode()


def _number(blanks: bytes) -> int:
    return sum([1 << place for place, blank in enumerate(blanks) if blank == 9])
