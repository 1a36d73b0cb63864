"""`topics login [URL]`: check a credential and keep it with the server's address as a context."""

import argparse
import os
import sys
import time
from getpass import getpass
from urllib.parse import urlsplit

from msgspec import Struct

from topics.cli.shared.arguments import Parser, add_output, add_transport, command_parser
from topics.cli.shared.connection import RETRY, fail, transport
from topics.cli.shared.contexts import Context, contexts_path, load_contexts, save_contexts
from topics.cli.shared.output import print_outcome
from topics.client import Client
from topics.client.calls import Call
from topics.client.transport.address import DEFAULT_URL
from topics.model.errors import Forbidden, InvalidRequest, TopicsError


class LoggedIn(Struct):
    access_token: str
    expires_in: int
    role: str


def build_parser() -> Parser:
    parser = command_parser(
        "login",
        "Log in to a server and keep its address and the credential as a context, which becomes the current one. With --user "
        "a password is asked for and exchanged for a token; otherwise an API key is asked for, and none is needed for a "
        "server without keys. Credentials are kept in a file that only you can read, and are never printed. --ca, --cert, "
        "--cert-key and --proxy are kept with the context.",
        [
            "topics login http://127.0.0.1:4000",
            "topics login https://topics.example.com --name prod --user ada",
            "echo $KEY | topics login https://topics.example.com --stdin",
            "topics login https://topics.internal --ca ca.pem --cert me.pem --cert-key me.key --proxy http://proxy:3128",
        ],
    )
    parser.add_argument(
        "url", nargs="?", default=DEFAULT_URL, metavar="URL", help=f"the server (default {DEFAULT_URL})"
    )
    parser.add_argument("--name", help="name of the context (default: the host of the URL)")
    parser.add_argument("--user", help="name of the user; without it an API key is used")
    parser.add_argument("--stdin", action="store_true", help="read the password or key from standard input")
    add_transport(parser)
    add_output(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        context = _log_in(arguments)
        name = arguments.name or urlsplit(context.url).hostname or "default"
        kept = load_contexts()
        kept.contexts[name] = context
        kept.current = name
        save_contexts(kept)
    except TopicsError as error:
        return fail(error)
    print_outcome("context", name, f"logged in to {context.url}, kept in {contexts_path()}", arguments.output)
    return 0


def _log_in(arguments: argparse.Namespace) -> Context:
    """The context with a credential that the server accepts. Raises the server's error otherwise."""
    # Absolute: a context is used from any directory.
    for name in ("ca", "cert", "cert_key"):
        if getattr(arguments, name) is not None:
            setattr(arguments, name, os.path.abspath(getattr(arguments, name)))
    reach = transport(arguments)
    kept = {name: getattr(arguments, name) for name in ("ca", "cert", "cert_key", "proxy")}
    with Client(arguments.url, "", retry=RETRY, **reach) as client:
        client.ready()
        if arguments.user is not None:
            body = {"username": arguments.user, "password": _secret("Password: ", arguments.stdin)}
            token = client.run(Call("POST", "/api/auth/login", LoggedIn, body, repeatable=False))
            expires_ms = int((time.time() + token.expires_in) * 1000)
            return Context(client.url, token.access_token, arguments.user, expires_ms, **kept)
        if not arguments.stdin and _is_open(client):
            return Context(client.url, **kept)
    key = _secret("API key: ", arguments.stdin)
    with Client(arguments.url, key, retry=RETRY, **reach) as client:
        _check(client)
        return Context(client.url, key, **kept)


def _is_open(client: Client) -> bool:
    """Whether the server answers without a credential."""
    from topics.model.errors import Unauthorized

    try:
        _check(client)
    except Unauthorized:
        return False
    return True


def _check(client: Client) -> None:
    try:
        next(iter(client.topics("\x7f")), None)
    except Forbidden:
        # The key is known; it may not list topics, or not these.
        pass


def _secret(prompt: str, from_stdin: bool) -> str:
    if from_stdin:
        secret = sys.stdin.readline().strip()
    elif sys.stdin.isatty():
        secret = getpass(prompt)
    else:
        raise InvalidRequest("no terminal to ask on; give the password or key on standard input, with --stdin")
    if not secret:
        raise InvalidRequest("the password or key is empty")
    return secret
