"""`topics doctor`: look for problems of this machine, these settings and the server, and say what to do about each."""

import argparse
import ctypes
import importlib.metadata
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import topics
from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import connect, exit_code
from topics.cli.shared.metrics import get_metrics
from topics.cli.shared.output import chosen_format, print_rows, write_line
from topics.cli.shared.progress import Progress
from topics.cli.shared.times import show_size
from topics.client import Client, ServerUnreachable
from topics.model.errors import Forbidden, TopicsError, Unauthorized

if TYPE_CHECKING:
    from topics.server.ops.settings import Settings

COLUMNS = ("state", "check", "found", "advice")
# Free space below which a server soon refuses writes, in addition to its logs and reserve.
MIN_FREE_BYTES = 1 << 30
MAX_SYNC_MS = 20.0
MAX_CLOCK_DIFFERENCE_MS = 2000
MAX_LOOP_LAG_MS = 50.0
MIN_MEMORY_BYTES = 512 << 20
TIME_ERROR = 5


class Finding(Struct):
    """`state` is ok, warning or problem."""

    state: str
    check: str
    found: str
    advice: str = ""


def build_parser() -> Parser:
    parser = command_parser(
        "doctor",
        "Check the settings, the disk, the clock, the limits and the versions of this machine, and the server if one "
        "answers. Prints what is wrong and what to do about it. Exits with 4 when there is a problem; warnings do not count.",
        ["topics doctor", "topics doctor --data /var/lib/topics", "topics doctor -o json"],
    )
    parser.add_argument("--data", metavar="DIRECTORY", help="data directory (default: the one of the settings)")
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    with Progress("doctor", unit=""):
        findings = [*_versions(), *_settings_and_machine(arguments.data), *_clock(), *_server(arguments)]
    print_rows(
        COLUMNS, [[each.state, each.check, each.found, each.advice or None] for each in findings], arguments.output
    )
    problems = len([each for each in findings if each.state == "problem"])
    warnings = len([each for each in findings if each.state == "warning"])
    if chosen_format(arguments.output) == "table":
        write_line("")
        write_line(f"{problems} problems, {warnings} warnings." if problems or warnings else "Nothing is wrong.")
    return exit_codes.REFUSED if problems else exit_codes.SUCCESS


def _ok(check: str, found: str) -> Finding:
    return Finding("ok", check, found)


