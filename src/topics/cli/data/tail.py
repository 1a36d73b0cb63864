"""`topics tail TOPIC [-f]`: the last records of a topic, and with -f the new ones."""

from topics.cli.data.read import note_partitions
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser, count_argument
from topics.cli.shared.connection import call
from topics.cli.shared.output import RecordPrinter
from topics.client import Client, Tombstone


def build_parser() -> Parser:
    parser = command_parser(
        "tail",
        "Print the last records of a topic, one JSON object a line.",
        ["topics tail orders", "topics tail orders -n 100 --data", "topics tail orders -f -o table"],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-n", "--lines", type=count_argument, default=10, help="number of seqs to go back (default 10)")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new records until interrupted")
    parser.add_argument("--partition", type=count_argument, help="partition to read (default 0)")
    parser.add_argument("--data", action="store_true", help="only the payloads, as JSON; -o raw prints texts unquoted")
    add_output(parser, "jsonl")
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        if arguments.partition is None:
            arguments.partition = 0
            note_partitions(client, arguments.topic)
        info = client.info(arguments.topic)
        head = info.head_seq
        earliest = info.earliest_seq
        for partition in info.partitions:
            if partition.partition == arguments.partition:
                head, earliest = partition.head_seq, partition.earliest_seq
        # Not below the first record: going back further would report records as lost.
        start = max(0, head - arguments.lines, min(earliest - 1, head))
        items = client.read(arguments.topic, start, follow=arguments.follow, partition=arguments.partition or None)
        with RecordPrinter(arguments.output, data_only=arguments.data) as printer:
            for item in items:
                if isinstance(item, Tombstone):
                    printer.tombstone(item)
                else:
                    printer.record(item)
        return 0

    return call(arguments, action)
