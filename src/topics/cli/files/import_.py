"""`topics import TOPIC FILE`: append the records of a JSONL or Parquet file."""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice

from topics.cli.files.formats import FORMATS, read_file
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser, count_argument
from topics.cli.shared.batches import MAX_BATCH_RECORDS, append_batches
from topics.cli.shared.connection import call
from topics.cli.shared.output import chosen_format, print_object, write_line
from topics.cli.shared.progress import Progress
from topics.client import Client, RecordIn
from topics.model.errors import Forbidden, InvalidRequest, NotFound, TopicsError


def build_parser() -> Parser:
    parser = command_parser(
        "import",
        "Append the records of a file that `topics export` wrote, in its order and to the same partitions. Tags, nodes and "
        "meta are kept; seqs and times are new. - reads JSON lines from standard input.\n\nAfter an error the message says "
        "how many records were written: --skip continues behind them. -o is the format of the summary.",
        [
            "topics import orders orders.jsonl",
            "topics import orders.copy orders.parquet",
            "topics import events events.jsonl --payloads",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--format", choices=FORMATS, help="format, if the name of the file does not tell it")
    parser.add_argument("--payloads", action="store_true", help="each JSON line is a payload, not a record")
    parser.add_argument(
        "--skip", type=count_argument, default=0, metavar="COUNT", help="records at the beginning to leave out"
    )
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    written = arguments.skip

    def action(client: Client) -> int:
        nonlocal written
        _create_partitions(client, arguments)
        records = islice(read_file(arguments.file, arguments.format, payloads=arguments.payloads), arguments.skip, None)
        with Progress(f"import to {arguments.topic}") as progress:
            try:
                for partition, batch in _batches(records):
                    for appended in append_batches(client, arguments.topic, [batch], partition=partition or None):
                        written += appended.count
                        progress.advance(appended.count)
            except TopicsError:
                if not written:
                    raise
                print(
                    f"topics: {written} records were written; --skip {written} continues behind them", file=sys.stderr
                )
                raise
        count = written - arguments.skip
        if chosen_format(arguments.output) == "table":
            write_line(f"{count} records of {arguments.file} in {arguments.topic}")
        else:
            print_object({"topic": arguments.topic, "file": arguments.file, "count": count}, arguments.output)
        return 0

    return call(arguments, action)


def _create_partitions(client: Client, arguments: argparse.Namespace) -> None:
    """Create a missing topic with the partitions that the file names. Standard input cannot be read twice."""
    if arguments.file == "-" or arguments.payloads:
        return
    try:
        client.info(arguments.topic, touch=False)
        return
    except NotFound:
        pass
    partitions = 1
    try:
        for partition, _ in read_file(arguments.file, arguments.format, payloads=False):
            partitions = max(partitions, partition + 1)
    except InvalidRequest:
        # The import reports the bad line, after the records before it.
        pass
    if partitions == 1:
        return
    try:
        client.create(arguments.topic, partitions=partitions)
    except Forbidden as error:
        message = f"{error}; create it first: topics create {arguments.topic} --partitions {partitions}"
        raise Forbidden(message, code=error.code) from None


def _batches(records: Iterator[tuple[int, RecordIn]]) -> Iterator[tuple[int, list[RecordIn]]]:
    """Records that follow each other in one partition, together."""
    batch: list[RecordIn] = []
    current = 0
    for partition, record in records:
        if batch and (partition != current or len(batch) >= MAX_BATCH_RECORDS):
            yield current, batch
            batch = []
        current = partition
        batch.append(record)
    if batch:
        yield current, batch
