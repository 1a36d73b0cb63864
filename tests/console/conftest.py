"""Chromium with a page for each test, and one server with something to show on every screen.

A page fails its test when it logs an error, raises an exception or asks another host for something.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.served import server_settings
from tools.console_data import fill
from topics.testing.chromium import Chromium
from topics.testing.http import Api
from topics.testing.server import running_server

# Reached only by a test that fails, or on a machine that is very busy.
PATIENCE_MS = 20_000
expect.set_options(timeout=PATIENCE_MS)
MAX_LOAD_FACTOR = 4.0


def load_factor() -> float:
    """By how much longer a bound on time is while other processes use the processors."""
    return min(MAX_LOAD_FACTOR, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Close the browser after each module: while it is open, its event loop runs in this thread and `asyncio.run` fails.

    Scope "package" would keep it open until the end of the session, because test folders are not Python packages.
    """
    command = Chromium.found()
    assert command is not None, "chromium is not installed; `make system-deps` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(server_settings(tmp_path_factory.mktemp("console"))) as found:
        with Api(found) as api:
            fill(api)
        yield found


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    with Api(url) as api:
        yield api


@contextmanager
def watched_page(browser: Browser, url: str, allowed_errors: tuple[str, ...] = (), **options: object) -> Iterator[Page]:
    """A page in a context of its own, watched by `watched`."""
    context: BrowserContext = browser.new_context(base_url=url, **options)  # type: ignore[arg-type]
    try:
        with watched(context, url, allowed_errors) as page:
            yield page
    finally:
        context.close()


@contextmanager
def watched(context: BrowserContext, url: str, allowed_errors: tuple[str, ...] = ()) -> Iterator[Page]:
    """A page that fails at its end if anything went wrong in it. Errors that contain one of `allowed_errors` are expected."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    problems: list[str] = []

    def note(text: str) -> None:
        if not any([allowed in text for allowed in allowed_errors]):
            problems.append(text)

    page.on("console", lambda message: note(f"{message.type}: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: note(f"exception: {error}"))
    page.on(
        "request", lambda request: None if request.url.startswith((url, "blob:")) else note(f"foreign: {request.url}")
    )
    try:
        yield page
        hacked = page.evaluate("window.hacked")
    finally:
        page.close()
    assert problems == []
    assert hacked is None, "a text was inserted as HTML"


@pytest.fixture(scope="module")
def context(browser: Browser, url: str) -> Iterator[BrowserContext]:
    """The context of the pages of a module: they share the cache of files, not the session storage."""
    context = browser.new_context(base_url=url)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, url: str) -> Iterator[Page]:
    with watched(context, url) as page:
        yield page
