"""GET / and the files of the console: what is served to which client, and with which policy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import server_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    settings = server_settings(tmp_path_factory.mktemp("console"), TOPICS_API_KEYS="secret")
    with running_server(settings) as url, Api(url) as api:
        yield api


def test_browser_gets_the_console_without_a_credential(api: Api) -> None:
    answer = api.get("/", BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b'<link rel="modulepreload" href="/console/lib/dom.js">' in answer.body


@pytest.mark.parametrize("accept", [{"Accept": "application/json"}, {"Accept": "*/*"}, {}])
def test_other_clients_get_json(api: Api, accept: dict[str, str]) -> None:
    answer = api.get("/", accept)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["name"] == "topics"
    for link in ("docs", "openapi", "health"):
        assert api.get(answer.json[link]).status == 200


def test_policy_allows_no_inline_script_and_no_other_host(api: Api) -> None:
    for path in ("/", "/console/app.js", "/console/styles.css"):
        policy = api.get(path, BROWSER).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
    assert b"<style" not in api.get("/", BROWSER).body


def test_unchanged_file_is_not_sent_again(api: Api) -> None:
    first = api.get("/console/app.js")
    again: Answer = api.get("/console/app.js", {"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/console/none.js", "/console/..%2fversion.py", "/console/lib/..%2f..%2f__init__.py", "/console/README.md"]
)
def test_only_files_of_the_console_are_served(api: Api, path: str) -> None:
    assert api.get(path).status == 404


def test_console_can_be_turned_off(tmp_path: Path) -> None:
    with running_server(server_settings(tmp_path, TOPICS_CONSOLE="0")) as url, Api(url) as api:
        assert api.get("/", BROWSER).json["console"] is None
        assert api.get("/console/app.js").status == 404
