"""Who may do what: signing in, expired tokens, and what a key may not do; and a server that goes away and comes back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import watched_page
from tests.served import server_settings
from topics.testing.http import Api
from topics.testing.process import ServerProcess
from topics.testing.server import running_server

pytestmark = pytest.mark.slow

KEYS = "full,reader:read:,tenant::team."
# By address: what a key that may only read cannot do there.
CHANGES = {
    "/topics": ["New topic"],
    "/topics/other?seq=1": ["Send a record", "Repeat"],
    "/topics/other?tab=config": ["Preview", "Save", "Count and delete"],
    "/topics/other?tab=archive": ["Archive this topic"],
    "/queues": ["New queue"],
    "/queues/work": ["Send a job", "Extend", "Release", "Finish"],
    "/queues/work?tab=dead": ["Move filtered", "Move all"],
    "/groups/other/g": ["Seek", "End session"],
    "/routes": ["New router"],
    "/pipelines": ["Stop"],
}
EXPECTED = ("401 (Unauthorized)", "403 (Forbidden)")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = server_settings(tmp_path_factory.mktemp("guarded"), TOPICS_API_KEYS=KEYS)
    with running_server(settings) as found:
        with Api(found, {"Authorization": "Bearer full"}) as api:
            for name in ("team.a", "other"):
                api.post(f"/v0/topics/{name}", {"records": [{"data": 1}]})
            api.put("/v0/topics/work", {"type": "queue", "max_deliveries": 1, "dead_letter": "work.dead"})
            api.post("/v0/topics/work", {"records": [{"data": 1}]})
            api.post("/v0/topics/work/claim", {"node": "w"})
            poll = {"topic": "other", "group_id": "g", "consumer_id": "m", "timeout_seconds": 0}
            api.post("/api/topics/consume", poll)
            api.put("/api/pipelines/main", {"state": "running", "started_ts": 1, "jobs": []})
        yield found


def sign_in(page: Page, key: str) -> None:
    page.locator("[data-role=key]").fill(key)
    page.get_by_role("button", name="Sign in", exact=True).click()


def test_key_is_asked_for_kept_in_the_tab_and_never_in_an_address(browser: Browser, guarded: str) -> None:
    with watched_page(browser, guarded, EXPECTED) as page:
        addresses: list[str] = []
        page.on("request", lambda request: addresses.append(request.url))
        page.goto("/#/topics/other?tab=tail")
        sign_in(page, "wrong")
        expect(page.get_by_role("alert")).to_contain_text("the key is not known here")
        sign_in(page, "full")
        expect(page.locator("h1")).to_have_text("other")
        expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
        page.reload()
        expect(page.locator("h1")).to_have_text("other")
        assert not [address for address in addresses if "full" in address or "token" in address]
        assert page.evaluate("localStorage.length") == 0
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("h1")).to_have_text("Sign in")
        assert page.evaluate("sessionStorage.getItem('topics.credential')") is None


def test_what_a_key_may_not_do_is_disabled_with_the_reason(browser: Browser, guarded: str) -> None:
    with watched_page(browser, guarded, EXPECTED) as page:
        page.goto("/#/topics/other")
        sign_in(page, "reader")
        page.get_by_role("button", name="More actions").click()
        button = page.get_by_role("button", name="Delete topic")
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(button).to_have_attribute("title", "This key lacks the scope delete.")
        button.click(force=True)
        expect(page.locator("#toasts")).to_contain_text("lacks the scope delete")
        expect(page.get_by_role("dialog")).to_have_count(0)
        # Every button that changes something, on every screen, is disabled and says which scope it needs.
        for address, labels in CHANGES.items():
            page.goto(f"/#{address}")
            for label in labels:
                button = page.get_by_role("button", name=label, exact=True).first
                expect(button).to_have_attribute("aria-disabled", "true")
                expect(button).to_have_attribute("title", re.compile("This key lacks the scope"))
        page.goto("/#/settings")
        expect(page.locator("tr", has_text="Append, claim and acknowledge")).to_contain_text("no")


def test_key_with_prefixes_sees_its_own_topics_only(browser: Browser, guarded: str) -> None:
    with watched_page(browser, guarded, EXPECTED) as page:
        page.goto("/#/topics")
        sign_in(page, "tenant")
        expect(page.get_by_role("link", name="team.a")).to_be_visible()
        expect(page.get_by_role("link", name="other")).to_have_count(0)
        expect(page.locator("[data-role=total]")).to_have_text("1 topic")
        page.goto("/#/topics/other")
        expect(page.get_by_role("alert")).to_contain_text("outside the prefixes")


def test_expired_token_leads_to_the_sign_in_and_back(browser: Browser, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('[[users]]\nname = "ada"\nrole = "dba"\npassword = "engine"\n')
    more = {"TOPICS_CONFIG": str(config), "TOPICS_JWT_SECRET": "s" * 40, "TOPICS_TOKEN_SECONDS": "3"}
    with (
        running_server(server_settings(tmp_path / "data", **more)) as url,
        watched_page(browser, url, EXPECTED) as page,
    ):
        page.goto("/#/topics")
        page.locator("[data-role=user]").fill("ada")
        page.locator("[data-role=password]").fill("engine")
        page.get_by_role("button", name="Sign in as user").click()
        expect(page.locator("h1")).to_have_text("Topics")
        # The list polls: the first request after three seconds is refused.
        expect(page.get_by_role("alert")).to_contain_text("You were signed out")
        page.locator("[data-role=user]").fill("ada")
        page.locator("[data-role=password]").fill("engine")
        page.get_by_role("button", name="Sign in as user").click()
        expect(page.locator("h1")).to_have_text("Topics")


def test_restart_is_noticed_and_reading_goes_on(browser: Browser, tmp_path: Path) -> None:
    lost = ("net::ERR", "503 (Service Unavailable)", "404 (Not Found)")
    with ServerProcess(tmp_path) as server, Api(server.url) as api:
        api.post("/v0/topics/a", {"records": [{"data": "before"}]})
        with watched_page(browser, server.url, lost) as page:
            page.goto("/#/topics/a?tab=tail")
            expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
            server.kill()
            expect(page.locator("#banner")).to_contain_text("Connection lost")
            server.start()
            expect(page.locator("#banner")).to_contain_text(re.compile("Reconnected. The server was restarted"))
            expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
            with Api(server.url) as again:
                again.post("/v0/topics/a", {"records": [{"data": "after"}]})
            expect(page.locator("tbody")).to_contain_text('"after"')
