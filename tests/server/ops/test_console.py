"""GET / and the files of the console: what is served to which client, and with which policy."""

import gzip
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
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
    assert re.search(rb'<link rel="modulepreload" href="/console/lib/dom.js\?v=[0-9a-f]{16}" />', answer.body)


@pytest.mark.parametrize("accept", [{"Accept": "application/json"}, {"Accept": "*/*"}, {}])
def test_other_clients_get_json(api: Api, accept: dict[str, str]) -> None:
    answer = api.get("/", accept)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["name"] == "topics"
    for link in ("docs", "openapi", "health"):
        assert api.get(answer.json[link]).status == 200


def test_policy_allows_the_inline_parts_of_the_page_by_hash_and_no_other_host(api: Api) -> None:
    page = api.get("/", BROWSER).body
    inline = re.findall(rb"<(script|style)(?: type=\"importmap\")?>(.*?)</", page, re.DOTALL)
    assert [kind for kind, _ in inline] == [b"style", b"script", b"script"]
    hashes = [f"'sha256-{b64encode(sha256(text).digest()).decode()}'" for _, text in inline]
    for path in ("/", "/console/app.js", "/console/styles.css"):
        policy = api.get(path, BROWSER).headers["content-security-policy"]
        assert policy == (
            f"default-src 'none'; script-src 'self' {hashes[1]} {hashes[2]}; style-src {hashes[0]}; img-src 'self'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'"
        )


def test_unchanged_file_is_not_sent_again(api: Api) -> None:
    for path in ("/", "/console/app.js"):
        first = api.get(path, BROWSER)
        assert first.headers["cache-control"] == "no-cache"
        again: Answer = api.get(path, {**BROWSER, "If-None-Match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")


def test_module_is_kept_under_the_address_of_its_content_only(api: Api) -> None:
    (address,) = set(re.findall(rb'"(/console/app.js\?v=[^"]*)"', api.get("/", BROWSER).body))
    assert "immutable" in api.get(address.decode()).headers["cache-control"]
    # The page of another version asks for its own module: what it gets is not kept.
    assert api.get("/console/app.js?v=0123456789abcdef").headers["cache-control"] == "no-cache"


def test_compressed_file_is_the_file(api: Api) -> None:
    plain = api.get("/console/app.js")
    packed = api.get("/console/app.js", {"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    "path", ["/console/none.js", "/console/..%2fversion.py", "/console/lib/..%2f..%2f__init__.py", "/console/README.md"]
)
def test_only_files_of_the_console_are_served(api: Api, path: str) -> None:
    assert api.get(path).status == 404


def test_console_can_be_turned_off(tmp_path: Path) -> None:
    with running_server(server_settings(tmp_path, TOPICS_CONSOLE="0")) as url, Api(url) as api:
        assert api.get("/", BROWSER).json["console"] is None
        assert api.get("/console/app.js").status == 404
