"""A real PostgreSQL and a topics server for the whole run."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from topics.client import Client
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


def postgres_programs() -> Path | None:
    """Where initdb and pg_ctl are: the newest version that Debian installed, or on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("pg_ctl")
    return found[-1].parent if found else None if on_path is None else Path(on_path).parent


class Database:
    """A cluster of its own, which can be stopped as hard as one likes."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        # PostgreSQL does not run as root.
        self._user: dict[str, Any] = {}
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(directory, owner.pw_uid, owner.pw_gid)
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")
        self.dsn = f"host=127.0.0.1 port={self._port} user=postgres dbname=postgres"
        self.start()

    def start(self) -> None:
        settings = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c wal_level=logical "
        settings += "-c fsync=off -c max_replication_slots=50 -c max_wal_senders=20 -c timezone=Asia/Tokyo"
        self._run("pg_ctl", "start", "-w", "-l", str(self._directory / "log"), "-o", settings)

    def stop(self, how: str = "immediate") -> None:
        self._run("pg_ctl", "stop", "-w", "-m", how)

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._directory / "data"), *arguments]
        subprocess.run(
            command, check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._user
        )


@pytest.fixture(scope="session")
def database() -> Iterator[Database]:
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: make system-deps")
    # Not below pytest's own directory, which other users cannot enter.
    directory = Path(tempfile.mkdtemp(prefix="topics-postgres-"))
    try:
        made = Database(programs, directory)
        yield made
        made.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("capture"))}
    with running_server(load_settings(environment)) as url:
        yield url


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    with Client(server) as client:
        yield client
