"""Refusals: error responses of the HTTP layer itself, or of an application before the body is read."""

import msgspec


class Refusal:
    """A complete error response, reusable."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: bytes = b"") -> None:
        """`headers` are complete lines, each with its CRLF."""
        self.status = status
        self.body = body
        self.headers = headers


class Refused(Exception):
    """The bytes cannot be parsed any further: send the refusal, if there is one, and close the connection.

    Without a refusal the client has its response already.
    """

    def __init__(self, refusal: Refusal | None) -> None:
        super().__init__()
        self.refusal = refusal


def error_body(code: str, message: str) -> bytes:
    """Return the error envelope that every error response has."""
    return msgspec.json.encode({"error": {"code": code, "message": message}})


def refusal(status: int, code: str, message: str, headers: bytes = b"") -> Refusal:
    return Refusal(status, error_body(code, message), headers)


def malformed(why: str) -> Refused:
    """Return the refusal of bytes that are not valid HTTP. Accepting what others read differently allows smuggling."""
    return Refused(refusal(400, "invalid_request", f"malformed HTTP request: {why}"))


def too_large(max_bytes: int, server_max_bytes: int) -> Refusal:
    """Return the refusal of a body over `max_bytes`; `server_max_bytes` is the limit for all requests."""
    if max_bytes == server_max_bytes:
        return PAYLOAD_TOO_LARGE
    return refusal(413, "payload_too_large", f"the body of this request may have at most {max_bytes} bytes")


INTERNAL = refusal(500, "internal", "internal error")
METHOD_UNKNOWN = refusal(405, "method_not_allowed", "this HTTP method is not supported")
REQUEST_TIMEOUT = refusal(408, "request_timeout", "the request did not arrive in time")
PAYLOAD_TOO_LARGE = refusal(413, "payload_too_large", "the body exceeds the server's limit")
URI_TOO_LONG = refusal(414, "uri_too_long", "the request target is too long")
CODING_UNSUPPORTED = refusal(
    415, "unsupported_media_type", "the only supported Content-Encoding is gzip", b"Accept-Encoding: gzip\r\n"
)
EXPECTATION_FAILED = refusal(417, "expectation_failed", "the only supported expectation is 100-continue")
HEADERS_TOO_LARGE = refusal(431, "headers_too_large", "the headers have too many lines or bytes")
TRANSFER_UNSUPPORTED = refusal(501, "not_implemented", "the only supported Transfer-Encoding is chunked")
OVERLOADED = refusal(
    503, "overloaded", "the server is at a limit for connections or memory; try again later", b"Retry-After: 1\r\n"
)
SHUTTING_DOWN = refusal(503, "shutting_down", "the server is shutting down", b"Retry-After: 1\r\n")
VERSION_UNSUPPORTED = refusal(505, "http_version_not_supported", "only HTTP/1.1 and HTTP/1.0 are supported")
