"""Write the pictures of the console to docs/images: `make screenshots`. With --all, every screen in both widths and themes to build/.

A server of its own is filled with example data and started again, so that its charts begin with the traffic that follows.
"""

import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tools.console_data import fill, hold_jobs, order, report
from topics.server.ops.settings import load_settings
from topics.testing.chromium import Chromium
from topics.testing.http import Api
from topics.testing.server import running_server

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
ALL_IMAGES = ROOT / "build" / "screenshots"
TRAFFIC_SECONDS = 75.0
REPORT_SECONDS = 5.0
# Two polls: rates and charts are filled.
SETTLE_MS = 5_000
DESKTOP = ViewportSize(width=1440, height=900)
PHONE = ViewportSize(width=390, height=844)


class Picture(NamedTuple):
    """An address, and a text that the page shows when it is ready. `settle_ms`: how long its charts are filled."""

    address: str
    ready: str
    size: ViewportSize = DESKTOP
    theme: str = "light"
    settle_ms: int = SETTLE_MS


PICTURES = {
    "console-overview": Picture("/", "Needs attention"),
    "console-overview-dark": Picture("/", "Needs attention", theme="dark"),
    "console-topics": Picture("/topics?sort=rate&order=desc", "orders", settle_ms=30_000),
    "console-topic": Picture("/topics/orders?seq=398", "Record 398"),
    "console-dead-letters": Picture("/queues/jobs?tab=dead", "image is not readable", theme="dark"),
    "console-routes": Picture("/routes", "orders-to-audit"),
    "console-overview-phone": Picture("/", "Needs attention", PHONE),
    "console-topic-phone": Picture("/topics/orders", "order_id", PHONE, "dark"),
}
# Every screen and tab: address and a text that it shows.
SCREENS = {
    "overview": ("/", "Needs attention"),
    "topics": ("/topics", "orders"),
    "topic": ("/topics/orders?seq=398", "Record 398"),
    "topic-tail": ("/topics/clicks?tab=tail", "product"),
    "topic-timeline": ("/topics/clicks?tab=timeline", "by a cap"),
    "topic-partitions": ("/topics/sensor.readings?tab=partitions", "Earliest seq"),
    "topic-groups": ("/topics/orders?tab=groups", "warehouse"),
    "topic-archive": ("/topics/orders?tab=archive", "archive/orders"),
    "topic-config": ("/topics/orders?tab=config", "Idempotency window"),
    "queues": ("/queues", "jobs"),
    "queue": ("/queues/jobs", "worker-2"),
    "queue-dead": ("/queues/jobs?tab=dead", "image is not readable"),
    "groups": ("/groups", "climate"),
    "group": ("/groups/sensor.readings/climate", "Lag in records"),
    "routes": ("/routes", "orders-to-audit"),
    "pipelines": ("/pipelines", "local[2]"),
    "live": ("/live", "Live connections"),
    "sql": ("/sql?q=SELECT+topic_id,+type,+count,+bytes+FROM+system.topics", "rows in"),
    "settings": ("/settings", "every client of this server"),
    "settings-health": ("/settings?tab=health", "Nothing fails"),
    "settings-settings": ("/settings?tab=settings", "TOPICS_DATA_DIR"),
}
ALL_PICTURES = {
    f"{name}-{width}-{theme}": Picture(address, ready, size, theme, settle_ms=1_200)
    for name, (address, ready) in SCREENS.items()
    for width, size in {"1440": DESKTOP, "390": PHONE}.items()
    for theme in ("light", "dark")
}


def main(arguments: list[str]) -> None:
    every = "--all" in arguments
    folder, pictures = (ALL_IMAGES, ALL_PICTURES) if every else (IMAGES, PICTURES)
    only = [argument for argument in arguments if not argument.startswith("--")]
    chosen = {name: each for name, each in pictures.items() if not only or any([part in name for part in only])}
    folder.mkdir(parents=True, exist_ok=True)
    command = Chromium.found()
    assert command is not None, "chromium is not installed; `make system-deps` installs it"
    with tempfile.TemporaryDirectory(prefix="topics-screenshots-") as directory:
        settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": directory})
        with running_server(settings) as url, Api(url) as api:
            fill(api)
        with running_server(settings) as url, Api(url) as api:
            hold_jobs(api)
            stop = threading.Event()
            threads = [threading.Thread(target=work, args=(url, stop)) for work in (send_traffic, send_reports)]
            for thread in threads:
                thread.start()
            try:
                time.sleep(TRAFFIC_SECONDS)
                take_all(url, command, folder, chosen)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()


def take_all(url: str, command: str, folder: Path, pictures: dict[str, Picture]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=["--no-sandbox"])
        # Watched by the pictures of live connections.
        watcher = browser.new_page(base_url=url)
        watcher.goto("/#/topics/clicks?tab=tail")
        for name, picture in pictures.items():
            take(browser, url, folder / f"{name}.png", picture)
        browser.close()


def send_traffic(url: str, stop: threading.Event) -> None:
    """Some hundred records a second, in waves; orders, and jobs that are finished."""
    chance = random.Random(3)
    with Api(url) as api:
        wave = 0
        while not stop.wait(0.1):
            wave += 1
            size = 10 + wave % 90 // 2 + chance.randrange(12)
            clicks = [{"data": {"page": f"/product/{number}", "ms": chance.randrange(900)}} for number in range(size)]
            api.post("/v0/topics/clicks", {"records": clicks})
            readings = [{"data": {"celsius": 20 + chance.randrange(9)}} for _ in range(size // 4)]
            api.post("/v0/topics/sensor.readings", {"records": readings, "partition": wave % 4})
            orders = [order(chance, 20_000 + 3 * wave + number) for number in range(chance.randrange(3))]
            if orders:
                api.post("/v0/topics/orders", {"records": orders, "node": "shop-1"})
            api.post("/v0/topics/metrics.hourly/diff", {"limit": size})
            api.post("/v0/topics/clicks/diff", {"from_seq": 0, "limit": size})
            jobs = [{"data": {"to": f"user-{number}@example.com"}} for number in range(chance.randrange(1, 4))]
            api.post("/v0/topics/mails", {"records": jobs})
            claimed = api.post("/v0/topics/mails/claim", {"node": "mailer-1", "max": 3}).json["claimed"]
            api.post("/v0/topics/mails/ack", {"node": "mailer-1", "seqs": [job["$seq"] for job in claimed]})


def send_reports(url: str, stop: threading.Event) -> None:
    with Api(url) as api:
        report(api, "main", int(time.time() * 1000))
        while not stop.wait(REPORT_SECONDS):
            report(api, "main", int(time.time() * 1000))


def take(browser: Browser, url: str, path: Path, picture: Picture) -> None:
    context = browser.new_context(base_url=url, viewport=picture.size, color_scheme=picture.theme)  # type: ignore[arg-type]
    page: Page = context.new_page()
    page.goto(f"/#{picture.address}")
    page.get_by_text(picture.ready).first.wait_for()
    page.wait_for_timeout(picture.settle_ms)
    page.screenshot(path=path)
    context.close()
    print(f"wrote {path.relative_to(ROOT)}, {path.stat().st_size // 1024} KB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
