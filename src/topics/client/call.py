"""A call: one request, how its response is read, and whether it may be sent again."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw

from topics.client.decoding import LoneSurrogates, decode
from topics.client.errors import WrongAnswer, error_from
from topics.client.values import RecordIn

T = TypeVar("T")
ARROW = "application/vnd.apache.arrow.stream"


class Call(Generic[T]):
    """One request and the type of its response.

    `repeatable`: sending it again after a lost response changes nothing more. Otherwise it is sent again only when the
    server has certainly not executed it. `wait_s` is how long the server may wait on purpose.

    Example:

        call = Call("GET", "/v0/health", Health)
        print(client.run(call).version)
    """

    __slots__ = (
        "accept",
        "answer",
        "body",
        "content_type",
        "lone_surrogates",
        "method",
        "path",
        "repeatable",
        "wait_s",
    )

    def __init__(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: Any = UNSET,
        *,
        repeatable: bool = True,
        wait_s: float = 0.0,
        content_type: str = "application/json",
        accept: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.answer = answer
        self.body: bytes | None = None
        if body is not UNSET:
            self.body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.repeatable = repeatable
        self.wait_s = wait_s
        self.content_type = content_type
        self.accept = accept
        # Overrides the client's choice.
        self.lone_surrogates: LoneSurrogates | None = None

    def __repr__(self) -> str:
        return f"<Call {self.method} {self.path}>"

    def headers(self, authorization: str | None) -> dict[str, str]:
        """The headers of the request, with the value of `Authorization` if there is one."""
        headers: dict[str, str] = {}
        if self.body is not None:
            headers["Content-Type"] = self.content_type
        if self.accept is not None:
            headers["Accept"] = self.accept
        if authorization is not None:
            headers["Authorization"] = authorization
        return headers

    def read(
        self, status: int, headers: Mapping[str, str], body: bytes, lone_surrogates: LoneSurrogates = "replace"
    ) -> T:
        """Decode the response. Raises the server's error as the class that has its code."""
        if 200 <= status < 300:
            if self.answer is bytes:
                return body  # type: ignore[return-value]
            try:
                return decode(body, self.answer, self.lone_surrogates or lone_surrogates)
            except msgspec.MsgspecError as error:
                raise WrongAnswer(f"{self.method} {self.path}: {error}") from None
        try:
            decoded = msgspec.json.decode(body)
        except msgspec.MsgspecError:
            decoded = None
        retry_after = retry_after_s(headers)
        raise error_from(status, decoded, None if retry_after is None else int(retry_after * 1000))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds of a `Retry-After` header."""
    value = headers.get("retry-after", "")
    return float(value) if value.isdigit() else None


def path(before: str, name: str, after: str = "") -> str:
    """A path with a name in it."""
    return before + quote(name, safe="") + after


def query(path: str, fields: Mapping[str, Any]) -> str:
    """A path with query parameters."""
    if not fields:
        return path
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
    return f"{path}?{urlencode(texts)}"


def record_bodies(records: Sequence[Any]) -> list[Any]:
    """Records as they are sent: payloads get an object around them; RecordIn and encoded records have one."""
    return [record if isinstance(record, RecordIn | Raw) else {"data": record} for record in records]


def new_key() -> str:
    """A new idempotency key."""
    return os.urandom(16).hex()
