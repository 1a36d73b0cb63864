"""Request bodies and query strings: strict types in, plain values out, InvalidRequest for everything else."""

import base64
import binascii
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from topics.model.batch import check_text
from topics.model.errors import InvalidRequest, TopicsError
from topics.server.http import Request

T = TypeVar("T")


def require_json(request: Request) -> None:
    """Raises 415 unless the body is declared to be JSON. Called before the body is looked at."""
    content_type = request.header(b"content-type")
    if content_type is None or not is_json(content_type):
        raise TopicsError("the body must be sent as Content-Type: application/json", code="unsupported_media_type")


def is_json(content_type: bytes) -> bool:
    # The two spellings nearly every client sends, before the general case.
    if content_type == b"application/json" or content_type == b"application/json; charset=utf-8":
        return True
    media_type, _, parameters = content_type.partition(b";")
    if media_type.strip().lower() != b"application/json":
        return False
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip().lower() == b"charset" and value.strip().strip(b'"').lower() not in (
            b"utf-8",
            b"utf8",
            b"us-ascii",
        ):
            return False
    return True


def decode(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """The body as the decoder's type. Raises InvalidRequest, saying where and why."""
    if not body.isascii():
        check_text(body)
    try:
        return decoder.decode(body)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(str(error)) from None


class Query:
    """The query string of a request; of a repeated parameter the first counts, unknown ones are ignored."""

    def __init__(self, raw: bytes) -> None:
        self._values: dict[str, str] = {}
        if raw:
            for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
                self._values.setdefault(name, value)

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def flag(self, name: str, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value in ("true", "1"):
            return True
        if value in ("false", "0"):
            return False
        raise InvalidRequest(f"{name} must be true or false")

    def number(self, name: str, default: int, *, low: int = 0) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and len(value) <= 19) or int(value) < low:
            raise InvalidRequest(f"{name} must be a whole number of at least {low}")
        return int(value)


class _Place(msgspec.Struct):
    after: str


_decode_place = msgspec.json.Decoder(_Place).decode


def list_cursor(after: str) -> str:
    """Where a list goes on: opaque to clients."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_Place(after))).decode()


def parse_list_cursor(cursor: str) -> str:
    """The name after which the list goes on; empty for no cursor. Raises InvalidRequest for one that is not ours."""
    if not cursor:
        return ""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        return _decode_place(raw).after
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidRequest("the cursor is not one this server gave out") from None
