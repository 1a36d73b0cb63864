"""What the commands that talk to a server share: how to reach it, how to print, and how to fail in plain words."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from topics.client import Client
from topics.model.errors import TopicsError


def parser_for(command: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"topics {command}", description=description)
    parser.add_argument("--url", help="the server; otherwise TOPICS_URL, otherwise http://127.0.0.1:4000")
    parser.add_argument("--token", help="the API key; otherwise TOPICS_TOKEN (which no process list shows)")
    return parser


def add_address(*commands: argparse.ArgumentParser) -> None:
    """Where the server is may also be said behind a command of a command, where one would write it."""
    for command in commands:
        command.add_argument("--url", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.add_argument("--token", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def call(arguments: argparse.Namespace, action: Callable[[Client], int]) -> int:
    """Run the action with a client. Errors become one line on standard error and exit status 1."""
    try:
        with Client(arguments.url, arguments.token) as client:
            return action(client)
    except TopicsError as error:
        print(f"topics: {error.message} ({error.code})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python must not try to write the rest when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def for_people() -> bool:
    """Whether a person looks at the output, rather than a program."""
    return sys.stdout.isatty()


def tell(what: str, name: str, outcome: str) -> None:
    """What became of something: a sentence for people, a JSON line for programs."""
    if for_people():
        print(f"{what} {name} {outcome}")
    else:
        print_line({what: name, "outcome": outcome})


def print_line(value: Any) -> None:
    """One JSON value on a line, at once: whoever follows a pipe must not wait for a buffer to fill."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table for people, JSON lines for programs."""
    if not for_people():
        for row in rows:
            print_line(dict(zip(columns, row, strict=True)))
        return
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max([len(name), *[len(row[index]) for row in texts]]) for index, name in enumerate(columns)]
    print("  ".join([name.ljust(width) for name, width in zip(columns, widths, strict=True)]).rstrip())
    for row in texts:
        print("  ".join([text.ljust(width) for text, width in zip(row, widths, strict=True)]).rstrip())


def _text(value: Any) -> str:
    """On one line, and nothing in it that a terminal would obey: names and errors come from elsewhere."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if text.isprintable() else "".join([sign if sign.isprintable() else "?" for sign in text])
