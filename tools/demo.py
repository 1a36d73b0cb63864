"""`make demo`: a chat from its table to its readers and into an archive, all on this machine.

    PostgreSQL (or pushed changes) -> change topic -> routes on Spark -> topics -> consumer groups
                                                                      \\-> a Delta table, queried with SQL
    a Delta table with prices ----/

Everything lives in one temporary directory and in processes of this one; both are gone when it ends, also with Ctrl-C.
"""

import base64
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from topics.client import Client, ServerUnreachable
from topics.model.errors import NotFound, TopicsError
from topics.spark.pipeline.session import NoSpark, require_spark

# A wait fails when nothing has moved for this long: a loaded machine is slow, but it moves.
MAX_STALL_SECONDS = 60
# A wait fails after this time in any case.
MAX_WAIT_SECONDS = 900
# How often a wait prints what it waits for.
NOTICE_SECONDS = 5
TOPICS = [sys.executable, "-m", "topics.cli.main"]
PEOPLE = ("ada", "grace", "linus", "barbara", "edsger")
ROOMS = {1: "general", 2: "databases", 3: "coffee"}
LINES = ("good morning", "where are the slides?", "the build is green", "lunch?", "works on my machine")
ROUTES = (
    "ALTER TOPIC chat.new ADD SOURCE chat.messages ON INSERT WHERE (visible = true) PARTITION BY (author) "
    "WITH (payload = 'full', key = 'id', start = 'earliest')",
    "ALTER TOPIC chat.edits ADD SOURCE chat.messages ON UPDATE WITH (payload = 'diff', key = 'id')",
    "ALTER TOPIC chat.gone ADD SOURCE chat.messages ON DELETE WITH (payload = 'key', key = 'id')",
    "ALTER TOPIC shop.cheaper ADD SOURCE lake.prices ON UPDATE WHERE (cents < 400) WITH (payload = 'diff', key = 'sku')",
)


def main() -> int:
    started = time.monotonic()
    try:
        require_spark()
    except NoSpark as missing:
        print(f"the demo cannot start: {missing}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="topics-demo-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            run(stack, directory)
        except KeyboardInterrupt:
            print("\nstopped")
            return 1
        except Failed as failure:
            print(f"\nthe demo failed: {failure}", file=sys.stderr)
            return 1
    say(f"\n{bold('Done')} in {time.monotonic() - started:.0f} seconds. Nothing is left running, {directory} is gone.")
    return 0


def run(stack: ExitStack, directory: Path) -> None:
    client = start_server(stack, directory)
    chat = start_chat(stack, directory, client)
    prices = make_prices(directory, client)
    make_topics(client, directory)
    pipeline = start_pipeline(stack, directory, client)
    talk(client, chat, prices, pipeline)
    read(client)
    measure(client, chat, pipeline)
    query_archive(client, pipeline)
    stop_pipeline(client, pipeline)


# The parts, in the order in which they run


def start_server(stack: ExitStack, directory: Path) -> Client:
    step("A server")
    port_file = directory / "port"
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_DATA_DIR": str(directory / "data"),
        "TOPICS_LOG_LEVEL": "warning",
    }
    server = start(stack, directory, "server", [*TOPICS, "serve"], environment)
    wait_until(port_file.exists, "the server to write its port", server)
    client = stack.enter_context(Client(f"http://{port_file.read_text().strip()}"))
    wait_until(lambda: is_ready(client), "the server to be ready", server)
    say(f"topics serve: {client.url}, data in {directory / 'data'}")
    return client


class Chat:
    """The table `chat.messages`, wherever it is. `written` are the ids of all messages there ever were."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def write(self, messages: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    def edit(self, number: int, text: str) -> None:
        raise NotImplementedError

    def remove(self, number: int) -> None:
        raise NotImplementedError


def start_chat(stack: ExitStack, directory: Path, client: Client) -> Chat:
    step("A table with a chat in it")
    programs = postgres_programs()
    if programs is None:
        say(
            "There is no PostgreSQL here, so the changes of the table are sent to POST /api/tables/chat.messages/changes."
        )
        client.put_table("chat.messages", "push", key_columns=["id"])
        return PushedChat(client)
    dsn = start_postgres(stack, programs)
    chat = PostgresChat(stack, dsn)
    chat.write([message(number) for number in range(1, 11)])
    client.put_table("chat.messages", "postgres", dsn, key_columns=["id"])
    command = [*TOPICS, "capture", "postgres", "--dsn", dsn, "--table", "chat.messages", "--url", str(client.url)]
    capture = start(stack, directory, "capture", command)
    wait_for_records(client, "changes:chat.messages", 10, capture)
    say("PostgreSQL has chat.messages with 10 rows; `topics capture postgres` sent them as a snapshot and follows.")
    show(first(client, "changes:chat.messages"))
    return chat


def make_prices(directory: Path, client: Client) -> Any:
    """A Delta table with a change data feed."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    uri = str(directory / "lake" / "prices")
    rows = pa.table({"sku": ["filter", "beans", "cup"], "cents": pa.array([450, 1290, 800], pa.int64())})
    write_deltalake(uri, rows, configuration={"delta.enableChangeDataFeed": "true"})
    client.put_table("lake.prices", "delta", uri, key_columns=["sku"])
    say("A Delta table lake.prices is registered as well: topics table add lake.prices --delta URI --key sku")
    return lambda: DeltaTable(uri).update(updates={"cents": "cents / 2"}, predicate="sku <> 'cup'")


