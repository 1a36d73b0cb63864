"""`topics append TOPIC [DATA ...]`: write records, from arguments or from standard input."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from topics.cli.calling import call, for_people, parser_for, print_line
from topics.client import Client
from topics.client.calls import RecordIn
from topics.model.errors import InvalidRequest

BATCH_RECORDS = 1000
BATCH_BYTES = 1 << 20


def run(argv: list[str]) -> int:
    parser = parser_for(
        "append",
        "Append records. Each argument is one payload: JSON if it is JSON, a string otherwise. Without arguments every "
        "line of standard input is one JSON payload, sent in batches.",
    )
    parser.add_argument("topic")
    parser.add_argument("data", nargs="*")
    parser.add_argument("--tag", help="tag of every record")
    parser.add_argument("--node", help="origin of every record")
    parser.add_argument("--partition", type=int, help="the partition they go to")
    parser.add_argument("--partition-key", help="the key whose hash names the partition")
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        total = 0
        last = None
        batches = [[_payload(text) for text in arguments.data]] if arguments.data else _lines()
        for batch in batches:
            last = client.append(
                arguments.topic,
                [RecordIn(data, tag=arguments.tag) for data in batch],
                node=arguments.node,
                partition=arguments.partition,
                partition_key=arguments.partition_key,
                return_seqs=False,
            )
            total += last.count
        if last is None:
            raise InvalidRequest("nothing to append: give payloads as arguments or lines on standard input")
        if for_people():
            print(f"{total} records, the last with seq {last.last_seq}")
        else:
            print_line({"topic": last.topic, "count": total, "last_seq": last.last_seq})
        return 0

    return call(arguments, action)


def _payload(text: str) -> Any:
    try:
        return msgspec.Raw(_checked(text.encode()))
    except msgspec.MsgspecError:
        return text


def _lines() -> Iterator[list[Any]]:
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
        if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _checked(text: bytes) -> bytes:
    """The text as it is, when it is one JSON value."""
    msgspec.json.decode(text, type=msgspec.Raw)
    return text
