"""`topics append TOPIC [DATA ...]`: write records, from arguments or from standard input."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser, count_argument
from topics.cli.shared.batches import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, append_batches
from topics.cli.shared.connection import call
from topics.cli.shared.output import chosen_format, print_object, write_line
from topics.cli.shared.progress import Progress
from topics.client import Client, RecordIn
from topics.model.errors import InvalidRequest


def build_parser() -> Parser:
    parser = command_parser(
        "append",
        "Append records. Each argument is one payload: JSON if it is JSON, a text otherwise; what begins with { or [ must be JSON. Without arguments every line of "
        "standard input is one JSON payload, sent in batches no larger than the server accepts. The topic is created if "
        "it does not exist.",
        [
            'topics append orders \'{"sku": "AEROPRESS"}\' --tag customer-7',
            "topics append log 'one text' 'another text'",
            "topics append events < events.jsonl",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("data", nargs="*", metavar="DATA")
    parser.add_argument("--tag", help="tag of every record")
    parser.add_argument("--node", help="origin of every record")
    parser.add_argument("--partition", type=count_argument, help="partition to write to")
    parser.add_argument("--partition-key", help="key whose hash selects the partition")
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_intermixed_args(argv)

    def action(client: Client) -> int:
        total = 0
        last = None
        batches = iter([[_payload(text) for text in arguments.data]] if arguments.data else _lines())
        records = ([RecordIn(data, tag=arguments.tag) for data in batch] for batch in batches)
        with Progress(f"append to {arguments.topic}") as progress:
            for last in append_batches(
                client,
                arguments.topic,
                records,
                node=arguments.node,
                partition=arguments.partition,
                partition_key=arguments.partition_key,
            ):
                total += last.count
                progress.advance(last.count)
        if last is None:
            raise InvalidRequest("nothing to append: give payloads as arguments or lines on standard input")
        if chosen_format(arguments.output) == "table":
            write_line(f"{total} record{'' if total == 1 else 's'}, the last with seq {last.last_seq}")
        else:
            print_object({"topic": last.topic, "count": total, "last_seq": last.last_seq}, arguments.output)
        return 0

    return call(arguments, action)


def _payload(text: str) -> Any:
    try:
        return msgspec.Raw(_checked(text.encode()))
    except msgspec.MsgspecError as error:
        if text.lstrip()[:1] in ("{", "["):
            raise InvalidRequest(
                f"{text!r} begins like JSON but is not JSON: {error}. A text that begins so is written as a JSON string: "
                "'\"{...\"'"
            ) from None
        return text


def _lines() -> Iterator[list[Any]]:
    if sys.stdin.isatty():
        print("Write one JSON value a line; Ctrl-D ends.", file=sys.stderr)
    batch: list[Any] = []
    size = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.strip()
        if not text:
            continue
        try:
            batch.append(msgspec.Raw(_checked(text)))
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"line {number} is not JSON: {error}") from None
        size += len(text)
        if len(batch) >= MAX_BATCH_RECORDS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _checked(text: bytes) -> bytes:
    """The text as it is, when it is one JSON value."""
    msgspec.json.decode(text, type=msgspec.Raw)
    return text