def make_topics(client: Client, directory: Path) -> None:
    step("Topics, and which changes belong in them")
    client.create("chat.new", partitions=3)
    for topic in ("chat.edits", "chat.gone", "shop.cheaper"):
        client.create(topic)
    archive = f"ALTER TOPIC chat.new SET ARCHIVE WITH (uri = '{directory / 'lake' / 'chat'}', freshness_ms = 1000)"
    for statement in (*ROUTES, archive):
        client.sql(statement)
        say(f"  {bold(statement)}")


def start_pipeline(stack: ExitStack, directory: Path, client: Client) -> "Process":
    step("The pipeline on Spark")
    command = [*TOPICS, "pipeline", "run", "--url", str(client.url), "--name", "demo", "--master", "local[2]"]
    say("topics pipeline run --checkpoint DIR --master local[2]   (Spark takes some seconds to start)")
    pipeline = start(stack, directory, "pipeline", [*command, "--checkpoint", str(directory / "checkpoint")])
    begun = time.monotonic()
    wait_until(
        lambda: jobs_running(client) >= 5, "five jobs to run", pipeline, progress=lambda: f"{jobs_running(client)} run"
    )
    # Only what changes after the snapshot of the lake table is an update.
    wait_for_records(client, "changes:lake.prices", 3, pipeline)
    say(f"running after {time.monotonic() - begun:.0f} s: {', '.join(sorted(job_names(client)))}")
    return pipeline


def talk(client: Client, chat: Chat, prices: Callable[[], object], pipeline: "Process") -> None:
    step("People talk")
    chat.write([message(number) for number in range(11, 201)])
    for number in (12, 34, 56):
        chat.edit(number, "never mind")
    chat.remove(99)
    prices()
    say("190 messages (every tenth is hidden), 3 edits, 1 deletion; and beans and filters at half price in the lake.")
    shown = len([number for number in chat.written if message(number)["visible"]])
    for topic, wanted in (("chat.new", shown), ("chat.edits", 3), ("chat.gone", 1), ("shop.cheaper", 1)):
        wait_for_records(client, topic, wanted, pipeline)
        say(f"  {topic}: {count(client, topic)} records")
    say("An edit, a deletion and a price as their topics have them:")
    for topic in ("chat.edits", "chat.gone", "shop.cheaper"):
        show(first(client, topic))


def read(client: Client) -> None:
    step("Two consumer groups read")
    total = count(client, "chat.new")
    for group, members in (("search-index", ("one", "two")), ("notify", ("alone",))):
        read_by: Counter[str] = Counter()
        partitions: dict[str, set[int]] = {member: set() for member in members}
        stall = Stall(f"group {group} to read {total} messages")
        while sum(read_by.values()) < total:
            stall.check(f"{sum(read_by.values())} read")
            for member in members:
                got = client.consume("chat.new", group, start="earliest", limit=50, consumer=member, timeout_seconds=1)
                for each in got.messages:
                    read_by[member] += 1
                    partitions[member].add(each.partition_id)
                for partition in {each.partition_id for each in got.messages}:
                    last = max([each.offset for each in got.messages if each.partition_id == partition])
                    client.ack_group("chat.new", group, last, partition=partition, consumer=member)
        shares = [f"{member} {read_by[member]} (partitions {sorted(partitions[member])})" for member in members]
        say(f"  {group}: {', '.join(shares)}: {sum(read_by.values())} of {total}, each message once")


def measure(client: Client, chat: Chat, pipeline: "Process") -> None:
    step("How long a message takes")
    times = []
    for number in range(1001, 1006):
        begun = time.monotonic()
        chat.write([{**message(number), "room": 1, "visible": True}])
        wait_until(partial(has_arrived, client, number), f"message {number} at its reader", pipeline, pause_s=0)
        times.append(1000 * (time.monotonic() - begun))
    say(f"from the insert into the table to its reader: {', '.join([f'{each:.0f} ms' for each in times])}")