def _versions() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield _ok("topics", f"{topics.__version__} on Python {python}")
    missing = []
    try:
        requirements = importlib.metadata.requires("topics-engine") or []
    except importlib.metadata.PackageNotFoundError:
        # Run from a source directory; imports will say what is missing.
        requirements = []
    for requirement in requirements:
        name = requirement.split(";")[0].split("[")[0].split(">")[0].split("=")[0].strip()
        if "extra ==" in requirement:
            continue
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding("problem", "packages", f"missing: {', '.join(missing)}", "pip install . in a checkout")
    for extra, name in (("spark", "pyspark"), ("capture", "psycopg")):
        try:
            yield _ok(f"extra {extra}", f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield _ok(f"extra {extra}", f"not installed; pip install '.[{extra}]' in a checkout if you need it")


def _settings_and_machine(data: str | None) -> Iterator[Finding]:
    try:
        from topics.server.ops.settings import BadSettings, load_settings
    except ImportError as error:
        yield Finding("problem", "settings", f"the server cannot be imported: {error}", "pip install . in a checkout")
        return
    try:
        settings = load_settings(os.environ)
    except BadSettings as error:
        for problem in error.problems:
            yield Finding("problem", "settings", problem, "correct it, then run: topics config")
        return
    ignored = [*[f"{name} is not a setting" for name in settings.unknown_variables], *settings.retired]
    for text in ignored:
        yield Finding("warning", "settings", text, "remove it, or correct its name; docs/SETTINGS.md lists all")
    if not ignored:
        changed = len(settings.origins)
        yield _ok("settings", f"valid; {changed} differ from their defaults" if changed else "valid; all are defaults")
    if not settings.asks_for_credentials:
        yield _ok("credentials", f"none are set; only for a server on {settings.host}, see docs/SECURITY.md")
    yield from _disk(Path(data or settings.data_dir), settings)
    yield _runtime_directory(settings)
    yield from _limits(settings)


def _disk(directory: Path, settings: "Settings") -> Iterator[Finding]:
    place = directory
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding(
            "problem", "data directory", f"{place} is not writable", "change its owner, or set TOPICS_DATA_DIR"
        )
        return
    yield _ok("data directory", f"{directory}{'' if directory.exists() else ' (will be created)'}")
    usage = shutil.disk_usage(place)
    storage = settings.storage
    needed = MIN_FREE_BYTES + 3 * storage.wal_file_bytes + storage.reserve_bytes
    found = f"{show_size(usage.free)} of {show_size(usage.total)} free"
    if usage.free < needed:
        yield Finding("problem", "disk space", found, f"free at least {show_size(needed)}, or use another disk")
    else:
        yield _ok("disk space", found)
    kind = _file_system(place)
    if kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"):
        yield Finding("problem", "file system", kind, "use a local disk: locks and syncs of network file systems fail")
    elif kind in ("tmpfs", "ramfs"):
        yield Finding(
            "warning", "file system", f"{kind}: in memory, gone after a restart", "use a disk for data to keep"
        )
    else:
        yield _ok("file system", kind)
    sync_ms = _sync_time_ms(place)
    if sync_ms > MAX_SYNC_MS:
        advice = "writes of class fsync wait for it; use a faster disk"
        yield Finding("warning", "disk sync", f"fdatasync takes {sync_ms:.1f} ms", advice)
    else:
        yield _ok("disk sync", f"fdatasync takes {sync_ms:.1f} ms")


def _file_system(place: Path) -> str:
    """The type of the file system, from the longest mount point above the directory."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    path = f"{place.resolve()}/"
    found = [(len(mount[1]), mount[2]) for mount in mounts if path.startswith(mount[1].rstrip("/") + "/")]
    return max(found)[1] if found else "unknown"


def _sync_time_ms(place: Path) -> float:
    """The median of some small synced writes."""
    times = []
    with tempfile.NamedTemporaryFile(dir=place, prefix=".topics-doctor-") as file:
        for _ in range(11):
            file.write(b"x" * 512)
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1000 * (time.perf_counter() - begun))
    return sorted(times)[len(times) // 2]


def _runtime_directory(settings: "Settings") -> Finding:
    place = settings.runtime_dir
    if os.path.isdir(place) and os.access(place, os.W_OK):
        return _ok("runtime directory", place)
    advice = "set TOPICS_RUNTIME_DIR to a directory in memory; otherwise a kill is reported as possible loss"
    return Finding("warning", "runtime directory", f"{place} is not writable", advice)


def _limits(settings: "Settings") -> Iterator[Finding]:
    from topics.server.http.listener import MAX_REFUSED_CONNECTIONS, RESERVED_FILES, connection_capacity

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    served, _ = connection_capacity(settings.max_connections)
    if served < settings.max_connections:
        needed = settings.max_connections + RESERVED_FILES + MAX_REFUSED_CONNECTIONS
        advice = f"ulimit -n {needed} (LimitNOFILE in a systemd unit), or lower TOPICS_MAX_CONNECTIONS"
        yield Finding("warning", "open files", f"limit {soft}, max_connections {settings.max_connections}", advice)
    else:
        yield _ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"limit {soft}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = MIN_MEMORY_BYTES + settings.storage.hot_bytes
    if memory < wanted:
        yield Finding("warning", "memory", show_size(memory), "lower TOPICS_HOT_BYTES and TOPICS_CACHE_BYTES")
    else:
        yield _ok("memory", f"{show_size(memory)}, {os.cpu_count()} processors")


def _clock() -> Iterator[Finding]:
    """Whether the kernel says that the clock is synchronised; nothing where it does not say."""
    if time.time() < 1_700_000_000:
        yield Finding("problem", "clock", time.strftime("%Y-%m-%d %H:%M:%S"), "set the clock: records get wrong times")
        return
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return
    if state == TIME_ERROR:
        yield Finding("warning", "clock", "not synchronised", "run a time service such as chrony or systemd-timesyncd")
    elif state >= 0:
        yield _ok("clock", f"synchronised, {time.strftime('%Y-%m-%d %H:%M:%S %Z')}")


def _server(arguments: argparse.Namespace) -> Iterator[Finding]:
    try:
        client = connect(arguments)
    except TopicsError as error:
        yield Finding("problem", "connection", error.message, "see: topics context ls")
        return
    with client:
        for check in (_server_state, _server_clock, _server_load):
            try:
                yield from check(client)
            except TopicsError as error:
                yield _failed(client, error)
                return


def _failed(client: Client, error: TopicsError) -> Finding:
    if isinstance(error, ServerUnreachable):
        return Finding(
            "warning", "server", f"{client.url} does not answer", "start one: topics serve; or set TOPICS_URL"
        )
    if isinstance(error, Unauthorized):
        return Finding("problem", "credential", error.message, "set TOPICS_TOKEN, or run: topics login")
    if isinstance(error, Forbidden):
        return Finding("warning", "credential", error.message, "use a key that may read, to check more")
    state = "problem" if exit_code(error) == exit_codes.UNREACHABLE else "warning"
    return Finding(state, "server", error.message, "look at the log of the server")


def _server_state(client: Client) -> Iterator[Finding]:
    version = client.health().version
    if version != topics.__version__:
        found = f"{client.url} has {version}, this command {topics.__version__}"
        yield Finding("warning", "server version", found, "use the same version on both sides")
    else:
        yield _ok("server", f"{client.url}, version {version}")
    client.ready()


def _server_clock(client: Client) -> Iterator[Finding]:
    # The first query starts a process, which would count as a difference.
    client.sql("SELECT 1")
    before = time.time()
    ((server_ms,),) = client.sql("SELECT epoch_ms(now())").rows
    after = time.time()
    difference_ms = server_ms - 1000 * (before + after) / 2
    if abs(difference_ms) > MAX_CLOCK_DIFFERENCE_MS + 500 * (after - before):
        found = f"the server is {difference_ms / 1000:+.1f} s off"
        yield Finding("warning", "server clock", found, "synchronise both clocks: times like -1h are of this machine")
    else:
        yield _ok("server clock", "agrees with this machine")


def _server_load(client: Client) -> Iterator[Finding]:
    metrics = get_metrics(client)
    for condition, active in metrics.get("topics_degraded_conditions", {}).items():
        if active:
            yield Finding("problem", "server health", condition, "see GET /v0/ready for the reason, and the log")
    lag_ms = metrics.get("topics_loop_lag_ms", 0.0)
    if lag_ms > MAX_LOOP_LAG_MS:
        yield Finding("warning", "event loop", f"{lag_ms:.0f} ms late", "the machine is overloaded; see: topics top")
    else:
        yield _ok("event loop", f"{lag_ms:.1f} ms late")
