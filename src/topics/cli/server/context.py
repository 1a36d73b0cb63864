"""`topics context ls|use|show|rm`: the servers that have a name here."""

import argparse
import os

from topics.cli.shared.arguments import Parser, Subcommands, add_output, command_parser
from topics.cli.shared.connection import fail
from topics.cli.shared.contexts import Context, find_context, load_contexts, save_contexts
from topics.cli.shared.output import print_object, print_outcome, print_rows
from topics.model.errors import NotFound, TopicsError

COLUMNS = ("current", "context", "url", "credential", "expires_at")


def build_parser() -> Parser:
    parser = command_parser(
        "context",
        "Contexts are servers with their credentials, by name. `topics login` adds one. Commands use the context of --context "
        "or TOPICS_CONTEXT, else the current one, unless --url or TOPICS_URL names a server.",
        ["topics context ls", "topics context use staging", "topics context show"],
    )
    commands = Subcommands(parser)
    ls = commands.add("ls", "list contexts", ["topics context ls"])
    use = commands.add("use", "make a context the current one", ["topics context use staging"])
    show = commands.add(
        "show", "show a context, without its credential", ["topics context show", "topics context show staging"]
    )
    show.add_argument("name", nargs="?", metavar="CONTEXT", help="default: the current one")
    rm = commands.add("rm", "forget a context and its credential", ["topics context rm staging"])
    for each in (use, rm):
        each.add_argument("name", metavar="CONTEXT")
    for each in (ls, use, show, rm):
        add_output(each)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    actions = {"ls": _ls, "use": _use, "show": _show, "rm": _rm}
    try:
        actions[arguments.command](arguments)
    except TopicsError as error:
        return fail(error)
    return 0


def _ls(arguments: argparse.Namespace) -> None:
    kept = load_contexts()
    current = os.environ.get("TOPICS_CONTEXT") or kept.current
    rows = [
        [name == current, name, each.url, _credential(each), each.expires_ms] for name, each in kept.contexts.items()
    ]
    print_rows(COLUMNS, rows, arguments.output)


def _use(arguments: argparse.Namespace) -> None:
    find_context(arguments.name)
    kept = load_contexts()
    kept.current = arguments.name
    save_contexts(kept)
    print_outcome("context", arguments.name, "is the current one", arguments.output)


def _show(arguments: argparse.Namespace) -> None:
    found = find_context(arguments.name or os.environ.get("TOPICS_CONTEXT"))
    if found is None:
        raise NotFound("there is no current context; see: topics login", code="not_found")
    name, context = found
    fields = {
        "context": name,
        "url": context.url,
        "credential": _credential(context),
        "expires_at": context.expires_ms,
        "ca": context.ca,
        "cert": context.cert,
        "cert_key": context.cert_key,
        "proxy": _proxy(context),
    }
    print_object(fields, arguments.output)


def _rm(arguments: argparse.Namespace) -> None:
    find_context(arguments.name)
    kept = load_contexts()
    del kept.contexts[arguments.name]
    if kept.current == arguments.name:
        kept.current = None
    save_contexts(kept)
    print_outcome("context", arguments.name, "removed", arguments.output)


def _proxy(context: Context) -> str | None:
    """The proxy without its user and password."""
    return None if context.proxy is None else context.proxy.rpartition("@")[2]


def _credential(context: Context) -> str:
    if context.user is not None:
        return f"user {context.user}"
    return "none" if context.token is None else "key"
