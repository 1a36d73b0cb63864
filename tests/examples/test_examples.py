"""The examples do what they say, as processes against real servers."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.client import Client, Record, RecordIn
from topics.server.ops.settings import load_settings
from topics.testing.chromium import Chromium
from topics.testing.server import running_server

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
MAX_LINES = 60


def run(name: str, *arguments: str) -> str:
    """What the example prints. It must succeed; the only errors on standard error may be logged by the client."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert name == "workers.py" or done.stderr == ""
    return done.stdout


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_server(load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})) as url:
        yield url


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_every_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < MAX_LINES


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_an_example_says_how_to_run_it(path: Path) -> None:
    assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")


def test_every_example_is_run_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in PROGRAMS if source.count(f'"{path.name}"') == 0] == []


def test_workers_finish_all_jobs_and_give_up_the_broken_one(url: str) -> None:
    out = run("workers.py", url, "--drain")
    assert sorted([line.split()[1] for line in out.splitlines() if line.startswith("resized")]) == [
        f"{number}.png," for number in range(10)
    ]
    assert out.splitlines()[-1] == "given up: broken"


def test_group_members_share_the_messages_and_each_group_gets_all(url: str) -> None:
    billing, shipping = run("groups.py", url).splitlines()
    assert billing.startswith("billing: 40 of 40 orders; billing-0 handled ")
    assert shipping == "shipping: 40 of 40 orders; shipping-0 handled 40"


def test_mirror_copies_each_record_once_over_restarts(url: str, tmp_path: Path) -> None:
    target_settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "target")})
    with running_server(target_settings) as target_url, Client(url) as source, Client(target_url) as target:
        source.append("orders", [RecordIn({"n": n}, tag=f"t{n}") for n in range(1500)])
        assert "copied 500 records, to seq 1500" in run("mirror.py", url, target_url, "orders", "--once")
        source.append("orders", [1, 2])
        assert run("mirror.py", url, target_url, "orders", "--once").startswith(
            "continue after seq 1500\ncopied 2 records"
        )
        copied = [(each.data, each.tag) for each in target.read("orders") if isinstance(each, Record)]
        assert copied == [(each.data, each.tag) for each in source.read("orders") if isinstance(each, Record)]
        assert len(copied) == 1502
        # Without --once it follows.
        command = [sys.executable, str(EXAMPLES / "mirror.py"), url, target_url, "orders"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "continue after seq 1502\n"
            source.append("orders", ["live"])
            assert process.stdout.readline() == "copied 1 records, to seq 1503\n"
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()


def test_search_index_follows_inserts_updates_and_deletes(url: str, tmp_path: Path) -> None:
    index = str(tmp_path / "index.sqlite")
    with Client(url) as client:
        client.append("changes:docs", [{"id": 1, "text": "the quick brown fox"}, {"id": 2, "text": "a lazy dog"}])
        run("search.py", url, index, "--once")
        assert run("search.py", url, index, "--search", "quick") == "1: the quick brown fox\n"
        client.append("changes:docs", [{"id": 1, "text": "a slow fox"}, {"id": 2, "deleted": True}])
        run("search.py", url, index, "--once")
    assert run("search.py", url, index, "--search", "quick") == ""
    assert run("search.py", url, index, "--search", "fox") == "1: a slow fox\n"
    assert run("search.py", url, index, "--search", "dog") == ""


@pytest.mark.slow
def test_chat_page_shows_messages_live_and_resumes_after_a_reload(tmp_path: Path) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page_url = f"http://127.0.0.1:{port}"
    settings = load_settings(
        {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data"), "TOPICS_CORS_ORIGINS": page_url}
    )
    with running_server(settings) as url, Client(url) as client, Chromium(tmp_path / "profile") as browser:
        command = [sys.executable, str(EXAMPLES / "chat.py"), url, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == f"{page_url}/\n"
            browser.go_to(page_url)
            browser.wait_for("document.querySelectorAll('li').length == 1")
            browser.run("text.value = 'typed <b>here</b>'; document.querySelector('button').click()")
            client.append("chat", ["from elsewhere"])
            browser.wait_for("document.querySelectorAll('li').length == 3")
            browser.go_to("about:blank")
            client.append("chat", ["while it was closed"])
            browser.go_to(page_url)
            browser.wait_for("document.querySelectorAll('li').length >= 5")
            shown = browser.run("[...document.querySelectorAll('li')].map(each => each.textContent)")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        assert shown == [each.data for each in client.read("chat") if isinstance(each, Record)]
        assert sorted(shown) == sorted(
            ["a page was opened", "typed <b>here</b>", "from elsewhere", "while it was closed", "a page was opened"]
        )
