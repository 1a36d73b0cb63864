"""Decoding of request bodies, query strings and cursors. What does not have the declared type gets InvalidRequest."""

import base64
import binascii
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec

from topics.api.operation import MaxEntries
from topics.broker.broker import Broker
from topics.model.errors import BatchTooLarge, InvalidRequest, TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import check_text, node_text
from topics.model.records.json_walk import JsonWalk, entries_in_object, strings_in_list
from topics.model.steps import Steps
from topics.server.http import Request
from topics.server.http.media_types import ARROW, JSON, is_media_type
from topics.server.responses import send_error

log = logging.getLogger("topics.server")

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

# Lists in longer bodies are counted before they are decoded. A list in a shorter one takes a millisecond or two.
MIN_COUNTED_BYTES = 64 << 10
EMPTY_OBJECT = b"{}"
MAX_NUMBER_DIGITS = 19


def require_json(request: Request) -> None:
    """Raises 415 unless the body is declared to be JSON."""
    if not is_media_type(request.header(b"content-type"), JSON):
        raise TopicsError("the body must be sent as Content-Type: application/json", code="unsupported_media_type")


def is_arrow(request: Request) -> bool:
    """Whether the body is declared to be an Arrow stream."""
    return is_media_type(request.header(b"content-type"), ARROW)


def optional_json(request: Request) -> bytes:
    """The body of a request whose fields are all optional: `{}` for an empty body, which may have any type.

    Raises 415 for any other body that is not declared to be JSON.
    """
    if not request.body:
        return EMPTY_OBJECT
    require_json(request)
    return request.body


def decode(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """The body as the decoder's type. Raises InvalidRequest with the place and the reason."""
    if not body.isascii():
        check_text(body)
    try:
        return decoder.decode(body)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(str(error)) from None


def has_longer_field(body: bytes, field: str, max_entries: int) -> bool:
    """Whether the body's field is a list of more than `max_entries` strings, or an object of more than `max_entries` entries.

    Nothing is decoded. Bodies below MIN_COUNTED_BYTES are not examined, and those that are not JSON are left to the decoder,
    which has better errors.
    """
    if len(body) < MIN_COUNTED_BYTES:
        return False
    walk = JsonWalk(body)
    try:
        walk.enter(b"{")
        more = not walk.is_empty(b"}")
        while more:
            key = walk.key()
            if key == field:
                bracket = walk.peek()
                if bracket == b"[" and strings_in_list(body, walk.position + 1, max_entries) > max_entries:
                    return True
                if bracket == b"{" and entries_in_object(body, walk.position, max_entries) > max_entries:
                    return True
            walk.skip(len(body))
            more = walk.next_item(b"}")
    except InvalidRequest:
        pass
    return False


def check_encoded_entries(body: bytes, bounds: Iterable[MaxEntries], limits: Limits) -> None:
    """Raises before a large body is decoded when one of its fields has more entries than it may have."""
    if len(body) < MIN_COUNTED_BYTES:
        return
    for entries in bounds:
        limit = _limit(entries, limits)
        if has_longer_field(body, entries.field, limit):
            raise _too_many(entries, limit)


def check_entries(body: Any, bounds: Iterable[MaxEntries], limits: Limits) -> None:
    """Raises when a field of the decoded body has more entries than it may have."""
    for entries in bounds:
        limit = _limit(entries, limits)
        value = getattr(body, entries.field)
        if isinstance(value, list | dict) and len(value) > limit:
            raise _too_many(entries, limit)


def _limit(entries: MaxEntries, limits: Limits) -> int:
    limit = entries.limit
    return limit if isinstance(limit, int) else cast(int, getattr(limits, limit))


def _too_many(entries: MaxEntries, limit: int) -> TopicsError:
    kind = BatchTooLarge if entries.error == "batch_too_large" else InvalidRequest
    return kind(f"{entries.field} has more than {limit} entries", detail={"max": limit})


def excluded_nodes(node: str | list[str] | None) -> frozenset[bytes]:
    """The nodes whose records a reader leaves out, as they are compared with those of records."""
    if node is None:
        return frozenset()
    return frozenset([node_text(each) for each in ([node] if isinstance(node, str) else node)])


def decode_in_slices(broker: Broker, request: Request, steps: Steps[T], take: Callable[[T], None]) -> None:
    """Decode a large body in steps, one in each loop turn, then call `take`; a refusal is answered here.

    `take` is not called when the client has disconnected meanwhile.
    """

    def decoded(body: T, error: BaseException | None) -> None:
        if not request.closed:
            take_decoded(request, body, error, take)

    broker.slices.run(steps, decoded)


def take_decoded(request: Request, body: T, error: BaseException | None, take: Callable[[T], None]) -> None:
    """Call `take` with a body that was decoded in a later turn or in a thread, or answer with the error."""
    try:
        if error is not None:
            raise error
        take(body)
    except TopicsError as refusal:
        send_error(request, refusal)
    except Exception as unexpected:
        log.error("unexpected error while a large body was handled", exc_info=unexpected)
        if not request.answered:
            send_error(request, TopicsError("internal error"))


def query_decoder(query_type: type[StructT]) -> Callable[[bytes], StructT]:
    """A function from a query string to the declared type.

    Of a repeated parameter the first counts; unknown ones are ignored. The function raises InvalidRequest.
    """
    parameters = [
        (field.name, _parser(field.name, msgspec.inspect.type_info(field.type)), field.required)
        for field in msgspec.structs.fields(query_type)
    ]

    def decode_query(raw: bytes) -> StructT:
        if not raw:
            sent: dict[str, str] = {}
        else:
            # The first of repeated parameters is the last to be set.
            sent = dict(reversed(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)))
        values = {}
        for name, parse, required in parameters:
            value = sent.get(name)
            if value is not None:
                values[name] = parse(value)
            elif required:
                raise InvalidRequest(f"the query parameter {name} is required")
        return query_type(**values)

    return decode_query


