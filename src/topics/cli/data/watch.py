"""`topics watch TOPIC... --prefix PREFIX`: follow several topics at once, also those that are created later."""

import threading
from queue import SimpleQueue
from typing import Any

from topics.cli.data.read import note_partitions
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser, count_argument
from topics.cli.shared.connection import call, connect
from topics.cli.shared.output import RecordPrinter
from topics.client import Client, TopicDeleted, WatchedRecord, WatchedTombstone
from topics.model.errors import InvalidRequest, TopicsError

# How often new topics with the prefixes are looked for.
LIST_INTERVAL_S = 1.0
# Topics of one session: the default limit of a server.
MAX_SESSION_TOPICS = 256


def build_parser() -> Parser:
    parser = command_parser(
        "watch",
        "Print the new records of several topics as they are written, each with its topic. With --prefix also the records of "
        "topics that are created later. Lost connections are resumed without a gap.",
        [
            "topics watch orders payments",
            "topics watch --prefix chat. --prefix alerts. -o table",
            "topics watch orders --all --limit 5",
        ],
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument(
        "--prefix", action="append", default=[], help="all topics whose name begins with this; repeatable"
    )
    parser.add_argument("--all", action="store_true", help="begin with the records that the topics hold now")
    parser.add_argument("--partition", type=count_argument, help="partition of each topic to follow (default 0)")
    parser.add_argument("--limit", type=count_argument, help="number of records after which to stop")
    parser.add_argument("--data", action="store_true", help="only the payloads")
    add_output(parser, "jsonl")
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_intermixed_args(argv)

    def action(client: Client) -> int:
        if not arguments.topics and not arguments.prefix:
            raise InvalidRequest("name topics, or prefixes with --prefix")
        if arguments.partition is None:
            for topic in arguments.topics:
                note_partitions(client, topic)
        watches = Watches(lambda: connect(arguments), arguments.partition or 0)
        watches.add(arguments.topics, tail=not arguments.all)
        if arguments.prefix:
            watches.add(_matching(client, arguments.prefix), tail=not arguments.all)
            watches.follow_prefixes(client, arguments.prefix)
        with RecordPrinter(arguments.output, data_only=arguments.data, with_topic=True) as printer:
            _print_all(watches, printer, arguments.limit)
        return 0

    return call(arguments, action)


def _print_all(watches: "Watches", printer: RecordPrinter, limit: int | None) -> None:
    count = 0
    while limit is None or count < limit:
        item = watches.items.get()
        if isinstance(item, TopicsError):
            raise item
        if isinstance(item, WatchedRecord):
            printer.record(item.record, item.topic)
            count += 1
        elif isinstance(item, WatchedTombstone):
            printer.tombstone(item.tombstone, item.topic)
        elif isinstance(item, TopicDeleted):
            watches.forget(item.topic)


def _matching(client: Client, prefixes: list[str]) -> list[str]:
    return [topic.topic for prefix in prefixes for topic in client.topics(prefix)]


class Watches:
    """Watch sessions, each read by a thread; what they deliver comes out of `items`, errors included."""

    def __init__(self, connect: Any, partition: int) -> None:
        self.items: SimpleQueue[Any] = SimpleQueue()
        self._connect = connect
        self._partition = partition
        self._known: set[str] = set()

    def add(self, topics: list[str], *, tail: bool) -> None:
        """Watch those of the topics that are not watched yet: from their end, or from their beginning."""
        new = [topic for topic in dict.fromkeys(topics) if topic not in self._known]
        self._known.update(new)
        for start in range(0, len(new), MAX_SESSION_TOPICS):
            session = new[start : start + MAX_SESSION_TOPICS]
            threading.Thread(target=self._deliver, args=(session, tail), daemon=True).start()

    def forget(self, topic: str) -> None:
        """A deleted topic may be created again."""
        self._known.discard(topic)

    def follow_prefixes(self, client: Client, prefixes: list[str]) -> None:
        """Watch topics that are created later, from their beginning."""

        def look() -> None:
            while True:
                wait.wait(LIST_INTERVAL_S)
                try:
                    self.add(_matching(client, prefixes), tail=False)
                except TopicsError as error:
                    self.items.put(error)
                    return

        wait = threading.Event()
        threading.Thread(target=look, daemon=True).start()

    def _deliver(self, topics: list[str], tail: bool) -> None:
        try:
            with self._connect() as client:
                start = {"tail": True} if tail else {"from_seq": 0}
                starts = {topic: {**start, "partition": self._partition} for topic in topics}
                for item in client.watch(starts, include_tags=True):
                    self.items.put(item)
        except TopicsError as error:
            self.items.put(error)
