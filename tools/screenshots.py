"""Write the pictures of the console to docs/images: `make screenshots`.

A server of its own is filled with example data, and gets traffic for a while so that the charts have something to show.
"""

import random
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tools.console_data import fill, report
from topics.server.ops.settings import load_settings
from topics.testing.chromium import Chromium
from topics.testing.http import Api
from topics.testing.server import running_server

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
TRAFFIC_SECONDS = 45.0
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}

# File name: address, what the page shows when it is ready, size and theme.
PICTURES = {
    "console-overview": ("/", "Needs attention", DESKTOP, "light"),
    "console-overview-dark": ("/", "Needs attention", DESKTOP, "dark"),
    "console-topics": ("/topics?sort=rate&order=desc", "orders", DESKTOP, "light"),
    "console-topic": ("/topics/orders?seq=398", "Record 398", DESKTOP, "light"),
    "console-dead-letters": ("/queues/jobs?tab=dead", "delivered", DESKTOP, "dark"),
    "console-routes": ("/routes", "orders-to-audit", DESKTOP, "light"),
    "console-overview-phone": ("/", "Needs attention", PHONE, "light"),
    "console-topic-phone": ("/topics/orders", "order_id", PHONE, "dark"),
}


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    command = Chromium.found()
    assert command is not None, "chromium is not installed; `make system-deps` installs it"
    with tempfile.TemporaryDirectory(prefix="topics-screenshots-") as directory:
        settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": directory})
        with running_server(settings) as url, Api(url) as api:
            fill(api)
            stop = threading.Event()
            traffic = threading.Thread(target=send_traffic, args=(url, stop))
            traffic.start()
            try:
                time.sleep(TRAFFIC_SECONDS)
                take_all(api, url, command)
            finally:
                stop.set()
                traffic.join()


def take_all(api: Api, url: str, command: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=["--no-sandbox"])
        for name, picture in PICTURES.items():
            report(api, "main", int(time.time() * 1000))
            take(browser, url, name, *picture)
        browser.close()


def send_traffic(url: str, stop: threading.Event) -> None:
    """Some hundred records a second, in waves."""
    chance = random.Random(3)
    with Api(url) as api:
        wave = 0
        while not stop.wait(0.1):
            wave += 1
            size = 10 + wave % 90 // 2 + chance.randrange(12)
            api.post(
                "/v0/topics/clicks", {"records": [{"data": {"page": f"/product/{number}"}} for number in range(size)]}
            )
            api.post("/v0/topics/metrics.hourly/diff", {"limit": size})
            api.post("/v0/topics/clicks/diff", {"from_seq": 0, "limit": size})


def take(browser: Browser, url: str, name: str, address: str, ready: str, size: dict[str, int], theme: str) -> None:
    context = browser.new_context(base_url=url, viewport=size, color_scheme=theme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"/#{address}")
    page.get_by_text(ready).first.wait_for()
    # Two polls: rates and charts are filled.
    page.wait_for_timeout(5000)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    context.close()
    print(f"wrote {path.relative_to(IMAGES.parent.parent)}, {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