def _parser(name: str, kind: msgspec.inspect.Type) -> Callable[[str], Any]:
    """How the text of a parameter is read. An empty text is None where the type has None."""
    if isinstance(kind, msgspec.inspect.UnionType):
        (given,) = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
        parse = _parser(name, given)
        return lambda text: parse(text) if text else None
    if isinstance(kind, msgspec.inspect.Metadata):
        return _parser(name, kind.type)
    if isinstance(kind, msgspec.inspect.BoolType):
        return partial(_parse_flag, name)
    if isinstance(kind, msgspec.inspect.IntType):
        return partial(_parse_number, name, kind.ge or 0, kind.le)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return partial(_parse_word, name, [str(word) for word in kind.values])
    assert isinstance(kind, msgspec.inspect.StrType), (name, kind)
    return partial(_parse_text, name, kind.min_length or 0, kind.max_length)


def _parse_word(name: str, words: list[str], text: str) -> str:
    if text not in words:
        raise InvalidRequest(f"{name} must be one of {', '.join([word for word in words if word])}")
    return text


def _parse_flag(name: str, text: str) -> bool:
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise InvalidRequest(f"{name} must be true or false")


def _parse_number(name: str, minimum: int, maximum: int | None, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_DIGITS) or int(text) < minimum:
        raise InvalidRequest(f"{name} must be a whole number of at least {minimum}")
    number = int(text)
    if maximum is not None and number > maximum:
        raise InvalidRequest(f"{name} must be at most {maximum}")
    return number


def _parse_text(name: str, minimum: int, maximum: int | None, text: str) -> str:
    if len(text) < minimum or (maximum is not None and len(text) > maximum):
        raise InvalidRequest(f"{name} must have {minimum} to {maximum} characters")
    return text


def convert_options(options: Mapping[str, Any], kind: type[StructT], what: str) -> StructT:
    """The options of an SQL statement as a Struct, checked as strictly as a body. `what` they belong to is in the errors.

    Raises InvalidRequest.
    """
    known = kind.__struct_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InvalidRequest(f"{unknown[0][:100]} is not an option of {what}: {', '.join(known)}")
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from None


class _Cursor(msgspec.Struct):
    after: str


_decode_cursor = msgspec.json.Decoder(_Cursor).decode


def list_cursor(after: str) -> str:
    """The cursor of the page after this name; opaque to clients."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_Cursor(after))).decode()


def parse_list_cursor(cursor: str) -> str:
    """The name that precedes the page; empty for no cursor. Raises InvalidRequest for a cursor of another server."""
    if not cursor:
        return ""
    try:
        raw = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
        return _decode_cursor(raw).after
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidRequest("the cursor is not one of this server") from None
