"""A plain HTTP client for tests: what goes out and what comes back are exact bytes.

Nothing is retried, re-encoded or checked on the way, so that a test sees what any other client would see.
"""

import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

JSON_TYPE = "application/json"


class Answer:
    """One answer: status, headers by lower-case name, and the body as it came."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, after checking that the error has its one shape."""
        assert self.headers["content-type"] == JSON_TYPE, self.headers
        whole = self.json
        assert set(whole) <= {"error", "performance"}, whole
        error = whole["error"]
        assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}, error
        assert isinstance(error["message"], str), error
        assert error["message"], error
        code: str = error["code"]
        assert code.replace("_", "").isalpha(), code
        assert code == code.lower(), code
        return code

    @property
    def detail(self) -> dict[str, Any]:
        detail: dict[str, Any] = self.json["error"]["detail"]
        return detail

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.body[:2000]!r}>"


Observer = Callable[[str, str, Answer], None]


class Api:
    """One server, seen from outside. Keeps one connection per thread open, until `close`."""

    # Called with the method, the path and the answer of every request, if tests have set it.
    observer: Observer | None = None

    def __init__(self, url: str, headers: dict[str, str] | None = None, timeout: float = 60.0) -> None:
        self.url = url
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host = parts.hostname
        self.port = parts.port or 80
        self.headers = headers or {}
        self.timeout = timeout
        self._local = threading.local()
        self._open: set[HTTPConnection] = set()

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
        """Send exactly this; only Host and the body's length are added."""
        connection = self.connection()
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in {**self.headers, **(headers or {})}.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            answer = Answer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        except BaseException:
            self._drop(connection)
            raise
        if response.will_close:
            self._drop(connection)
        if Api.observer is not None:
            Api.observer(method, path, answer)
        return answer

    def connection(self) -> HTTPConnection:
        """This thread's connection."""
        connection: HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None or connection not in self._open:
            connection = self._local.connection = HTTPConnection(self.host, self.port, timeout=self.timeout)
            self._open.add(connection)
        return connection

    def close(self) -> None:
        """Close every thread's connection."""
        while self._open:
            self._open.pop().close()

    def _drop(self, connection: HTTPConnection) -> None:
        self._open.discard(connection)
        connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.send("GET", path, None, headers)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.send("DELETE", path, None, headers)

    def put(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        return self.send("PUT", path, _encoded(body), {"Content-Type": JSON_TYPE, **(headers or {})})

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        """`body` is sent as it is when it is bytes, else as JSON."""
        return self.send("POST", path, _encoded(body), {"Content-Type": JSON_TYPE, **(headers or {})})

    def wait_until_ready(self, patience_seconds: float) -> None:
        """Until the server serves. Raises TimeoutError when it does not."""
        deadline = time.monotonic() + patience_seconds
        while time.monotonic() < deadline:
            try:
                if self.get("/v0/ready").status == 200:
                    return
            except (OSError, HTTPException):
                pass
            time.sleep(0.005)
        raise TimeoutError(f"{self.url} is not ready after {patience_seconds} s")


def _encoded(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