def has_arrived(client: Client, number: int) -> bool:
    """Wait up to a second for messages of the group, acknowledge them; whether this one is among them."""
    got = client.consume("chat.new", "notify", limit=10, consumer="alone", timeout_seconds=1)
    for each in got.messages:
        client.ack_group("chat.new", "notify", each.offset, partition=each.partition_id, consumer="alone")
    rows = [json.loads(base64.b64decode(each.payload)) for each in got.messages]
    return any([number in json_numbers(row) for row in rows])


def query_archive(client: Client, pipeline: "Process") -> None:
    step("The archive, with SQL")
    import duckdb
    from deltalake import DeltaTable

    total = count(client, "chat.new")

    def archived() -> int:
        found = client.archive("chat.new")
        return 0 if found is None else sum([each.next_seq - 1 for each in found.archived])

    wait_until(
        lambda: archived() >= total,
        f"{total} records in the archive",
        pipeline,
        progress=lambda: f"{archived()} archived",
    )
    found = client.archive("chat.new")
    assert found is not None
    history = DeltaTable(found.uri).to_pyarrow_dataset()
    query = """
        SELECT json_extract_string(data, '$.author') AS author, count(*) AS messages, max(seq) AS newest
        FROM history GROUP BY author ORDER BY messages DESC, author
    """
    say(f"{archived()} records in {found.uri}, table version {found.table_version}. DuckDB says:")
    connection = duckdb.connect()
    connection.register("history", history)
    rows = connection.execute(query).fetchall()
    for author, messages, newest in rows:
        say(f"  {author!s:10} {messages:4} messages, newest seq {newest}")
    if sum([row[1] for row in rows]) != total:
        raise Failed(f"the archive has {sum([row[1] for row in rows])} records of {total}")


def stop_pipeline(client: Client, pipeline: "Process") -> None:
    step("Status, and the end")
    result = client.sql("SELECT job, job_state, rows, lag_records, batch_ms FROM system.pipelines ORDER BY job")
    for job, state, rows, lag, batch_ms in result.rows:
        say(
            f"  {job:24} {state:8} {rows or 0:6} rows, lag {lag if lag is not None else '-'}, batch {batch_ms or 0:.0f} ms"
        )
    client.stop_pipeline("demo")
    wait_until(lambda: client.pipeline("demo").state == "stopped", "the pipeline to stop", pipeline, may_end=True)
    say("topics pipeline stop: every batch finished, nothing half done.")


# Chats


class PushedChat(Chat):
    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._rows: dict[int, dict[str, Any]] = {}
        self._position = 0

    def write(self, messages: list[dict[str, Any]]) -> None:
        for each in messages:
            self.written.append(each["id"])
            self._rows[each["id"]] = each
        self._send([{"op": "insert", "key": {"id": each["id"]}, "after": each} for each in messages])

    def edit(self, number: int, text: str) -> None:
        before = self._rows[number]
        after = self._rows[number] = {**before, "text": text}
        self._send([{"op": "update", "key": {"id": number}, "before": before, "after": after}])

    def remove(self, number: int) -> None:
        self._send([{"op": "delete", "key": {"id": number}, "before": self._rows.pop(number)}])

    def _send(self, changes: list[dict[str, Any]]) -> None:
        for change in changes:
            self._position += 1
            change["position"] = self._position
        self._client.send_changes("chat.messages", changes, source="demo")


class PostgresChat(Chat):
    def __init__(self, stack: ExitStack, dsn: str) -> None:
        import psycopg

        super().__init__()
        self._connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        self._connection.execute("CREATE SCHEMA chat")
        self._connection.execute(
            "CREATE TABLE chat.messages (id bigint PRIMARY KEY, room int, author text, text text, visible boolean)"
        )
        # Updates and deletes then include the old row.
        self._connection.execute("ALTER TABLE chat.messages REPLICA IDENTITY FULL")

    def write(self, messages: list[dict[str, Any]]) -> None:
        self.written += [each["id"] for each in messages]
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO chat.messages VALUES (%(id)s, %(room)s, %(author)s, %(text)s, %(visible)s)", messages
            )

    def edit(self, number: int, text: str) -> None:
        self._connection.execute("UPDATE chat.messages SET text = %s WHERE id = %s", [text, number])

    def remove(self, number: int) -> None:
        self._connection.execute("DELETE FROM chat.messages WHERE id = %s", [number])


def message(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "room": 1 + number % len(ROOMS),
        "author": PEOPLE[number * 7 % len(PEOPLE)],
        "text": LINES[number % len(LINES)],
        "visible": number % 10 != 0,
    }


