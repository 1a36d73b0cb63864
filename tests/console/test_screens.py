"""Every screen with real data: it shows them, says so to screen readers, and its address brings it back."""

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import watched_page
from tools.console_data import HOSTILE
from topics.testing.http import Api

# The first four show every kind of part there is.
AXE_SCREENS = ["/", "/topics/orders?seq=400", "/queues/jobs?tab=dead", "/topics/orders?tab=config", "/topics", "/groups/orders/billing",
               "/routes", "/pipelines", "/sql?q=SHOW%20TOPICS", "/settings"]  # fmt: skip
pytestmark = pytest.mark.slow

# By address: a text that only the right data show.
SCREENS = {
    "/": "6 dead letters of jobs in jobs.dead",
    "/topics": "sensor.readings",
    "/topics/orders": "customer-5",
    "/topics/orders?tab=tail": "Waiting for records",
    "/topics/clicks?tab=timeline": "by a cap or their age",
    "/topics/sensor.readings?tab=partitions": "Earliest seq",
    "/topics/orders?tab=groups": "warehouse",
    "/topics/orders?tab=archive": "archive/orders",
    "/topics/orders?tab=config": "Idempotency window",
    "/queues": "jobs",
    "/queues/jobs?tab=in_flight": "worker-2",
    "/queues/jobs?tab=ready": "new-3.png",
    "/queues/jobs?tab=delayed": "report",
    "/queues/jobs?tab=dead": "delivered 1 time",
    "/groups": "climate",
    "/groups/orders/billing": "Lag in records",
    "/routes": "orders-to-audit",
    "/pipelines": "expected DOUBLE, got VARCHAR",
    "/live": "Open now",
    "/sql?q=SELECT+topic_id+FROM+system.topics": "metrics.hourly",
    "/settings": "every client of this server may do everything",
    "/settings?tab=health": "Nothing fails",
    "/settings?tab=settings": "TOPICS_DATA_DIR",
}


@pytest.mark.parametrize("address", SCREENS)
def test_screen_shows_its_data_and_survives_reload(page: Page, address: str) -> None:
    page.goto(f"/#{address}")
    main = page.locator("main")
    expect(main).to_contain_text(SCREENS[address])
    page.reload()
    expect(main).to_contain_text(SCREENS[address])
    assert page.url.endswith(address)
    expect(page.locator("h1").first).to_be_visible()


def test_back_button_returns_to_the_screen_before(page: Page) -> None:
    page.goto("/#/topics")
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.locator("h1")).to_have_text("orders")
    page.get_by_role("link", name="Configuration").click()
    expect(page.locator("main")).to_contain_text("Delete records")
    page.go_back()
    expect(page.locator("main")).to_contain_text("customer-5")
    page.go_back()
    expect(page.locator("h1")).to_have_text("Topics")


def test_hostile_texts_are_shown_as_text(page: Page) -> None:
    for address in ("/topics/orders?seq=401", "/queues/jobs?tab=dead", f"/topics/orders?tag={HOSTILE[:4]}*"):
        page.goto("about:blank")
        page.goto(f"/#{address}")
        expect(page.locator("main")).to_contain_text("<img src=x onerror")
        assert page.locator("main img").count() == 0


def test_keyboard_opens_search_screens_and_rows(page: Page) -> None:
    page.goto("/#/")
    expect(page.locator("main")).to_contain_text("Needs attention")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("h1")).to_have_text("Topics")
    expect(page.get_by_role("link", name="audit.changes")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="audit.changes")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("audit.changes")
    page.keyboard.press("/")
    page.keyboard.type("sensor")
    expect(page.get_by_role("option", name="sensor.readings")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("sensor.readings")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, url: str, scheme: str) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    # Only here: axe is run by a script that the policy would refuse.
    with watched_page(browser, url, bypass_csp=True, color_scheme=scheme) as page:
        found: dict[str, Any] = {}
        for address in AXE_SCREENS if scheme == "light" else AXE_SCREENS[:4]:
            page.goto("about:blank")
            page.goto(f"/#{address}")
            expect(page.locator("h1").first).to_be_visible()
            page.evaluate(axe)
            report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            for violation in report["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    where = [node["html"][:160] for node in violation["nodes"][:3]]
                    found[f"{address} {violation['id']}"] = where
        assert found == {}


@pytest.mark.parametrize("width", [390, 1440])
def test_no_screen_scrolls_sideways_or_shifts(browser: Browser, url: str, width: int) -> None:
    with watched_page(browser, url, viewport={"width": width, "height": 900}) as page:
        page.add_init_script(
            "window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((each) => { if (!each.hadRecentInput) "
            "window.shift += each.value; })).observe({type: 'layout-shift', buffered: true});"
        )
        for address in ("/", "/topics", "/topics/orders", "/queues/jobs", "/groups", "/routes", "/settings"):
            page.goto("about:blank")
            page.goto(f"/#{address}")
            expect(page.locator("main")).to_contain_text(SCREENS.get(address, "Ready"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
            assert page.evaluate("window.shift") < 0.1, address


def test_first_paint_is_quick_and_all_files_are_small(page: Page, api: Api) -> None:
    page.goto("/#/")
    expect(page.locator("main")).to_contain_text("Needs attention")
    page.reload()
    expect(page.locator("main")).to_contain_text("Needs attention")
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    # 200 ms on a machine with nothing else to do.
    assert painted < 1000
    sizes = page.evaluate(
        "performance.getEntriesByType('resource').filter((e) => e.name.includes('/console/')).map((e) => e.decodedBodySize)"
    )
    assert 20 < len(sizes) < 60
    assert sum(sizes) < 300_000
