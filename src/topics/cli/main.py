"""Finds the command that was asked for and hands over to it; knows nothing else.

Adding a command is one line in `COMMANDS` and one file beside this one. Nothing outside the standard library
is imported here, and little of that: `topics --help` must answer at once.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from topics import __version__

# Command -> (module with `run(argv) -> int`, the line shown by `topics --help`).
COMMANDS = {
    "serve": ("topics.cli.serve", "start the server"),
    "config": ("topics.cli.config", "print the effective settings"),
    "user": ("topics.cli.user", "add a user with a password and a role"),
    "ls": ("topics.cli.ls", "list topics"),
    "info": ("topics.cli.info", "show the state of a topic"),
    "append": ("topics.cli.append", "append records, from arguments or standard input"),
    "read": ("topics.cli.read", "print the records of a topic"),
    "tail": ("topics.cli.tail", "print the last records, and with -f those that come"),
    "sql": ("topics.cli.sql", "run a SQL statement"),
    "table": ("topics.cli.table", "add, list and drop tables whose changes become records"),
    "capture": ("topics.cli.capture", "send the changes of a database table to the server"),
    "archive": ("topics.cli.archive", "say to which table a topic is copied, and see how far that is"),
    "pipeline": ("topics.cli.pipeline", "run what the routes and archives ask for, see how it does, stop it"),
    "check": ("topics.cli.check", "verify a data directory and say what was found"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command named by the first argument and return its exit status.

    Returns 2, with the usage on standard error, when no command or an unknown one is named.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(usage(), file=sys.stderr)
        return 2
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name in ("-V", "--version"):
        print(f"topics {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"topics: unknown command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module_name, _ = COMMANDS[name]
    run: Callable[[list[str]], int] = import_module(module_name).run
    return run(rest)


def usage() -> str:
    """The text of `topics --help`: every command with its line."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: topics COMMAND [ARGUMENTS]",
            "",
            "commands:",
            *lines,
            "",
            "topics COMMAND --help tells more about one; topics --version prints the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
