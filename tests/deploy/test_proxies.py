"""The proxy configurations under deploy/: TLS, long polls, event streams and WebSockets pass through nginx and Caddy."""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.sync.client import connect

from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "localhost"
PATIENCE_S = 20

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_certificate(directory: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "fullchain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (directory / "privkey.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def nginx(directory: Path, port: int, upstream: str) -> list[str]:
    site = (DEPLOY / "nginx.conf").read_text()
    site = site.replace("/etc/ssl/topics", str(directory)).replace("127.0.0.1:4000", upstream)
    site = site.replace("/var/log/nginx", str(directory))
    site = site.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("topics.example.com", NAME)
    paths = "".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = directory / "nginx.conf"
    main.write_text(
        f"daemon off; pid {directory}/pid; error_log {directory}/error.log; events {{}}\nhttp {{ {paths}\n{site}\n}}\n"
    )
    return ["nginx", "-p", str(directory), "-c", str(main)]


def caddy(directory: Path, port: int, upstream: str) -> list[str]:
    site = (DEPLOY / "Caddyfile").read_text().replace("127.0.0.1:4000", upstream)
    site = site.replace(
        "topics.example.com {", f"https://{NAME}:{port} {{\n\ttls {directory}/fullchain.pem {directory}/privkey.pem"
    )
    file = directory / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


@contextmanager
def proxied(command: Callable[[Path, int, str], list[str]], directory: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """A server behind the proxy: the proxy's address, and a context that trusts its certificate."""
    assert shutil.which(command.__name__), f"{command.__name__} is not installed; `make system-deps` installs it"
    write_certificate(directory)
    settings = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(directory / "data"), "TOPICS_ALLOWED_HOSTS": NAME}
    with running_server(load_settings(settings)) as url:
        port = free_port()
        arguments = command(directory, port, urlsplit(url).netloc)
        environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(directory), "XDG_DATA_HOME": str(directory)}
        process = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            wait_for(port, process)
            yield f"{NAME}:{port}", ssl.create_default_context(cafile=str(directory / "fullchain.pem"))
        finally:
            # Caddy waits for open connections when it is asked to end.
            process.kill()
            process.wait(PATIENCE_S)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, "the proxy has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the proxy does not listen"
            time.sleep(0.05)


def ask(address: str, trust: ssl.SSLContext, path: str, body: Any = None) -> Any:
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"https://{address}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S, context=trust) as response:
        return json.loads(response.read())


@pytest.mark.parametrize("command", [nginx, caddy])
def test_writes_streams_and_sockets_pass_through_the_proxy(
    command: Callable[[Path, int, str], list[str]], tmp_path: Path
) -> None:
    with proxied(command, tmp_path) as (address, trust):
        written = ask(address, trust, "/v0/topics/t", {"records": [{"data": "x" * 3_000}] * 1_000})
        assert written["last_seq"] == 1_000
        watch = ask(address, trust, "/v0/watch", {"topics": {"t": {"tail": True}}})
        stream = urllib.request.urlopen(  # an open stream: every event must arrive before the response ends
            f"https://{address}{watch['stream_url']}", timeout=PATIENCE_S, context=trust
        )
        with stream, connect(f"wss://{address}/v0/ws", ssl=trust) as client:
            client.send(json.dumps({"op": "subscribe", "topic": "t", "tail": True}))
            assert json.loads(client.recv(PATIENCE_S))["op"] == "subscribed"
            client.send(json.dumps({"op": "publish", "topic": "t", "records": [{"data": "live"}]}))
            operations = set()
            while not {"record", "ack"} <= operations:
                operations.add(json.loads(client.recv(PATIENCE_S))["op"])
            while b"live" not in stream.readline():
                pass
        # A poll that finds nothing waits through the proxy and is answered.
        page = ask(address, trust, "/v0/topics/t/diff", {"from_seq": 1_001, "wait_ms": 300})
        assert (page["records"], page["caught_up"]) == ([], True)


def test_access_log_of_nginx_has_requests_without_their_tokens(tmp_path: Path) -> None:
    with proxied(nginx, tmp_path) as (address, trust):
        ask(address, trust, "/v0/health?token=secret")
        log = tmp_path / "topics.log"
        deadline = time.monotonic() + PATIENCE_S
        while "/v0/health" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "secret" not in log.read_text()
