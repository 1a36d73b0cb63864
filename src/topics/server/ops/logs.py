"""Logs: what the process says about itself, on standard error, for people or for machines.

    text   2026-01-31T12:00:00.000Z WARNING topics.server slow request method=POST path=/v0/topics/jobs took_ms=1204.5
    json   {"ts":"2026-01-31T12:00:00.000Z","level":"warning","logger":"topics.server","message":"slow request", ...}

A line has a message that stays the same and fields that do not: `log.warning("slow request", extra=fields(took_ms=3))`.
Tokens never get here: of a request its method, its path and its id are logged, not its headers and not its query.
"""

import logging
import re
import sys
from collections.abc import Mapping
from itertools import count
from secrets import token_hex
from time import gmtime, strftime
from typing import Any, TextIO

import msgspec

from topics.server.http import Request, RequestHead

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# A longer path is cut.
PATH_CHARS = 300

_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_PLAIN = re.compile(r"[^\s\"=]+")

_process = token_hex(4)
_numbers = count(1)


def set_up(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """All loggers of the process write to `stream` (standard error) in this format."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])


def fields(**values: Any) -> dict[str, Any]:
    """The `extra` of a line with these fields."""
    return {"fields": values}


class TextLines(logging.Formatter):
    """One line for people; fields behind the message as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}"
        for name, value in _fields(record).items():
            line += f" {name}={_shown(value)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def request_fields(request: Request) -> dict[str, Any]:
    """What a log line may say about a request."""
    path = request.path.decode("latin-1")[:PATH_CHARS]
    return {"request_id": request_id(request.head), "method": request.method.decode("latin-1"), "path": path}


def request_id(head: RequestHead) -> str:
    """The id the client sent, if it is one, otherwise a new one."""
    sent = sent_id(head.headers)
    return sent.decode() if sent is not None else f"{_process}-{next(_numbers):x}"


def sent_id(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The `X-Request-Id` of a request, if it is sane enough to be repeated in logs and headers."""
    value = headers.get(b"x-request-id")
    return value if value is not None and _SANE_ID.fullmatch(value) else None


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, "fields", {})
    return found


def _time(record: logging.LogRecord) -> str:
    return f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(record.created))}.{int(record.msecs):03d}Z"


def _one_line(text: str) -> str:
    # Whatever gets into a message must not look like a line of its own.
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _shown(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.isprintable():
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()
