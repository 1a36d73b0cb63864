"""Argument parsers: one look for all help texts, options that many commands share, and suggestions for wrong words."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from topics.cli.shared import exit_codes
from topics.cli.shared.spelling import did_you_mean
from topics.cli.shared.times import NEGATIVE_VALUE, parse_count, parse_duration, parse_size, parse_time

FORMATS = ("table", "json", "jsonl", "raw", "csv")
_INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser whose errors exit with USAGE and suggest what was meant. Times like -1h are values, not options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)
        self._negative_number_matcher = NEGATIVE_VALUE

    def error(self, message: str) -> NoReturn:
        shown = message
        if choice := _INVALID_CHOICE.search(message):
            known = re.findall(r"[\w-]+", choice[2])
            shown = f"there is no {choice[1]!r} here. {did_you_mean(choice[1], known)}".rstrip()
            shown += f" Choose from {', '.join(known)}."
        elif message.startswith("unrecognized arguments: -"):
            option = message.split()[2]
            shown = f"{message}. {did_you_mean(option.partition('=')[0], option_strings(self))}".rstrip(". ")
        print(f"{self.prog}: {shown}", file=sys.stderr)
        print(f"See: {self.prog} --help", file=sys.stderr)
        sys.exit(exit_codes.USAGE)


def command_parser(name: str, description: str, examples: Sequence[str]) -> Parser:
    """The parser of `topics NAME`. `examples` are whole command lines."""
    return Parser(prog=f"topics {name}", description=wrap(description), epilog=_epilog(examples))


class Subcommands:
    """The commands below a command, as in `topics queue peek`."""

    def __init__(self, parser: Parser) -> None:
        self._added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(self, name: str, summary: str, examples: Sequence[str], description: str | None = None) -> Parser:
        added: Parser = self._added.add_parser(
            name,
            help=summary,
            description=wrap(description or f"{summary[0].upper()}{summary[1:]}."),
            epilog=_epilog(examples),
        )
        return added


def _epilog(examples: Sequence[str]) -> str:
    return "\n".join(["example:" if len(examples) == 1 else "examples:", *[f"  {example}" for example in examples]])


def wrap(text: str) -> str:
    """Lines of at most 100 characters; empty lines between paragraphs stay."""
    import textwrap

    return "\n\n".join([textwrap.fill(" ".join(part.split()), 100) for part in text.split("\n\n")])


def add_connection(*parsers: argparse.ArgumentParser) -> None:
    """Options that say which server to call."""
    for parser in parsers:
        group = parser.add_argument_group("connection")
        group.add_argument(
            "--url", help="address of the server (default: TOPICS_URL, the context, http://127.0.0.1:4000)"
        )
        group.add_argument("--token", help="API key or token (default: TOPICS_TOKEN, which no process list shows)")
        group.add_argument("--context", help="context to use, see `topics context` (default: TOPICS_CONTEXT)")
        add_transport(group)


def add_transport(group: "argparse._ActionsContainer") -> None:
    """Options that say how to reach a server: certificates and a proxy. `topics login` keeps them in the context."""
    group.add_argument("--ca", metavar="FILE", help="certificates of the authorities to trust, instead of the system's")
    group.add_argument("--cert", metavar="FILE", help="certificate of this client, as PEM")
    group.add_argument("--cert-key", metavar="FILE", help="key of the certificate, unless its file holds both")
    group.add_argument("--proxy", metavar="URL", help='HTTP proxy, "" for none (default: HTTP_PROXY, HTTPS_PROXY)')


def add_output(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """`-o FORMAT`. Without a default it is a table on a terminal and JSON lines in a pipe."""
    words = default or "table on a terminal, jsonl in a pipe"
    parser.add_argument("-o", "--output", choices=FORMATS, default=default, help=f"format (default: {words})")


def add_report_output(parser: argparse.ArgumentParser) -> None:
    """`-o FORMAT` of a command that prints a report in words unless a format is given."""
    parser.add_argument("-o", "--output", choices=FORMATS, help="format (default: a text)")


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask; required without a terminal")


def _argument_type(parse: Callable[[str], int], name: str) -> Callable[[str], int]:
    """The parser as argparse wants it: with the message of the ValueError, not one of its own."""

    def convert(text: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    convert.__name__ = name
    return convert


time_argument = _argument_type(parse_time, "time")
duration_argument = _argument_type(parse_duration, "duration")
size_argument = _argument_type(parse_size, "size")
count_argument = _argument_type(parse_count, "count")


def option_strings(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser and of the commands below it."""
    found = [option for action in actions(parser) for option in action.option_strings]
    for below in subparsers(parser).values():
        found += option_strings(below)
    return found


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments and options of a parser."""
    yield from parser._actions


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below a command, by name."""
    for action in actions(parser):
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
