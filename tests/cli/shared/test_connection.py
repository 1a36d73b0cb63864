"""Which server a command calls, and the exit code and advice of each kind of error."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.client.forwarder import Certificates, Forwarder, tls_forwarder
from topics.cli.main import main
from topics.cli.shared.contexts import Context, Contexts, contexts_path, find_address, save_contexts
from topics.model.errors import InvalidRequest, NotFound, Unauthorized
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TOPICS_URL", "TOPICS_TOKEN", "TOPICS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("guarded")),
        "TOPICS_API_KEYS": "everything,reader:read",
    }
    with running_server(load_settings(environment)) as url:
        yield url


@pytest.mark.parametrize(
    ("line", "token", "code", "said"),
    [
        ("create t", "everything", 0, ""),
        ("ls", None, 4, "TOPICS_TOKEN"),
        ("ls", "wrong", 4, "TOPICS_TOKEN"),
        ("append t 1", "reader", 4, "forbidden"),
        ("create t", "everything", 4, "topic_exists"),
        ("rm t --if-empty --yes", "everything", 0, ""),
        ("info t", "everything", 3, "does not exist"),
        ("queue stats none", "everything", 3, "does not exist"),
        ("group lag none g", "everything", 3, "does not exist"),
        ("sql SELECT", "everything", 1, "invalid_request"),
        ("ls --limit", "everything", 1, "unrecognized arguments"),
        ("delete t", "everything", 1, "say which records"),
    ],
)
def test_exit_codes(
    line: str, token: str | None, code: int, said: str, guarded_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--url", guarded_url, *([] if token is None else ["--token", token])]
    try:
        found = main([*line.split(), *options])
    except SystemExit as ended:
        found = int(ended.code or 0)
    err = capsys.readouterr().err
    assert (found, said in err) == (code, True), err


def test_a_server_that_does_not_answer_exits_5_soon_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    assert main(["ls", "--url", "http://127.0.0.1:9"]) == 5
    assert time.monotonic() - begun < 5
    assert "topics serve" in capsys.readouterr().err


def test_another_service_at_the_address_is_reported_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert main(["ls", "--url", f"http://127.0.0.1:{other.server_port}"]) == 5
        other.shutdown()
    err = capsys.readouterr().err
    assert "wrong_answer" in err
    assert "check --url" in err


def test_options_count_more_than_variables_and_variables_more_than_the_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_address(None, None, None)[:2] == (None, None)
    save_contexts(Contexts("a", {"a": Context("http://a", "key-a"), "b": Context("http://b", "key-b")}))
    assert find_address(None, None, None)[:2] == ("http://a", "key-a")
    assert find_address(None, None, "b")[:2] == ("http://b", "key-b")
    assert find_address(None, "mine", None)[:2] == ("http://a", "mine")
    assert find_address("http://c", None, None)[:2] == ("http://c", None), "no credential for another server"
    monkeypatch.setenv("TOPICS_CONTEXT", "b")
    assert find_address(None, None, None)[:2] == ("http://b", "key-b")
    monkeypatch.setenv("TOPICS_URL", "http://d")
    assert find_address(None, None, None)[:2] == (None, None)
    assert find_address(None, None, "a")[:2] == ("http://a", "key-a")


def test_an_expired_login_names_the_command_that_renews_it() -> None:
    save_contexts(Contexts("a", {"a": Context("http://a", "token", "ada", expires_ms=1)}))
    with pytest.raises(Unauthorized, match="topics login http://a --name a --user ada"):
        find_address(None, None, None)


def test_a_context_that_does_not_exist_is_not_found() -> None:
    save_contexts(Contexts("gone", {"staging": Context("http://a")}))
    with pytest.raises(NotFound, match="Did you mean staging"):
        find_address(None, None, "stagin")
    contexts_path().write_text("{")
    with pytest.raises(InvalidRequest, match="correct or remove it"):
        find_address(None, None, None)


def test_the_file_of_contexts_is_for_its_owner_only() -> None:
    save_contexts(Contexts("a", {"a": Context("http://a", "secret")}))
    assert contexts_path().stat().st_mode & 0o077 == 0
    assert json.loads(contexts_path().read_text())["current"] == "a"


def test_certificates_and_a_proxy_are_options_and_are_kept_by_a_login(
    shared_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = Certificates(tmp_path)
    tls = tls_forwarder(shared_url, certificates)
    proxy = Forwarder(shared_url, proxy=True)
    url = f"https://127.0.0.1:{tls.port}"
    options = ["--ca", str(certificates.ca), "--cert", str(certificates.client)]
    options += ["--proxy", f"http://ada:secret@127.0.0.1:{proxy.port}"]
    try:
        assert main(["ls", "--url", url]) == 5
        assert main(["ls", "--url", url, *options]) == 0
        assert main(["login", url, "--name", "private", *options]) == 0
        tunnels = len(proxy.heads)
        assert main(["ls"]) == 0
        assert len(proxy.heads) == tunnels + 1, "the context has the proxy"
        assert proxy.heads[-1].startswith(f"CONNECT 127.0.0.1:{tls.port}".encode())
        capsys.readouterr()
        assert main(["context", "show", "-o", "json"]) == 0
        shown = capsys.readouterr().out
        assert json.loads(shown)["ca"] == str(certificates.ca)
        assert "secret" not in shown
        assert main(["ls", "--url", url, "--ca", str(tmp_path / "missing.pem")]) == 1
        assert "missing.pem cannot be used" in capsys.readouterr().err
    finally:
        tls.close()
        proxy.close()
