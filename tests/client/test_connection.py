"""How the server is reached: TLS with our own authority and certificate, proxies, users, time-outs; no credential is shown."""

import logging
import pickle
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.conftest import make_client
from tests.client.forwarder import Certificates, Forwarder, tls_forwarder
from topics.client import NO_RETRY, AsyncClient, Client, InvalidRequest, RetryPolicy, ServerUnreachable, Unauthorized
from topics.client.transport.address import find_address, find_proxy
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

PASSWORD = "correct horse battery"
TOKEN = "secret-token-of-the-test"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "TOPICS_URL", "TOPICS_TOKEN")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tls(url: str, certificates: Certificates) -> Iterator[Forwarder]:
    forwarder = tls_forwarder(url, certificates)
    yield forwarder
    forwarder.close()


@pytest.fixture
def proxy(url: str) -> Iterator[Forwarder]:
    forwarder = Forwarder(url, proxy=True)
    yield forwarder
    forwarder.close()


def test_tls_with_our_own_authority_and_a_client_certificate(
    kind: str, tls: Forwarder, certificates: Certificates, topic: str
) -> None:
    client = make_client(
        kind, f"https://127.0.0.1:{tls.port}", ca=str(certificates.ca), client_certificate=str(certificates.client)
    )
    assert client.append(topic, [1]).created
    watching = client.watch(topic)
    assert next(watching).record.data == 1
    watching.close()
    client.close()


def test_tls_is_refused_without_the_authority_or_the_certificate(
    kind: str, tls: Forwarder, certificates: Certificates
) -> None:
    for options in ({}, {"ca": str(certificates.ca)}):
        client = make_client(kind, f"https://127.0.0.1:{tls.port}", **options)
        with pytest.raises(ServerUnreachable):
            client.health()
        client.close()


def test_a_certificate_file_that_cannot_be_used_is_named(kind: str, certificates: Certificates) -> None:
    for options in ({"ca": "missing.pem"}, {"client_certificate": str(certificates.ca)}):
        client = make_client(kind, "https://127.0.0.1:9", **options)
        with pytest.raises(InvalidRequest, match=next(iter(options.values()))):
            client.health()
        client.close()


def test_requests_go_through_a_proxy(kind: str, proxy: Forwarder, url: str, topic: str) -> None:
    client = make_client(kind, url, proxy=f"http://ada:secret@127.0.0.1:{proxy.port}")
    assert client.append(topic, [1]).created
    assert [record.data for record in client.read(topic)] == [1]
    assert len(proxy.heads) >= 2
    assert proxy.heads[0].startswith(f"POST {url}/v0/topics/{topic}".encode())
    assert b"Proxy-Authorization: Basic YWRhOnNlY3JldA==" in proxy.heads[0]
    assert "secret" not in repr(client) + repr(find_address(url, proxy="http://ada:secret@127.0.0.1:1"))
    client.close()


def test_a_proxy_that_does_not_answer_is_named(kind: str) -> None:
    client = make_client(kind, "http://topics.example:4000", proxy="http://user:secret@127.0.0.1:1")
    with pytest.raises(ServerUnreachable, match=r"through the proxy 127\.0\.0\.1:1: ") as raised:
        client.health()
    assert "secret" not in str(raised.value)
    client.close()


def test_tls_goes_through_a_tunnel_of_the_proxy(
    kind: str, proxy: Forwarder, tls: Forwarder, certificates: Certificates, topic: str
) -> None:
    client = make_client(
        kind,
        f"https://127.0.0.1:{tls.port}",
        proxy=f"http://127.0.0.1:{proxy.port}",
        ca=str(certificates.ca),
        client_certificate=str(certificates.client),
    )
    assert client.append(topic, [1]).created
    assert proxy.heads[0].startswith(f"CONNECT 127.0.0.1:{tls.port} HTTP/1.1".encode())
    client.close()


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://plain:3128")
    monkeypatch.setenv("https_proxy", "secure:3129")
    monkeypatch.setenv("NO_PROXY", "example.com, .internal")
    plain, secure = find_proxy("http", "topics.org", None), find_proxy("https", "topics.org", None)
    assert plain is not None
    assert secure is not None
    assert (plain.host, plain.port, secure.host, secure.port) == ("plain", 3128, "secure", 3129)
    for host in ("example.com", "a.example.com", "b.internal", "localhost", "127.0.0.1", "::1"):
        assert find_proxy("http", host, None) is None
    assert find_proxy("http", "topics.org", "") is None
    with pytest.raises(InvalidRequest, match="not supported"):
        find_proxy("http", "topics.org", "socks5://proxy:1080")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("guarded")
    users = f'[[users]]\nname = "ada"\npassword = "{PASSWORD}"\nrole = "dba"\n'
    (root / "server.toml").write_text(f'[auth]\njwt_secret = "a secret that is long enough for it"\n{users}')
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(root / "data"),
        "TOPICS_CONFIG": str(root / "server.toml"),
        "TOPICS_API_KEYS": TOKEN,
    }
    with running_server(load_settings(environment)) as url:
        yield url


