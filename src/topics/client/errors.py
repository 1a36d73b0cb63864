"""What a call can end with besides its answer: the server's own errors, by code, and a server that does not answer."""

from typing import Any

from topics.model import errors
from topics.model.errors import TopicsError


class ServerUnreachable(TopicsError):
    """No answer could be had, however often it was tried. Whether the request was carried out is not known."""

    code = "unreachable"


class WrongAnswer(TopicsError):
    """Something answered, but not a topics server of this API: look at the URL."""

    code = "wrong_answer"


_CLASSES: dict[str, type[TopicsError]] = {
    "invalid_request": errors.InvalidRequest,
    "batch_too_large": errors.BatchTooLarge,
    "record_too_large": errors.RecordTooLarge,
    "topic_full": errors.TopicFull,
    "forbidden": errors.Forbidden,
}
_BY_STATUS: dict[int, type[TopicsError]] = {
    400: errors.InvalidRequest,
    404: errors.NotFound,
    409: errors.Conflict,
    503: errors.Unavailable,
}


def error_from(status: int, body: Any, retry_after_ms: int | None) -> TopicsError:
    """The exception for an error answer: of the class that the server raised, with its code, message and detail."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        return WrongAnswer(f"HTTP {status} without the error body of a topics server")
    code, message, detail = error["code"], str(error.get("message", "")), error.get("detail")
    if status == 429:
        return errors.Throttled(message, retry_after_ms=retry_after_ms or 1000, detail=detail)
    kind = _CLASSES.get(code) or _BY_STATUS.get(status, TopicsError)
    return kind(message, code=code, detail=detail)
