"""The interactive prompt of `topics sql`: history, completion, statements over several lines."""

import os
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from topics.cli.shared.connection import fail
from topics.cli.sql.sql import print_result, split_statements
from topics.client import Client
from topics.model.errors import TopicsError

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completion
    from prompt_toolkit.document import Document

KEYWORDS = [
    "ACK",
    "ADD",
    "ALTER",
    "AND",
    "ARCHIVE",
    "AS",
    "ASC",
    "BY",
    "CLEAR",
    "CONSUME",
    "CONSUMER",
    "CREATE",
    "DESC",
    "DESCRIBE",
    "DROP",
    "DRY",
    "EARLIEST",
    "EXISTS",
    "FROM",
    "GROUP",
    "GROUPS",
    "IF",
    "IN",
    "INSERT",
    "JOIN",
    "LATEST",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "PARTITION",
    "PARTITIONS",
    "RESET",
    "RETENTION",
    "RUN",
    "SELECT",
    "SET",
    "SHOW",
    "SOURCE",
    "TIMESTAMP",
    "TO",
    "TOPIC",
    "TOPICS",
    "UPTO",
    "USING",
    "WHERE",
    "WITH",
]
SYSTEM_TABLES = (
    "archives",
    "consumer_groups",
    "pipelines",
    "queues",
    "routers",
    "settings",
    "tables",
    "topic_offsets",
    "topic_routes",
    "topics",
)
MAX_COMPLETED_TOPICS = 1000
HELP = """\
End a statement with a semicolon; it may run over several lines.
  SHOW TOPICS;                                  all topics
  DESCRIBE TOPIC orders;                        one topic
  SHOW CONSUMER GROUPS ON orders;               groups and their lag
  SELECT name, count FROM system.topics;        any SELECT over the system tables
  \\d                                            the system tables
  \\q or Ctrl-D                                  leave"""


def run_prompt(client: Client, output: str | None) -> int:
    """Read and run statements until the user leaves. An error of a statement does not end the prompt."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.patch_stdout import patch_stdout

    client.health()
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history_path())),
        completer=_completer(client),
        complete_while_typing=False,
        prompt_continuation="   ...> ",
        multiline=False,
    )
    print(f"{client.url}: end statements with ;  \\? for help, \\q to leave", file=sys.stderr)
    pending = ""
    while True:
        try:
            with patch_stdout(raw=True):
                line = session.prompt("topics> " if not pending else "   ...> ")
        except KeyboardInterrupt:
            pending = ""
            continue
        except EOFError:
            return 0
        word = line.strip()
        if not pending and word.lower() in ("\\q", "quit", "exit", "quit;", "exit;"):
            return 0
        if not pending and word in ("\\?", "help", "help;"):
            print(HELP)
            continue
        if not pending and word == "\\d":
            print("\n".join([f"system.{table}" for table in SYSTEM_TABLES]))
            continue
        pending = f"{pending}\n{line}" if pending else line
        if not pending.strip():
            pending = ""
        elif pending.rstrip().endswith(";"):
            _run_all(client, pending, output)
            pending = ""


def _run_all(client: Client, text: str, output: str | None) -> None:
    try:
        for statement in split_statements(text):
            print_result(client.sql(statement), output)
    except TopicsError as error:
        fail(error)


def _history_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(base) / "topics" / "sql_history"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Statements can hold data: the file is for its owner only.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    return path


def _completer(client: Client):  # type: ignore[no-untyped-def] # its base class is imported below
    from prompt_toolkit.completion import Completer, Completion

    class SqlCompleter(Completer):
        """Keywords in the case that is typed, system tables, and the topics of the server."""

        def __init__(self) -> None:
            self._topics: list[str] | None = None

        def get_completions(self, document: "Document", complete_event: "CompleteEvent") -> Iterable["Completion"]:
            word = document.get_word_before_cursor(WORD=True)
            for choice in self._choices(word):
                yield Completion(choice, start_position=-len(word))

        def _choices(self, word: str) -> Iterable[str]:
            if self._topics is None:
                try:
                    self._topics = [topic.topic for topic in islice(client.topics(), MAX_COMPLETED_TOPICS)]
                except TopicsError:
                    self._topics = []
            keywords = [each.lower() if word[:1].islower() else each for each in KEYWORDS]
            names = [*[f"system.{table}" for table in SYSTEM_TABLES], *self._topics]
            return [each for each in [*keywords, *names] if each.startswith(word) and word]

    return SqlCompleter()
