"""`topics tail TOPIC [-f]`: the last records of a topic, and with -f those that come."""

from topics.cli.calling import call, parser_for
from topics.cli.read import show
from topics.client import Client


def run(argv: list[str]) -> int:
    parser = parser_for("tail", "Print the last records of a topic, one JSON object a line.")
    parser.add_argument("topic")
    parser.add_argument("-n", "--lines", type=int, default=10, help="how many seqs to go back (default 10)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new records until interrupted")
    parser.add_argument("--partition", type=int, default=0)
    parser.add_argument("--data", action="store_true", help="only the payloads")
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        info = client.info(arguments.topic)
        head = info.head_seq
        earliest = info.earliest_seq
        for partition in info.partitions:
            if partition.partition == arguments.partition:
                head, earliest = partition.head_seq, partition.earliest_seq
        # Not below what is there: going back further is no loss that anybody has to be told of.
        start = max(0, head - arguments.lines, min(earliest - 1, head))
        for item in client.read(arguments.topic, start, follow=arguments.follow, partition=arguments.partition or None):
            show(item, arguments.data)
        return 0

    return call(arguments, action)