def postgres_programs() -> Path | None:
    """Where initdb and pg_ctl are; None when there is no PostgreSQL that can be started here."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("pg_ctl")
    if not found and on_path is None:
        return None
    if os.getuid() == 0 and not [each for each in pwd.getpwall() if each.pw_name == "postgres"]:
        return None
    try:
        import psycopg  # noqa: F401 - only whether it is there
    except ImportError:
        return None
    return found[-1].parent if found else Path(on_path or "").parent


def start_postgres(stack: ExitStack, programs: Path) -> str:
    """A cluster of its own; the DSN of it."""
    # Not below our own directory, which only we may enter: PostgreSQL does not run as root.
    directory = Path(tempfile.mkdtemp(prefix="topics-demo-postgres-"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(directory, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def program(name: str, *arguments: str) -> None:
        command = [str(programs / name), "-D", str(directory / "data"), *arguments]
        subprocess.run(
            command, check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
        )

    program("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c wal_level=logical -c fsync=off"
    program("pg_ctl", "start", "-w", "-l", str(directory / "log"), "-o", settings)
    stack.callback(program, "pg_ctl", "stop", "-w", "-m", "immediate")
    return f"host=127.0.0.1 port={port} user=postgres dbname=postgres"


# Tools


class Failed(Exception):
    """The demo cannot go on; says why."""


class Process:
    """A process of the demo with all that it starts, and its log."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("w") as output:
            self.popen = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        return self.popen.poll() is not None

    def activity(self) -> tuple[int, int]:
        """The size of its log and the processor time it has used: both stay the same only when it does nothing."""
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == self.popen.pid:
                ticks += int(fields[11]) + int(fields[12])
        return self.log.stat().st_size, ticks


def start(
    stack: ExitStack, directory: Path, name: str, command: list[str], environment: dict[str, str] | None = None
) -> Process:
    """Start a process that ends with the demo."""
    process = Process(command, os.environ | (environment or {}), directory / f"{name}.log")
    stack.callback(end, process.popen)
    return process


def end(process: "subprocess.Popen[bytes]") -> None:
    """Politely, and then with everything it has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Stall:
    """Notices when a wait makes no progress, and prints what it waits for."""

    def __init__(self, waiting_for: str) -> None:
        self._waiting_for = waiting_for
        self._started = self._moved = self._printed = time.monotonic()
        self._last: object = None

    def check(self, shown: str, activity: object = None) -> None:
        """Raises Failed when neither value has changed for MAX_STALL_SECONDS, or after MAX_WAIT_SECONDS."""
        now = time.monotonic()
        if (shown, activity) != self._last:
            self._last, self._moved = (shown, activity), now
        if now - self._printed >= NOTICE_SECONDS:
            self._printed = now
            say(f"  waiting for {self._waiting_for}{f' ({shown})' if shown else ''}, {now - self._started:.0f} s")
        if now - self._moved > MAX_STALL_SECONDS or now - self._started > MAX_WAIT_SECONDS:
            raise Failed(f"waited {now - self._started:.0f} s for {self._waiting_for} {shown}")


def wait_until(
    condition: Callable[[], bool],
    waiting_for: str,
    process: Process,
    *,
    progress: Callable[[], str] = str,
    may_end: bool = False,
    pause_s: float = 0.1,
) -> None:
    """Wait as long as the process works on it. Raises Failed, with the end of its log, when it ends or stalls."""
    stall = Stall(waiting_for)
    try:
        while not condition():
            if process.ended and not may_end:
                raise Failed(f"the process ended before there was {waiting_for}")
            stall.check(progress(), process.activity())
            time.sleep(pause_s)
    except Failed as failure:
        raise Failed(f"{failure}\n{process.log.read_text()[-2000:]}") from None


def wait_for_records(client: Client, topic: str, wanted: int, process: Process) -> None:
    wait_until(
        lambda: count(client, topic) >= wanted,
        f"{wanted} records in {topic}",
        process,
        progress=lambda: f"{count(client, topic)} there",
    )


def is_ready(client: Client) -> bool:
    try:
        return client.ready().status == "ready"
    except (TopicsError, ServerUnreachable):
        return False


def jobs_running(client: Client) -> int:
    return sum([job.state == "running" for each in client.pipelines() for job in each.jobs])


def job_names(client: Client) -> list[str]:
    return [job.name for each in client.pipelines() for job in each.jobs]


def count(client: Client, topic: str) -> int:
    """How many records the topic has; none before it is there."""
    try:
        return client.info(topic, touch=False).count
    except NotFound:
        return 0


def first(client: Client, topic: str) -> Any:
    return next(iter(client.read(topic))).data


def json_numbers(value: Any) -> list[Any]:
    """Every number anywhere in it."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in json_numbers(each)]
    return [value]


def step(title: str) -> None:
    print(f"\n{bold('== ' + title)}", flush=True)


def say(text: str) -> None:
    print(text, flush=True)


def show(value: Any) -> None:
    print("  " + json.dumps(value, ensure_ascii=False), flush=True)


def bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


if __name__ == "__main__":
    sys.exit(main())