def test_a_login_a_token_and_a_password_let_in(kind: str, guarded: str, topic: str) -> None:
    stranger = make_client(kind, guarded)
    with pytest.raises(Unauthorized):
        stranger.append(topic, [1])
    with pytest.raises(Unauthorized):
        stranger.login("ada", "wrong")
    given = stranger.login("ada", PASSWORD)
    assert given.role == "dba"
    assert given.access_token not in repr(given)
    assert stranger.append(topic, [1]).created
    stranger.close()
    in_url = guarded.replace("http://", f"http://ada:{PASSWORD.replace(' ', '%20')}@")
    ways: list[tuple[str, dict[str, Any]]] = [
        (guarded, {"token": TOKEN}),
        (guarded, {"username": "ada", "password": PASSWORD}),
        (in_url, {}),
    ]
    for url, options in ways:
        client = make_client(kind, url, **options)
        assert client.info(topic).count == 1
        client.close()


def test_clients_with_other_options_share_the_login(guarded: str, topic: str) -> None:
    with Client(guarded) as client:
        other = client.with_options(retry=NO_RETRY)
        client.login("ada", PASSWORD)
        assert other.append(topic, [1]).created


def test_credentials_that_contradict_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="both"):
        Client(token="t", username="ada", password="p")
    with pytest.raises(InvalidRequest, match="belong together"):
        Client(username="ada")


@pytest.mark.parametrize("token", ["secret\n", "secret\r\nX-Admin: yes", "two words", "schlüssel"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_shown(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="the token holds a space, a line break") as refused:
        Client(token=token)
    assert token not in str(refused.value)
    monkeypatch.setenv("TOPICS_TOKEN", token)
    with pytest.raises(InvalidRequest, match="TOPICS_TOKEN holds a space"):
        Client()


def test_no_credential_is_shown_anywhere(kind: str, guarded: str, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="topics.client")
    shown = []
    client = make_client(kind, guarded, token=TOKEN)
    client.append(topic, [1])
    worker = (Client if kind == "sync" else AsyncClient)(guarded, TOKEN)
    shown += [repr(worker), repr(worker.settings), repr(worker.settings.credential), str(worker.url)]
    client.close()
    bad = make_client(kind, "http://ada:hidden-password@127.0.0.1:1")
    with pytest.raises(ServerUnreachable) as unreachable:
        bad.health()
    shown += [str(unreachable.value), repr(unreachable.value.__cause__), repr(bad)]
    bad.close()
    with pytest.raises(InvalidRequest) as refused:
        Client("ftp://ada:hidden-password@127.0.0.1:1")
    shown += [str(refused.value), caplog.text]
    for text in shown:
        assert TOKEN not in text
        assert "hidden-password" not in text
    assert f"POST /v0/topics/{topic} 201" in caplog.text


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_time_outs_and_retries_can_be_set_for_some_calls(silent: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="topics.client")
    with Client(silent, timeout_s=1000) as client:
        quick = client.with_options(timeout_s=0.05, retry=RetryPolicy(attempts=3, first_wait_s=0.001))
        started = time.monotonic()
        with pytest.raises(ServerUnreachable, match="timed out"):
            quick.health()
        assert time.monotonic() - started < 20
    assert [record.message.partition(";")[2] for record in caplog.records] != []
    assert caplog.text.count("attempt") == 2


def test_the_client_is_not_pickled_with_its_connections(url: str) -> None:
    """Spark and multiprocessing would copy sockets."""
    with Client(url) as client:
        client.health()
        with pytest.raises(TypeError):
            pickle.dumps(client)
