"""`topics router ls|add|rm`: routers, which forward the records of one topic to another."""

import argparse
from typing import Any

from topics.cli.shared.arguments import Parser, Subcommands, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_outcome, print_rows
from topics.client import Client
from topics.model.errors import NotFound

COLUMNS = ("router", "source", "dest", "guarantee", "forwarded_total", "lag", "state")


def build_parser() -> Parser:
    parser = command_parser(
        "router",
        "Routers forward the records of one topic to another, inside the server.",
        ["topics router add orders audit", "topics router ls", "topics router rm 'orders->audit'"],
    )
    commands = Subcommands(parser)
    ls = commands.add("ls", "list routers", ["topics router ls", "topics router ls --source orders"])
    ls.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only routers whose name begins with this")
    ls.add_argument("--source", metavar="TOPIC", help="only routers from this topic")
    ls.add_argument("--dest", metavar="TOPIC", help="only routers to this topic")
    add = commands.add(
        "add",
        "forward the records of a topic to another one",
        [
            "topics router add orders audit",
            "topics router add orders vip --tag 'vip-*' --from earliest --name vip-orders",
        ],
    )
    add.add_argument("source", metavar="SOURCE", help="topic to read")
    add.add_argument("dest", metavar="DEST", help="topic to write; created if it does not exist")
    add.add_argument("--name", help="name of the router (default: SOURCE->DEST)")
    add.add_argument("--tag", help="only records with this tag; a * at the end matches any rest")
    add.add_argument(
        "--from", dest="start", choices=("latest", "earliest"), help="earliest: also what the source holds"
    )
    add.add_argument("--guarantee", choices=("at_least_once", "exactly_once"), help="default at_least_once")
    add.add_argument("--allow-cycle", action="store_true", help="allow that routers form a circle")
    rm = commands.add("rm", "remove a router; what it has forwarded stays", ["topics router rm 'orders->audit'"])
    rm.add_argument("name", metavar="NAME")
    for each in (ls, add, rm):
        add_output(each)
    add_connection(ls, add, rm)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    actions = {"ls": _ls, "add": _add, "rm": _rm}
    return call(arguments, lambda client: actions[arguments.command](client, arguments))


def _ls(client: Client, arguments: argparse.Namespace) -> int:
    # A list has no lag and no state, so each router is asked for.
    listed = client.routers(arguments.prefix, source=arguments.source, dest=arguments.dest)
    found = [client.router(router.router) for router in listed]
    print_rows(COLUMNS, [[getattr(router, column) for column in COLUMNS] for router in found], arguments.output)
    return 0


def _add(client: Client, arguments: argparse.Namespace) -> int:
    options: dict[str, Any] = {}
    if arguments.tag is not None:
        options["filter"] = ["tag", "Glob", arguments.tag] if arguments.tag.endswith("*") else arguments.tag
    if arguments.start is not None:
        options["from"] = arguments.start
    if arguments.guarantee is not None:
        options["guarantee"] = arguments.guarantee
    if arguments.allow_cycle:
        options["allow_cycle"] = True
    made = client.create_router(arguments.source, arguments.dest, name=arguments.name, **options)
    print_outcome("router", made.router, "added" if made.created else "changed", arguments.output)
    return 0


def _rm(client: Client, arguments: argparse.Namespace) -> int:
    if not client.drop_router(arguments.name).deleted:
        raise NotFound(f'there is no router "{arguments.name}"; see: topics router ls', code="router_not_found")
    print_outcome("router", arguments.name, "removed", arguments.output)
    return 0
