"""Errors that a call raises: the server's own errors, by code, and those of the client itself."""

from typing import Any

from topics.model import errors
from topics.model.errors import TopicsError


class ServerUnreachable(TopicsError):
    """The server did not answer, also not to repeated requests. Whether it executed the request is not known.

    Example:

        with Client("http://127.0.0.1:9", retry=NO_RETRY) as nothing:
            try:
                nothing.health()
            except ServerUnreachable as error:
                print(error.message)
    """

    code = "unreachable"


class WrongAnswer(TopicsError):
    """Something answered, but not a topics server of this API: check the URL.

    Example:

        with Client("http://127.0.0.1:4000/not-topics") as other:
            try:
                other.health()
            except (WrongAnswer, NotFound) as error:
                print(error.code)
    """

    code = "wrong_answer"


class UndecodablePayload(TopicsError):
    """A payload is valid JSON but no value: it holds a lone surrogate. `detail` names its seq.

    Example:

        with Client("http://127.0.0.1:4000", lone_surrogates="error") as strict:
            try:
                for item in strict.read("orders"):
                    print(item)
            except UndecodablePayload as error:
                print(error.detail)
    """

    code = "undecodable_payload"


class PayloadMismatch(TopicsError):
    """A payload is not of the type that was asked for. `detail` names its seq.

    Example:

        try:
            for item in client.read("orders", type=list[int]):
                print(item)
        except PayloadMismatch as error:
            print(error.detail)
    """

    code = "payload_mismatch"


class SessionLost(TopicsError):
    """The session of this consumer has ended: its partitions, and what it has not acknowledged, go to other members.

    Raised by the consumer. Iterating again joins the group again.

    Example:

        with client.consumer("orders", group="audit", follow=False) as consumer:
            try:
                for message in consumer:
                    consumer.ack(message)
            except SessionLost as error:
                print(error.message)
    """

    code = "session_lost"


class WatchFailed(TopicsError):
    """The server cannot continue a watched topic. `detail` names the topic and the HTTP status.

    Example:

        try:
            for item in client.watch("orders"):
                print(item)
                break
        except WatchFailed as error:
            print(error.detail)
    """

    code = "watch_failed"


_CLASSES: dict[str, type[TopicsError]] = {
    "invalid_request": errors.InvalidRequest,
    "batch_too_large": errors.BatchTooLarge,
    "record_too_large": errors.RecordTooLarge,
    "topic_full": errors.TopicFull,
    "forbidden": errors.Forbidden,
    "unauthorized": errors.Unauthorized,
}
_BY_STATUS: dict[int, type[TopicsError]] = {
    400: errors.InvalidRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    503: errors.Unavailable,
}


def error_from(status: int, body: Any, retry_after_ms: int | None) -> TopicsError:
    """The exception for an error response: of the class that the server raised, with its code, message and detail."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        return WrongAnswer(f"HTTP {status} without the error body of a topics server")
    code, message, detail = error["code"], str(error.get("message", "")), error.get("detail")
    if status == 429:
        return errors.Throttled(message, retry_after_ms=retry_after_ms or 1000, detail=detail)
    kind = _CLASSES.get(code) or _BY_STATUS.get(status, TopicsError)
    return kind(message, code=code, detail=detail)
