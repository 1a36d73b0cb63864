"""`topics export TOPIC FILE`: the records of a topic as JSON lines or Parquet."""

from topics.cli.files.formats import FORMATS, Export
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser, time_argument
from topics.cli.shared.connection import call
from topics.cli.shared.output import chosen_format, loss_text, print_object, write_line
from topics.cli.shared.progress import Progress
from topics.client import Client, Tombstone


def build_parser() -> Parser:
    parser = command_parser(
        "export",
        "Write the records of all partitions of a topic to a file: JSON lines (.jsonl) or Parquet (.parquet). - writes JSON "
        "lines to standard output. The file appears when it is complete. `topics import` reads both. -o is the format of the summary.",
        [
            "topics export orders orders.jsonl",
            "topics export orders orders.parquet --from -7d",
            "topics export orders - | gzip > orders.jsonl.gz",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--format", choices=FORMATS, help="format, if the name of the file does not tell it")
    parser.add_argument("--from", dest="from_ts", type=time_argument, metavar="TIME", help="records from this time on")
    parser.add_argument("--to", dest="to_ts", type=time_argument, metavar="TIME", help="records before this time")
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    import sys

    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        info = client.info(arguments.topic, touch=False)
        partitions = [each.partition for each in info.partitions] or [0]
        total = None if arguments.from_ts or arguments.to_ts else info.count
        count = 0
        several = len(partitions) > 1
        progress = Progress(f"export {arguments.topic}", total)
        with Export(arguments.file, arguments.format, with_partition=several) as export, progress:
            for partition in partitions:
                for item in client.read(info.topic, from_ts=arguments.from_ts, partition=partition or None):
                    if isinstance(item, Tombstone):
                        print(f"topics: {loss_text(item)}", file=sys.stderr)
                        continue
                    if arguments.to_ts is not None and item.ts >= arguments.to_ts:
                        break
                    export.write(partition, item)
                    count += 1
                    progress.advance()
        if arguments.file != "-":
            if chosen_format(arguments.output) == "table":
                write_line(f"{count} records of {info.topic} in {arguments.file}")
            else:
                fields = {"topic": info.topic, "file": arguments.file, "count": count}
                print_object(fields, arguments.output)
        return 0

    return call(arguments, action)
