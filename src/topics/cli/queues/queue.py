"""`topics queue stats|peek|claim|ack|nack`: queues and their jobs, by hand."""

import argparse
import os
import socket

from topics.cli.shared.arguments import (
    Parser,
    Subcommands,
    add_connection,
    add_output,
    command_parser,
    count_argument,
    duration_argument,
)
from topics.cli.shared.connection import call
from topics.cli.shared.output import RecordPrinter, print_object, print_rows
from topics.client import Client, Record
from topics.model.errors import Conflict, not_a_queue

STATS_COLUMNS = (
    "queue",
    "ready",
    "in_flight",
    "delayed",
    "dead_lettered",
    "jobs",
    "lease_ms",
    "max_deliveries",
    "dead_letter",
)
CLAIM_COLUMNS = ("seq", "lease_id", "deliveries", "deadline_ts", "tag", "data")


def build_parser() -> Parser:
    parser = command_parser(
        "queue",
        "Show queues, look at their jobs, and claim and finish jobs by hand. `topics work` runs a command for each job.",
        ["topics queue stats", "topics queue peek jobs", "topics queue claim jobs --node me --max 2"],
    )
    commands = Subcommands(parser)
    stats = commands.add(
        "stats",
        "show how many jobs are ready, leased, delayed and were given up",
        ["topics queue stats", "topics queue stats jobs"],
    )
    stats.add_argument("queue", nargs="?", metavar="QUEUE", help="only this queue (default: all)")
    add_output(stats)
    peek = commands.add(
        "peek", "print jobs without claiming them", ["topics queue peek jobs", "topics queue peek jobs -n 1 --data"]
    )
    peek.add_argument("queue", metavar="QUEUE")
    peek.add_argument("-n", "--lines", type=count_argument, default=10, help="number of jobs (default 10)")
    peek.add_argument("--partition", type=count_argument, default=0)
    peek.add_argument("--data", action="store_true", help="only the payloads")
    add_output(peek, "jsonl")
    claim = commands.add(
        "claim",
        "claim jobs: they are yours until the lease ends",
        ["topics queue claim jobs --node me", "topics queue claim jobs --node me --max 10 --lease 5m --wait 10s"],
    )
    claim.add_argument("queue", metavar="QUEUE")
    claim.add_argument("--max", type=count_argument, default=1, help="number of jobs (default 1)")
    claim.add_argument("--lease", type=duration_argument, metavar="DURATION", help="how long they are yours")
    claim.add_argument(
        "--wait", type=duration_argument, metavar="DURATION", help="how long to wait for a job; at most 30s"
    )
    add_output(claim)
    ack = commands.add("ack", "finish claimed jobs", ["topics queue ack jobs 17 18 --node me"])
    nack = commands.add("nack", "return claimed jobs to the queue", ["topics queue nack jobs 17 --node me --delay 1m"])
    nack.add_argument(
        "--delay", type=duration_argument, default=0, metavar="DURATION", help="before they are delivered again"
    )
    for each in (ack, nack):
        each.add_argument("queue", metavar="QUEUE")
        each.add_argument("seqs", nargs="+", type=count_argument, metavar="SEQ")
        add_output(each)
    for each in (claim, ack, nack):
        each.add_argument("--node", default=default_node(), help="name of the worker (default: user and host)")
        each.add_argument("--partition", type=count_argument, help="partition of the jobs")
    add_connection(stats, peek, claim, ack, nack)
    return parser


def default_node() -> str:
    return f"{os.environ.get('USER') or 'topics'}@{socket.gethostname()}"


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    actions = {"stats": _stats, "peek": _peek, "claim": _claim, "ack": _settle, "nack": _settle}
    return call(arguments, lambda client: actions[arguments.command](client, arguments))


def _stats(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.queue is not None:
        names = [arguments.queue]
    else:
        names = [name for name, _ in client.sql("SELECT topic_id, ready FROM system.queues ORDER BY topic_id").rows]
    rows = []
    for name in names:
        info = client.info(name, touch=False)
        if info.queue is None:
            raise not_a_queue(name)
        counts, config = info.queue, info.config
        rows.append(
            [
                info.topic,
                counts.ready,
                counts.in_flight,
                # Returned with a delay that has not passed yet.
                max(0, info.count - counts.ready - counts.in_flight),
                counts.dead_lettered,
                info.count,
                config["lease_ms"],
                config["max_deliveries"],
                config["dead_letter"],
            ]
        )
    print_rows(STATS_COLUMNS, rows, arguments.output)
    return 0


def _peek(client: Client, arguments: argparse.Namespace) -> int:
    if client.info(arguments.queue, touch=False).queue is None:
        raise not_a_queue(arguments.queue)
    left = arguments.lines
    with RecordPrinter(arguments.output, data_only=arguments.data) as printer:
        for item in client.read(arguments.queue, limit=max(1, min(left, 1000)), partition=arguments.partition or None):
            if left <= 0:
                break
            # Acked jobs leave gaps, which are no loss.
            if isinstance(item, Record):
                printer.record(item)
                left -= 1
    return 0


def _claim(client: Client, arguments: argparse.Namespace) -> int:
    got = client.claim(
        arguments.queue,
        arguments.node,
        arguments.max,
        lease_ms=arguments.lease,
        wait_ms=arguments.wait,
        partition=arguments.partition,
    )
    rows = [[job.seq, job.lease_id, job.deliveries, job.deadline, job.tag, job.data] for job in got.claimed]
    print_rows(CLAIM_COLUMNS, rows, arguments.output)
    return 0


def _settle(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.command == "ack":
        acked = client.ack(arguments.queue, arguments.node, arguments.seqs, partition=arguments.partition)
        count, skipped = acked.acked, acked.skipped
    else:
        nacked = client.nack(
            arguments.queue, arguments.node, arguments.seqs, delay_ms=arguments.delay, partition=arguments.partition
        )
        count, skipped = nacked.nacked, nacked.skipped
    print_object({f"{arguments.command}ed": count, "skipped": skipped}, arguments.output)
    if skipped:
        jobs = ", ".join(map(str, skipped))
        raise Conflict(f"{arguments.node} holds no lease of {jobs}; claim with the same --node", code="lease_lost")
    return 0
