"""Refusals: answers that the protocol gives by itself, or that an application gives before the body was read."""

import msgspec


class Refusal:
    """A whole answer, ready to be sent any number of times."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: bytes = b"") -> None:
        """`headers` are complete lines, each with its CRLF."""
        self.status = status
        self.body = body
        self.headers = headers


class Refused(Exception):
    """The bytes cannot be parsed any further: send the refusal, if there is one, and close the connection.

    Without a refusal the client has its answer already.
    """

    def __init__(self, refusal: Refusal | None) -> None:
        super().__init__()
        self.refusal = refusal


def error_body(code: str, message: str) -> bytes:
    """The one shape that every error has."""
    return msgspec.json.encode({"error": {"code": code, "message": message}})


def refusal(status: int, code: str, message: str, headers: bytes = b"") -> Refusal:
    return Refusal(status, error_body(code, message), headers)


def malformed(why: str) -> Refused:
    """Not HTTP as we read it. Two readers that disagree about such bytes are how requests get smuggled."""
    return Refused(refusal(400, "invalid_request", f"malformed HTTP request: {why}"))


INTERNAL = refusal(500, "internal", "internal error")
METHOD_UNKNOWN = refusal(405, "method_not_allowed", "this method is not served")
REQUEST_TIMEOUT = refusal(408, "request_timeout", "the request did not arrive in time")
PAYLOAD_TOO_LARGE = refusal(413, "payload_too_large", "the body exceeds the server's limit")
URI_TOO_LONG = refusal(414, "uri_too_long", "the request target is too long")
CODING_UNSUPPORTED = refusal(
    415, "unsupported_media_type", "the only Content-Encoding understood is gzip", b"Accept-Encoding: gzip\r\n"
)
EXPECTATION_FAILED = refusal(417, "expectation_failed", "the only expectation met is 100-continue")
HEADERS_TOO_LARGE = refusal(431, "headers_too_large", "too many header lines or bytes")
TRANSFER_UNSUPPORTED = refusal(501, "not_implemented", "the only Transfer-Encoding understood is chunked")
OVERLOADED = refusal(503, "overloaded", "the server holds as much as it may; try again later", b"Retry-After: 1\r\n")
SHUTTING_DOWN = refusal(503, "shutting_down", "the server is shutting down", b"Retry-After: 1\r\n")
VERSION_UNSUPPORTED = refusal(505, "http_version_not_supported", "HTTP/1.1 and HTTP/1.0 are spoken here")
