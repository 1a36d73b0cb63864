"""Find the command that is called and run it.

A new command is one line in `GROUPS` and one file in the package of its group. This module imports nothing outside the
standard library and little of that: `topics --help` must answer at once.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from topics import __version__
from topics.cli.shared import exit_codes

# By group, in the order of `topics --help`: the command, its module, and its summary.
GROUPS = {
    "data": {
        "create": ("topics.cli.data.create", "create a topic or a queue"),
        "set": ("topics.cli.data.set", "change the configuration of a topic"),
        "ls": ("topics.cli.data.ls", "list topics"),
        "info": ("topics.cli.data.info", "show the state and configuration of a topic"),
        "append": ("topics.cli.data.append", "append records, from arguments or standard input"),
        "read": ("topics.cli.data.read", "print the records of a topic"),
        "tail": ("topics.cli.data.tail", "print the last records, and with -f the new ones"),
        "watch": ("topics.cli.data.watch", "follow several topics, named or by prefix"),
        "delete": ("topics.cli.data.delete", "delete records by seq, time or tag"),
        "rm": ("topics.cli.data.rm", "delete topics with all their records"),
        "export": ("topics.cli.files.export", "write the records of a topic to a JSONL or Parquet file"),
        "import": ("topics.cli.files.import_", "append the records of a JSONL or Parquet file"),
        "sql": ("topics.cli.sql.sql", "run SQL statements, or open an interactive prompt"),
    },
    "queues": {
        "queue": ("topics.cli.queues.queue", "show queues; peek at, claim and finish jobs"),
        "work": ("topics.cli.queues.work", "run a command for each job of a queue"),
    },
    "groups": {
        "group": ("topics.cli.groups.group", "list consumer groups, show their lag, move and delete them"),
        "consume": ("topics.cli.groups.consume", "print and acknowledge the messages of a consumer group"),
    },
    "pipeline": {
        "router": ("topics.cli.pipeline.router", "list, add and remove routers between topics"),
        "table": ("topics.cli.pipeline.table", "add, list and drop tables whose changes become records"),
        "capture": ("topics.cli.pipeline.capture", "send the changes of a database table to the server"),
        "archive": ("topics.cli.pipeline.archive", "copy topics to Delta tables, and show the progress"),
        "pipeline": ("topics.cli.pipeline.pipeline", "run the routes and archives on Spark, show and stop pipelines"),
    },
    "server": {
        "serve": ("topics.cli.server.serve", "start a server"),
        "demo": ("topics.cli.server.demo", "start a server with sample data, and print the address of the console"),
        "top": ("topics.cli.server.top", "show rates, lag and queue depth live"),
        "bench": ("topics.cli.server.bench", "measure a server for a few seconds"),
        "doctor": ("topics.cli.server.doctor", "look for problems and say what to do about them"),
        "config": ("topics.cli.server.config", "print the effective settings of a server"),
        "user": ("topics.cli.server.user", "add a user with a password and a role"),
        "login": ("topics.cli.server.login", "log in to a server and keep its address as a context"),
        "context": ("topics.cli.server.context", "list, choose and remove contexts"),
        "check": ("topics.cli.server.check", "verify a data directory"),
        "repair": ("topics.cli.server.repair", "give up the damaged records of a data directory"),
        "conformance": ("topics.cli.server.conformance", "check a server against the contract of the HTTP API"),
        "completion": ("topics.cli.server.completion", "print the completion script for a shell"),
    },
}
EXAMPLES = [
    ("topics serve", "start a server on http://127.0.0.1:4000"),
    ('topics append orders \'{"sku": "AEROPRESS"}\'', "append a record; the topic is created"),
    ("topics tail orders -f", "print the last records and all new ones"),
]
QUEUE_EXAMPLES = [
    ("topics create jobs --queue", "create a queue"),
    ('topics append jobs \'{"url": "a.png"}\'', "add a job"),
    ("topics work jobs --until-empty -- cat", "run a command for each job; it reads the payload"),
    ("topics queue stats jobs", "show how many jobs wait and run"),
]
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command named by the first argument and return its exit code.

    A reader of the output that has gone (`topics read t | head`) ends the command quietly, and so does an interrupt.
    """
    open_closed_streams()
    try:
        try:
            code = dispatch(list(sys.argv[1:] if argv is None else argv))
        finally:
            # Flushed here: an error at the end of the interpreter could only be printed.
            sys.stdout.flush()
        if argv is None and sys.argv[1:2] == ["serve"]:
            end_process(code)
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.SUCCESS
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def end_process(code: int) -> None:
    """End the process of a server that has written and closed everything.

    Freeing the objects of 100,000 topics one by one takes seconds; the kernel takes the memory back at once.
    """
    import logging

    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)


def open_closed_streams() -> None:
    """Put /dev/null in place of standard streams that are closed; Python leaves None there."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free descriptor is the missing one, so no socket gets its number later.
            found = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            if found != number:
                os.dup2(found, number)
                os.close(found)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def dispatch(arguments: list[str]) -> int:
    """Run the command that the arguments name and return its exit code."""
    if not arguments:
        print(usage(), file=sys.stderr)
        return exit_codes.USAGE
    name, *rest = arguments
    for argument in arguments:
        # Bytes of an argument that are not UTF-8 arrive as surrogates, which no request can hold.
        if not argument.isascii() and any(["\ud800" <= sign <= "\udfff" for sign in argument]):
            print(f"topics: the argument {argument!r} is not UTF-8", file=sys.stderr)
            return exit_codes.USAGE
    if name in ("-h", "--help", "help"):
        if name == "help" and rest:
            return dispatch([*rest, "--help"])
        print(usage())
        return exit_codes.SUCCESS
    if name in ("-V", "--version"):
        print(f"topics {__version__}")
        return exit_codes.SUCCESS
    if name not in COMMANDS:
        print(unknown_command(name), file=sys.stderr)
        return exit_codes.USAGE
    module_name, _ = COMMANDS[name]
    run: Callable[[list[str]], int] = import_module(module_name).run
    return run(rest)


def unknown_command(name: str) -> str:
    """The message for a command that does not exist, with those that are spelled alike."""
    from topics.cli.shared.spelling import did_you_mean

    hint = did_you_mean(name, [*COMMANDS, "--help", "--version"]) or "See: topics --help"
    return f"topics: there is no command {name!r}. {hint}"


def usage() -> str:
    """The text of `topics --help`: every command with its summary, by group."""
    width = max(map(len, COMMANDS))
    lines = ["usage: topics COMMAND [ARGUMENTS]", ""]
    for group, commands in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:<{width}}  {summary}" for name, (_, summary) in commands.items()]
        lines.append("")
    lines += [
        "examples:",
        *[f"  {line:<47} {meaning}" for line, meaning in EXAMPLES],
        "",
        "a queue with a worker:",
        *[f"  {line:<47} {meaning}" for line, meaning in QUEUE_EXAMPLES],
        '  In Python: client.worker("jobs"), see docs/python.md or help(topics.client.Worker).',
        "",
        "`topics COMMAND --help` shows the options and examples of a command; `topics --version` prints the version.",
        "The server is that of --url, TOPICS_URL, or the current context (topics login); TOPICS_TOKEN has the API key.",
        "Exit codes: 0 success, 1 wrong usage, 3 not found, 4 refused, 5 unreachable; check, repair and conformance: 10 and 11",
        "for what they found.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
