"""`topics completion bash|zsh|fish`: completion of commands, options, topics and contexts.

The scripts are short: they call `topics completion words`, which reads the parser of the command that is being typed.
"""

import argparse
from collections.abc import Iterable
from importlib import import_module
from itertools import islice

from topics.cli.shared.arguments import Parser, Subcommands, actions, command_parser, subparsers

SCRIPTS = {
    "bash": """\
_topics_words() {
    local IFS=$'\\n'
    COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}
    COMPREPLY=($(topics completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _topics_words topics
""",
    "zsh": """\
#compdef topics
_topics_words() {
    local -a found
    found=(${(f)"$(topics completion words -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _topics_words topics
""",
    "fish": """\
function __topics_words
    set -l typed (commandline -opc) (commandline -ct)
    topics completion words -- $typed[2..-1] 2>/dev/null
end
complete -c topics -a '(__topics_words)'
""",
}
# Arguments that are topics, by the name that help texts give them.
TOPIC_NAMES = ("TOPIC", "QUEUE", "SOURCE", "DEST")
MAX_TOPICS = 500
# A prompt must not wait long for a server that does not answer.
TIMEOUT_S = 1.0


def build_parser() -> Parser:
    parser = command_parser(
        "completion",
        "Print a script that completes commands, options, topics and contexts.",
        [
            "source <(topics completion bash)                                    # in ~/.bashrc",
            "source <(topics completion zsh)                                     # in ~/.zshrc",
            "topics completion fish > ~/.config/fish/completions/topics.fish",
        ],
    )
    commands = Subcommands(parser)
    for shell in SCRIPTS:
        commands.add(shell, f"print the script for {shell}", [f"topics completion {shell}"])
    words = commands.add(
        "words", "print the words that can follow; the scripts call this", ["topics completion words -- queue ''"]
    )
    words.add_argument("typed", nargs="*", metavar="WORD", help="the words after `topics`, the last one unfinished")
    return parser


def run(argv: list[str]) -> int:
    if argv[:1] == ["words"] and argv[1:] and argv[1] == "--":
        print("\n".join(complete(argv[2:])))
        return 0
    arguments = build_parser().parse_args(argv)
    if arguments.command == "words":
        print("\n".join(complete(arguments.typed)))
    else:
        print(SCRIPTS[arguments.command], end="")
    return 0


def complete(typed: list[str]) -> list[str]:
    """The words that can replace the last one of `typed`."""
    from topics.cli.main import COMMANDS

    *before, last = typed or [""]
    if not before:
        return _starting_with(last, [*COMMANDS, "--help", "--version"])
    if before[0] not in COMMANDS:
        return []
    parser: argparse.ArgumentParser = import_module(COMMANDS[before[0]][0]).build_parser()
    rest = before[1:]
    while rest and (below := subparsers(parser)):
        parser, rest = below.get(rest[0], parser), rest[1:]
    return _starting_with(last, _choices(parser, rest, last))


def _choices(parser: argparse.ArgumentParser, before: list[str], last: str) -> Iterable[str]:
    options = {option: action for action in actions(parser) for option in action.option_strings}
    if before and before[-1] in options and options[before[-1]].nargs != 0:
        return _values(options[before[-1]], last)
    if last.startswith("-"):
        return options
    if below := subparsers(parser):
        return below
    position = len([word for index, word in enumerate(before) if _is_positional(word, before[:index], options)])
    positionals = [action for action in actions(parser) if not action.option_strings]
    if not positionals:
        return []
    return _values(positionals[min(position, len(positionals) - 1)], last)


def _is_positional(word: str, before: list[str], options: dict[str, argparse.Action]) -> bool:
    follows_option = bool(before) and before[-1] in options and options[before[-1]].nargs != 0
    return not word.startswith("-") and not follows_option


def _values(action: argparse.Action, last: str) -> Iterable[str]:
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if action.metavar in TOPIC_NAMES or action.dest == "prefix":
        return _topics(last)
    if action.metavar == "CONTEXT" or action.dest == "context":
        from topics.cli.shared.contexts import load_contexts

        return load_contexts().contexts
    return []


def _topics(prefix: str) -> list[str]:
    from topics.cli.shared.connection import transport
    from topics.cli.shared.contexts import find_address
    from topics.client import Client, RetryPolicy
    from topics.model.errors import TopicsError

    try:
        url, token, context = find_address(None, None, None)
        reach = transport(None, context)
        with Client(url, token, timeout_s=TIMEOUT_S, retry=RetryPolicy(attempts=1), **reach) as client:
            return [topic.topic for topic in islice(client.topics(prefix), MAX_TOPICS)]
    except TopicsError:
        return []


def _starting_with(prefix: str, words: Iterable[str]) -> list[str]:
    return sorted([word for word in words if word.startswith(prefix)])
