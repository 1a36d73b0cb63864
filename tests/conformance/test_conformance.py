"""`topics conformance`: our server passes every check, and servers that break the contract fail the right ones."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.altering_proxy import Alteration, Exchange, altering_proxy
from topics.cli.main import main
from topics.conformance.checks import all_checks
from topics.conformance.runner import Target, run_checks, selected
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

KEYS = {"read": "r-key", "write": "w-key", "delete": "d-key", "admin": "a-key", "prefix": "p-key"}
API_KEYS = "all,r-key:read,w-key:write,d-key:delete,a-key:admin,p-key::conformance-allowed:"


def settings(directory: Path, **more: str) -> Any:
    return load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(directory), **more})


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(settings(tmp_path_factory.mktemp("open"))) as url:
        yield url


@pytest.fixture(scope="module")
def server_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(settings(tmp_path_factory.mktemp("keys"), TOPICS_API_KEYS=API_KEYS)) as url:
        yield url


def failures(target: Target, *only: str) -> dict[str, str]:
    results = run_checks(target, selected(only))
    return {f"{each.area}: {each.name}": each.reason for each in results if each.outcome == "failed"}


def test_server_without_keys_passes_every_check(open_server: str) -> None:
    assert failures(Target(open_server, None, {})) == {}


def test_server_with_keys_passes_every_check_and_skips_only_what_needs_no_keys(server_with_keys: str) -> None:
    results = run_checks(Target(server_with_keys, "all", KEYS), selected([]))
    assert [each for each in results if each.outcome == "failed"] == []
    skipped = {each.name for each in results if each.outcome == "skipped"}
    assert skipped == {"without keys the header is ignored"}


def test_checks_remove_the_topics_they_create(open_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["conformance", open_server, "--only", "topics", "--only", "routers"])
    capsys.readouterr()
    assert main(["ls", "--url", open_server]) == 0
    assert "conformance" not in capsys.readouterr().out


def test_titles_are_unique() -> None:
    titles = [check.title for check in all_checks()]
    assert len(titles) == len(set(titles))
    assert len(titles) > 500


# Servers that break the contract


def without_performance(exchange: Exchange) -> Exchange:
    return exchange.with_json(lambda body: {key: value for key, value in body.items() if key != "performance"})


def with_status_field(exchange: Exchange) -> Exchange:
    return exchange.with_json(lambda body: {**body, "ok": True})


def never_caught_up(exchange: Exchange) -> Exchange:
    return exchange.with_json(lambda body: {**body, "caught_up": False} if "caught_up" in body else body)


def reserialized_data(exchange: Exchange) -> Exchange:
    return exchange.with_json(lambda body: body)


def without_tombstones(exchange: Exchange) -> Exchange:
    return exchange.with_json(lambda body: {**body, "tombstone": None} if "tombstone" in body else body)


def null_instead_of_absent(exchange: Exchange) -> Exchange:
    def change(body: Any) -> Any:
        for record in body.get("records", []):
            record.setdefault("meta", None)
        return body

    return exchange.with_json(change)


def always_200(exchange: Exchange) -> Exchange:
    return replace(exchange, status=200) if exchange.status == 201 else exchange


def html_errors(exchange: Exchange) -> Exchange:
    return replace(exchange, media_type="text/html", body=b"<h1>no</h1>") if exchange.status == 405 else exchange


def internal_errors(exchange: Exchange) -> Exchange:
    body = b'{"error":{"code":"internal","message":"bug"}}'
    return replace(exchange, status=500, body=body) if exchange.status == 400 else exchange


def lost_deletes(exchange: Exchange) -> Exchange:
    return exchange.with_json(lambda body: {**body, "deleted": 1} if exchange.path.endswith("/delete") else body)


def same_lease_for_every_delivery(exchange: Exchange) -> Exchange:
    def change(body: Any) -> Any:
        for job in body.get("claimed", []):
            job["lease_id"] = "lease_1"
        return body

    return exchange.with_json(change)


@pytest.mark.parametrize(
    ("alter", "failing"),
    [
        (without_performance, "append: first write creates the topic"),
        (with_status_field, "conventions: success has no status wrapper"),
        (never_caught_up, "diff: read of an empty topic is caught up"),
        (reserialized_data, "verbatim: diff returns data unchanged: a float that is whole"),
        (without_tombstones, "retention: stale cursor gets the exact range that was lost"),
        (null_instead_of_absent, "append: absent fields of a record are absent"),
        (always_200, "append: first write creates the topic"),
        (html_errors, "conventions: wrong method is 405: DELETE /v0/topics"),
        (internal_errors, "append: bad body is refused and creates nothing: no records"),
        (lost_deletes, "delete: repeated delete reports 0"),
        (same_lease_for_every_delivery, "queues: expired lease makes the job claimable"),
    ],
)
def test_server_that_breaks_the_contract_fails_the_check(open_server: str, alter: Alteration, failing: str) -> None:
    with altering_proxy(open_server, lambda exchange: exchange) as url:
        assert failures(Target(url, None, {}), failing) == {}, "the check fails without the alteration"
    with altering_proxy(open_server, alter) as url:
        assert failing in failures(Target(url, None, {}), failing)


def test_server_that_closes_every_connection_fails_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_connections() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=close_connections)
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            assert failures(Target(url, None, {}), "diff: from seq is exclusive") != {}
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# The command


def test_report_is_text_with_a_summary(open_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", open_server, "--only", "delete"]) == 0
    assert f"checks of {open_server}" in capsys.readouterr().out


def test_report_as_json_has_every_check_and_a_failure_exits_10(
    open_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with altering_proxy(open_server, never_caught_up) as url:
        status = main(["conformance", url, "--only", "diff: read of an empty topic", "-o", "json"])
    report = json.loads(capsys.readouterr().out)
    assert status == 10
    assert (report["passed"], report["failed"]) == (0, 1)
    (check,) = report["checks"]
    assert "caught_up" in check["reason"]


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["http://127.0.0.1:1"], 5), (["ftp://x"], 1), ([], 1), (["http://127.0.0.1:1", "--only", "zebra"], 1)],
)
def test_what_cannot_be_checked_exits_as_the_table_of_codes_says(
    argv: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", *argv]) == code
    assert "topics conformance:" in capsys.readouterr().err
