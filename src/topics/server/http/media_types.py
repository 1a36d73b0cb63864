"""Media types and codings of a request: `Accept`, `Accept-Encoding` and `Content-Type` are parsed here and nowhere else.

A weight is 0 to 1; a range with weight 0 is refused. An invalid weight counts as 0: an unclear header then selects nothing
but the default.
"""

import re
from functools import lru_cache

JSON = b"application/json"
ARROW = b"application/vnd.apache.arrow.stream"
EVENT_STREAM = b"text/event-stream"
TEXT = b"text/plain"
HTML = b"text/html"

_WEIGHT = re.compile(rb"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
_UTF_8 = (b"utf-8", b"utf8", b"us-ascii")


def weighted(value: bytes) -> dict[bytes, float]:
    """The entries of an `Accept` or `Accept-Encoding`, in lower case and in order, each with its weight."""
    weights: dict[bytes, float] = {}
    for item in value.lower().split(b","):
        entry, parameters = _split(item)
        weight = parameters.get(b"q", b"1")
        weights.setdefault(entry, float(weight) if _WEIGHT.fullmatch(weight) else 0.0)
    return weights


@lru_cache(maxsize=64)
def preferred(accept: bytes | None, *offers: bytes) -> bytes:
    """The offered media type that an `Accept` selects; the first is the default.

    Of the offers that the header names, that with the greatest weight, and of equal ones the first in the header. A type that is
    named precedes a wildcard: `*/*` selects the default, as an absent header does.
    """
    named = [(entry, weight) for entry, weight in weighted(accept or b"").items() if weight > 0 and entry in offers]
    return max(named, key=lambda each: each[1])[0] if named else offers[0]


def accepts(accept: bytes | None, media_type: bytes) -> bool:
    """Whether an `Accept` allows the media type. The most specific range that covers it decides; an absent header allows all."""
    if accept is None:
        return True
    weights = weighted(accept)
    for entry in (media_type, media_type.partition(b"/")[0] + b"/*", b"*/*"):
        if entry in weights:
            return weights[entry] > 0
    return False


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether an `Accept-Encoding` allows gzip and does not prefer identity."""
    weights = weighted(accept_encoding)
    gzip = weights.get(b"gzip", weights.get(b"x-gzip", weights.get(b"*", 0.0)))
    return gzip > 0 and gzip >= weights.get(b"identity", 0.0)


def is_media_type(content_type: bytes | None, media_type: bytes) -> bool:
    """Whether a `Content-Type` is this one, with any parameters but a charset other than UTF-8."""
    if content_type is None:
        return False
    # The usual spelling, before the general case.
    if content_type == media_type:
        return True
    found, parameters = _split(content_type.lower())
    return found == media_type and parameters.get(b"charset", b"utf-8").strip(b'"') in _UTF_8


def _split(entry: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """An entry of a header and its parameters."""
    name, *parameters = entry.split(b";")
    pairs = [parameter.partition(b"=") for parameter in parameters]
    return name.strip(), {key.strip(): value.strip() for key, _, value in pairs}
