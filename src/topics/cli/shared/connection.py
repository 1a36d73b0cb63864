"""Call a server: find its address, turn its errors into one line and an exit code, and add what to do next."""

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from topics.cli.shared import exit_codes
from topics.client import Client, RetryPolicy, ServerUnreachable, WrongAnswer
from topics.model.errors import (
    BatchTooLarge,
    InvalidRequest,
    NotFound,
    RecordTooLarge,
    TopicsError,
    Unauthorized,
    Unavailable,
)

if TYPE_CHECKING:
    from topics.cli.shared.contexts import Context

# About a second: a command fails soon when no server answers, and still survives a restart of a connection.
RETRY = RetryPolicy(attempts=4, first_wait_s=0.1, longest_wait_s=1.0)


def call(arguments: argparse.Namespace, action: Callable[[Client], int]) -> int:
    """Run the action with a client and return its exit code; an error is printed and becomes one."""
    try:
        with connect(arguments) as client:
            try:
                return action(client)
            except TopicsError as error:
                return fail(error, client)
    except TopicsError as error:
        return fail(error)


def connect(arguments: argparse.Namespace) -> Client:
    """A client of the server that options, variables or the context name."""
    from topics.cli.shared.contexts import find_address

    url, token, context = find_address(arguments.url, arguments.token, arguments.context)
    return Client(url, token, retry=RETRY, **transport(arguments, context))


def transport(arguments: argparse.Namespace | None, context: "Context | None" = None) -> dict[str, Any]:
    """How to reach the server, as a client takes it: options first, then the context."""

    def chosen(name: str) -> str | None:
        given: str | None = getattr(arguments, name, None)
        return given if given is not None else getattr(context, name, None)

    return {
        "ca": chosen("ca"),
        "client_certificate": chosen("cert"),
        "client_key": chosen("cert_key"),
        "proxy": chosen("proxy"),
    }


def fail(error: TopicsError, client: Client | None = None) -> int:
    """Print the error and what to do about it; return the exit code."""
    print(f"topics: {error.message} ({error.code})", file=sys.stderr)
    if hint := _hint(error, client):
        print(hint, file=sys.stderr)
    return exit_code(error)


def exit_code(error: TopicsError) -> int:
    if isinstance(error, NotFound):
        return exit_codes.NOT_FOUND
    if isinstance(error, BatchTooLarge | RecordTooLarge):
        return exit_codes.REFUSED
    if isinstance(error, InvalidRequest):
        return exit_codes.USAGE
    if isinstance(error, ServerUnreachable | Unavailable) or error.code in ("internal", "wrong_answer"):
        return exit_codes.UNREACHABLE
    return exit_codes.REFUSED


def _hint(error: TopicsError, client: Client | None) -> str:
    if isinstance(error, Unauthorized) and error.code != "login_expired":
        return "Set TOPICS_TOKEN to an API key or a token of this server, or run: topics login"
    if isinstance(error, ServerUnreachable):
        return "Start a server with `topics serve`, or name another one with --url, TOPICS_URL or `topics context use`."
    if isinstance(error, WrongAnswer):
        return "Something else answers there: check --url, TOPICS_URL, --proxy and `topics context ls`."
    if error.code == "topic_not_found" and client is not None and error.detail:
        return _topics_like(str(error.detail.get("topic", "")), client)
    return ""


def _topics_like(name: str, client: Client) -> str:
    """A question that names topics spelled alike; empty when none is, or when this key may not list them."""
    from itertools import islice

    from topics.cli.shared.spelling import did_you_mean

    try:
        return did_you_mean(name, [topic.topic for topic in islice(client.topics(), 1000)])
    except TopicsError:
        return ""
