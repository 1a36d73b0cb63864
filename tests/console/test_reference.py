"""The API reference at /docs works in a browser, without anything from another host."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.conftest import watched_page
from tests.served import server_settings
from topics.api.operations import OPERATIONS
from topics.testing.server import running_server

pytestmark = pytest.mark.slow


def test_reference_shows_every_operation_finds_words_and_opens_what_its_address_names(
    browser: Browser, tmp_path: Path
) -> None:
    with running_server(server_settings(tmp_path)) as url, watched_page(browser, url) as page:
        page.goto("/docs#append")
        operations = page.locator("details.operation")
        expect(operations).to_have_count(len(OPERATIONS))
        expect(page.locator("#append table").first).to_be_visible()
        page.get_by_label("Search").fill("dead letters redrive")
        expect(page.locator("details.operation:visible")).to_have_count(1)
        expect(page.locator("#redrive")).to_be_visible()
        page.get_by_label("Search").fill("")
        expect(page.locator("details.operation:visible")).to_have_count(len(OPERATIONS))
