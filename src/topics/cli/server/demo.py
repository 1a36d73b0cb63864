"""`topics demo`: a server with sample topics, a queue with a worker, and a consumer group; then the console's address."""

import argparse
import random
import signal
import sys
import threading
import time
from contextlib import nullcontext

from topics.cli.shared.arguments import Parser, command_parser
from topics.cli.shared.connection import fail
from topics.cli.shared.output import write_line
from topics.cli.shared.temporary_server import temporary_server
from topics.client import Client, RecordIn
from topics.model.errors import TopicsError

PRODUCTS = ("AEROPRESS", "FILTERS", "GRINDER", "KETTLE", "SCALE")
LINES = ("good morning", "the build is green", "lunch?", "works on my machine", "who has seen the slides?")
WRITE_INTERVAL_S = 0.5
WORK_S = 0.2


def build_parser() -> Parser:
    parser = command_parser(
        "demo",
        "Start a server in a temporary directory, write sample records to demo.orders and demo.chat twice a second, run a worker "
        "on the queue demo.jobs and a consumer group on demo.orders, and print the address of the console. Ctrl-C ends it and "
        "removes everything. `make demo` shows the pipeline on Spark.",
        ["topics demo", "topics demo --open", "topics demo --url http://127.0.0.1:4000 --seconds 60"],
    )
    parser.add_argument("--port", type=int, default=4000, help="port of the server; 0 for a free one (default 4000)")
    parser.add_argument("--url", help="write to this server instead of starting one; the demo.* topics stay there")
    parser.add_argument("--token", help="API key or token for --url (default: TOPICS_TOKEN)")
    parser.add_argument("--open", action="store_true", help="open the console in a browser")
    parser.add_argument("--seconds", type=float, help="time after which to end (default: until Ctrl-C)")
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    stop = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server = nullcontext(arguments.url) if arguments.url else temporary_server(arguments.port)
        with server as url, Client(url, arguments.token) as client:
            return _demo(client, arguments, stop)
    except TopicsError as error:
        return fail(error)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _demo(client: Client, arguments: argparse.Namespace, stop: threading.Event) -> int:
    client.create("demo.jobs", type="queue", max_deliveries=5, dead_letter="demo.jobs.dead", lease_ms=10_000)
    client.create("demo.orders")
    client.create("demo.chat")
    errors: list[TopicsError] = []

    def in_thread(step: "Step") -> threading.Thread:
        def repeat() -> None:
            try:
                while not stop.is_set():
                    step.run(client, stop)
            except TopicsError as error:
                errors.append(error)
                stop.set()

        return threading.Thread(target=repeat, daemon=True)

    steps = [Writer(), Worker(), Group()]
    threads = [in_thread(step) for step in steps]
    for thread in threads:
        thread.start()
    _introduce(client.url, arguments.open)
    stop.wait(arguments.seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    write_line(", ".join([step.summary() for step in steps]))
    return 0


def _introduce(url: str, open_browser: bool) -> None:
    write_line(f"console: {url}/")
    if sys.stdout.isatty():
        write_line("")
        write_line("In another terminal:")
        address = "" if url == "http://127.0.0.1:4000" else f"TOPICS_URL={url} "
        for command in ("tail demo.orders -f", "watch --prefix demo.", "queue stats demo.jobs", "group ls", "top"):
            write_line(f"  {address}topics {command}")
        write_line("")
        write_line("Ctrl-C ends it.")
    if open_browser:
        import webbrowser

        webbrowser.open(f"{url}/")


class Step:
    """One part of the demo, run again and again by a thread of its own."""

    def __init__(self) -> None:
        self.count = 0

    def run(self, client: Client, stop: threading.Event) -> None:
        raise NotImplementedError

    def summary(self) -> str:
        raise NotImplementedError


class Writer(Step):
    """Orders and chat lines; every order is a job as well."""

    def run(self, client: Client, stop: threading.Event) -> None:
        self.count += 1
        order = {"order": self.count, "sku": random.choice(PRODUCTS), "quantity": random.randint(1, 5)}
        client.append("demo.orders", [RecordIn(order, tag=f"customer-{random.randint(1, 9)}")])
        client.append("demo.jobs", [{"pack": order["order"]}])
        client.append("demo.chat", [{"author": random.choice(("ada", "grace", "linus")), "text": random.choice(LINES)}])
        stop.wait(WRITE_INTERVAL_S)

    def summary(self) -> str:
        return f"{self.count} orders written"


class Worker(Step):
    """Finishes jobs; one in ten fails at first and is delivered again."""

    def run(self, client: Client, stop: threading.Event) -> None:
        for job in client.claim("demo.jobs", "demo-worker", 1, wait_ms=500).claimed:
            stop.wait(WORK_S)
            if job.deliveries == 1 and job.seq % 10 == 0:
                client.nack("demo.jobs", "demo-worker", [job.seq], delay_ms=2000, lease_ids=[job.lease_id])
            else:
                client.ack("demo.jobs", "demo-worker", [job.seq], lease_ids=[job.lease_id])
                self.count += 1

    def summary(self) -> str:
        return f"{self.count} jobs done"


class Group(Step):
    """The consumer group `billing` of the orders, which is always a little behind."""

    def run(self, client: Client, stop: threading.Event) -> None:
        got = client.consume("demo.orders", "billing", limit=10, timeout_seconds=1)
        if got.messages:
            client.ack_group("demo.orders", "billing", got.messages[-1].offset)
            self.count += len(got.messages)
        stop.wait(1.0)

    def summary(self) -> str:
        return f"{self.count} messages billed at {time.strftime('%H:%M:%S')}"
