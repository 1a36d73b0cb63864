"""100,000 topics: the list is searched, sorted and scrolled without waiting."""

import json
import socket
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser, expect

from tests.console.conftest import load_factor, watched_page
from tests.served import server_settings
from topics.testing.http import Api
from topics.testing.server import running_server

# Creating the topics takes a minute and more beside other tests.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOPICS = 100_000
# Each connection creates its share, one request behind the other; those of all connections share their syncs.
CONNECTIONS = 100
# A screen that follows the hand draws at least this often.
MAX_FRAME_MS = 50


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = server_settings(tmp_path_factory.mktemp("crowded"), TOPICS_MAX_TOPICS="0", TOPICS_SLOW_MS="0")
    with running_server(settings) as found:
        with Api(found) as api, ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda share: create(api.host, api.port, share), range(CONNECTIONS)))
            assert api.get("/v0/topic-search?limit=1").json["total"] == TOPICS
        yield found


def create(host: str, port: int, share: int) -> None:
    numbers = range(share, TOPICS, CONNECTIONS)
    with socket.create_connection((host, port)) as connection:
        for number in numbers:
            body = json.dumps({"records": [{"data": 0}] * (1 + number % 5)}).encode()
            head = f"POST /v0/topics/t{number:06d} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        left = len(numbers)
        while left:
            received = connection.recv(1 << 20)
            assert received
            left -= received.count(b"HTTP/1.1 201")


# Scroll by ten pages in 60 frames; answers the time between the frames.
SCROLL = """async () => {
  const list = document.querySelector(".virtual");
  list.scrollTop = 36 * 20_000;
  const gaps = [];
  let last = await new Promise(requestAnimationFrame);
  for (let frame = 0; frame < 60; frame += 1) {
    list.scrollTop += 130;
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
  }
  return gaps;
}"""


def test_list_of_all_topics_is_fluid(browser: Browser, crowded: str) -> None:
    with watched_page(browser, crowded) as page:
        page.goto("/#/topics")
        expect(page.locator("[data-role=total]")).to_have_text("100,000 topics")
        assert page.locator("tbody tr").count() < 100
        # To the middle and to the end: only what is in view is fetched and drawn.
        for top, name in ((36 * 50_000, "t050000"), (36 * 100_000, "t099999")):
            page.evaluate("(top) => { document.querySelector('.virtual').scrollTop = top; }", top)
            expect(page.get_by_role("link", name=name)).to_be_visible()
            assert page.locator("tbody tr").count() < 100
        gaps = page.evaluate(SCROLL)
        assert statistics.median(gaps) < MAX_FRAME_MS * load_factor()
        page.get_by_role("button", name="Records").click()
        expect(page.locator("tbody tr td").nth(1)).to_have_text("t000004")
        page.get_by_label("Filter by name").fill("t0999")
        expect(page.locator("[data-role=total]")).to_have_text("100 topics")
        expect(page.get_by_role("link", name="t099904")).to_be_visible()


def test_no_request_of_the_list_takes_long(crowded: str) -> None:
    with Api(crowded) as api:
        api.get("/v0/topic-search?sort=bytes&order=desc")
        for query in ("", "?offset=90000", "?q=999", "?sort=bytes&order=desc&offset=50000"):
            assert api.get(f"/v0/topic-search{query}").json["performance"]["server_total_ms"] < 2000, query
