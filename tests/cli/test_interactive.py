"""What only a terminal shows: the SQL prompt, questions, passwords, the live screen, progress bars, and a server that is stopped."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.terminal import PATIENCE_S, TOPICS, Terminal, clean_environment, in_pipe
from topics.client import Client
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


def test_sql_prompt_runs_several_statements_over_several_lines(environment: dict[str, str]) -> None:
    with Terminal(["sql"], environment) as terminal:
        terminal.expect("topics>")
        terminal.send("SELECT 41 + 1 AS answer; SELECT 'a;b'\r")
        terminal.expect("...>")
        terminal.send("AS text;\r")
        terminal.expect("42")
        terminal.expect("a;b")
        terminal.expect("topics>")
        terminal.send("SELECT nonsense FROM;\r")
        terminal.expect("(invalid_request)")
        terminal.expect("topics>")
        terminal.send("\\q\r")
        assert terminal.wait() == 0, "an error of a statement does not end the prompt"


def test_sql_prompt_completes_topics_and_keeps_its_history(environment: dict[str, str], shared_url: str) -> None:
    with Client(shared_url) as client:
        client.create("completed-by-the-prompt")
    with Terminal(["sql"], environment) as terminal:
        terminal.expect("topics>")
        terminal.send("DESCRIBE TOPIC completed-\t")
        terminal.expect("completed-by-the-prompt")
        terminal.send("\x03")
        terminal.expect("topics>")
        terminal.send("SHOW TOPICS;\r")
        terminal.expect("last_write_at")
        terminal.expect("topics>")
        terminal.send("\x04")
        assert terminal.wait() == 0
    history = Path(environment["XDG_STATE_HOME"]) / "topics" / "sql_history"
    assert "SHOW TOPICS;" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0, "statements can hold data"
    with Terminal(["sql"], environment) as terminal:
        terminal.expect("topics>")
        terminal.send("\x1b[A\r")
        terminal.expect("last_write_at")


def test_sql_reads_statements_from_a_pipe(environment: dict[str, str]) -> None:
    done = in_pipe(["sql"], environment, "SELECT 1 AS a; -- comment;\nSELECT ';' AS b;\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"a":1}\n{"b":";"}\n', "")


@pytest.mark.parametrize(("answer", "left"), [("n\r", True), ("y\r", False)])
def test_rm_asks_on_a_terminal(answer: str, left: bool, environment: dict[str, str], shared_url: str) -> None:
    with Client(shared_url) as client:
        client.create("asked-about")
        with Terminal(["rm", "asked-about"], environment) as terminal:
            terminal.expect("[y/N]")
            terminal.send(answer)
            assert terminal.wait() == 0
        assert (client.describe(["asked-about"])["asked-about"] is not None) is left


def test_user_password_is_asked_for_twice_and_not_shown(environment: dict[str, str]) -> None:
    with Terminal(["user", "add", "ada"], environment) as terminal:
        terminal.expect("Password:")
        terminal.send("correct horse\r")
        terminal.expect("Again:")
        terminal.send("correct horse\r")
        assert terminal.wait() == 0
    assert "$argon2id$" in terminal.text
    assert "correct horse" not in terminal.text


def test_login_keeps_a_token_of_a_user_and_commands_use_it(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(
        '[auth]\njwt_secret = "a secret of at least 32 characters!"\n[[users]]\nname = "ada"\n'
        'password = "correct horse"\nrole = "dba"\n'
    )
    settings = load_settings(
        {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data"), "TOPICS_CONFIG": str(config)}
    )
    environment = clean_environment(XDG_CONFIG_HOME=str(tmp_path / "config"), HOME=str(tmp_path))
    with running_server(settings) as url:
        done = in_pipe(["ls", "--url", url], environment)
        assert (done.returncode, "TOPICS_TOKEN" in done.stderr) == (4, True), "a 401 names TOPICS_TOKEN"
        with Terminal(["login", url, "--name", "prod", "--user", "ada"], environment) as terminal:
            terminal.expect("Password:")
            terminal.send("correct horse\r")
            assert terminal.wait() == 0, terminal.text
        assert "correct horse" not in terminal.text
        kept = tmp_path / "config" / "topics" / "contexts.json"
        assert kept.stat().st_mode & 0o077 == 0
        assert "correct horse" not in kept.read_text()
        assert in_pipe(["create", "by-ada"], environment).returncode == 0, "the current context is used"
        assert in_pipe(["ls", "--context", "prod"], environment).returncode == 0
        shown = in_pipe(["context", "show"], environment).stdout
        assert '"user ada"' in shown
        assert "eyJ" not in shown, "no token is printed"
        # The credential of a context is not sent to another server.
        assert in_pipe(["ls", "--url", url.replace("127.0.0.1", "localhost")], environment).returncode == 4


def test_top_shows_a_screen_until_q(environment: dict[str, str]) -> None:
    with Terminal(["top", "--interval", "0.2"], environment) as terminal:
        terminal.expect("consumer groups")
        terminal.expect("loop lag")
        terminal.send("q")
        assert terminal.wait() == 0
    assert "\x1b[?1049l" in terminal.raw, "the screen of before is back"


def test_tail_follows_until_it_is_interrupted(environment: dict[str, str], shared_url: str) -> None:
    with Client(shared_url) as client, Terminal(["tail", "followed", "-f"], environment) as missing:
        assert missing.wait() == 3
        client.append("followed", ["first"])
        with Terminal(["tail", "followed", "-f", "-o", "raw"], environment) as terminal:
            terminal.expect("first\n")
            client.append("followed", ["second"])
            terminal.expect("second\n")
            terminal.send("\x03")
            assert terminal.wait() == 130
    assert "Traceback" not in terminal.text


def test_watch_by_prefix_finds_topics_that_are_created_later(environment: dict[str, str], shared_url: str) -> None:
    with Client(shared_url) as client:
        client.append("room.a", ["old"])
        with Terminal(["watch", "--prefix", "room.", "--all", "-o", "table", "--limit", "3"], environment) as terminal:
            terminal.expect("old")
            client.append("room.b", ["new topic"])
            client.append("room.a", ["new record"])
            assert terminal.wait() == 0
    assert "room.b" in terminal.text
    assert "new topic" in terminal.text


def test_one_slow_step_shows_progress_on_a_terminal_and_not_in_a_pipe(
    environment: dict[str, str], shared_url: str
) -> None:
    """The command waits once, for longer than a second, for a pipeline that does not stop."""
    command = ["pipeline", "stop", "slow", "--wait-s", "1.7"]
    with Client(shared_url) as client:
        client.report_pipeline("slow", "running", master="local[2]", started_ts=1)
    with Terminal(command, environment) as terminal:
        terminal.expect("wait for pipeline slow")
        terminal.expect("pipeline slow has not stopped after 1.7 s")
        assert terminal.wait() == 4
    done = in_pipe(command, environment)
    assert (done.returncode, done.stderr) == (4, "")
    assert "has not stopped" in done.stdout


def test_progress_counts_what_is_done(environment: dict[str, str]) -> None:
    with Terminal(["bench", "--seconds", "0.4"], environment) as terminal:
        terminal.expect("/5 tests")
        assert terminal.wait() == 0
    assert "append, 1 record" in terminal.text


@pytest.mark.parametrize("in_a_terminal", [True, False], ids=["terminal", "pipe"])
def test_serve_takes_its_settings_from_options(in_a_terminal: bool, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text("[server]\nport = 1\n[limits]\nmax_claim = 7\n")
    port_file = tmp_path / "port"
    environment = clean_environment(TOPICS_PORT_FILE=str(port_file), TOPICS_DATA_DIR=str(tmp_path / "not-this-one"))
    arguments = ["serve", "--port", "0", "--data", str(tmp_path / "data"), "--config", str(config)]
    if in_a_terminal:
        with Terminal(arguments, environment) as terminal:
            terminal.expect("ready: 0 topics")
            terminal.send("\x03")
            assert terminal.wait() == 0
        output = terminal.text
    else:
        process = subprocess.Popen([*TOPICS, *arguments], env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        output = ""
        while "ready: 0 topics" not in output:
            output += process.stderr.readline()
        os.kill(process.pid, signal.SIGTERM)
        output += process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 0
    assert "stopped" in output
    assert (tmp_path / "data").is_dir()
    assert not (tmp_path / "not-this-one").exists()


def wait_for(path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until, f"{path} was not written"
        time.sleep(0.01)


def test_serve_open_opens_the_console_when_the_server_is_ready(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    environment = clean_environment(BROWSER=f"{browser} %s")
    with Terminal(["serve", "--port", "0", "--data", str(tmp_path / "data"), "--open"], environment) as terminal:
        terminal.expect("ready: 0 topics")
        port = terminal.text.partition("listening on http://127.0.0.1:")[2].partition(",")[0]
        wait_for(opened)
        terminal.send("\x03")
        assert terminal.wait() == 0
    assert opened.read_text() == f"http://127.0.0.1:{port}/\n"


def test_the_queue_lines_of_the_help_text_run_as_they_are_printed(environment: dict[str, str], tmp_path: Path) -> None:
    """A new user copies them into a shell: each succeeds, and the job is done."""
    help_text = in_pipe(["--help"], environment).stdout
    section = help_text.partition("a queue with a worker:\n")[2].partition("\n\n")[0]
    commands = [line.strip().split("  ")[0] for line in section.splitlines() if line.startswith("  topics ")]
    assert [line.split()[1] for line in commands] == ["create", "append", "work", "queue"]
    program = tmp_path / "topics"
    program.write_text(f'#!/bin/sh\nexec {" ".join(TOPICS)} "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    script = "\n".join(["set -e", *commands])
    done = subprocess.run(
        ["sh", "-c", script], env={**environment, "PATH": path}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '{"url":"a.png"}\n' in done.stdout
    assert '"ready":0,"in_flight":0' in done.stdout
