"""Every screen with real data: it shows them, says so to screen readers, and its address brings it back."""

from collections.abc import Iterator
from importlib.resources import files
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.console.conftest import load_factor, watched, watched_page
from tools.console_data import HOSTILE, fill_hostile
from topics.testing.http import Api

pytestmark = pytest.mark.slow

MAX_FIRST_PAINT_MS = 200

# By address: a text that only the right data show.
SCREENS = {
    "/": "6 dead letters of jobs in jobs.dead",
    "/topics": "sensor.readings",
    "/topics/orders?seq=400": "customer-5",
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
    "/queues/jobs?tab=dead": "image is not readable",
    "/groups": "climate",
    "/groups/orders/billing": "Lag in records",
    "/routes": "orders-to-audit",
    "/pipelines": "expected DOUBLE, got VARCHAR",
    "/live": "Live connections",
    "/sql?q=SELECT+topic_id+FROM+system.topics": "metrics.hourly",
    "/settings": "every client of this server may do everything",
    "/settings?tab=health": "Nothing fails",
    "/settings?tab=settings": "TOPICS_DATA_DIR",
}


# By the key after "g".
HEADINGS = {
    "o": "Overview",
    "t": "Topics",
    "q": "Queues",
    "g": "Consumer groups",
    "r": "Routers and routes",
    "p": "Pipelines",
    "l": "Live connections",
    "s": "SQL",
    "e": "Settings",
}
# What can be pressed, opened or filled but shows no outline, no box, or cannot be reached, when it has the focus.
UNREACHABLE = """() => {
  const found = [];
  const wanted = "a[href], button:not(:disabled), input, select, textarea, summary, [tabindex]:not(.skip)";
  for (const each of document.querySelectorAll(wanted)) {
    if (!each.checkVisibility({visibilityProperty: true}) || each.id === "main") continue;
    each.focus({focusVisible: true});
    const style = getComputedStyle(each);
    const ring = each.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    if (document.activeElement !== each || !ring) found.push(each.outerHTML.slice(0, 160));
  }
  document.activeElement.blur();
  return found;
}"""
SHIFTS = """window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((each) => {
    if (!each.hadRecentInput) window.shift += each.value; })).observe({type: 'layout-shift', buffered: true});"""
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()


def serious_findings(page: Page, part: str = "html") -> list[str]:
    """What axe finds in a part of the page. The page must bypass the policy, which refuses the script of axe."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    report = page.evaluate("(part) => axe.run(part, {resultTypes: ['violations'], preload: false})", part)
    return [
        f"{violation['id']}: {[node['html'][:160] for node in violation['nodes'][:3]]}"
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


def check_screen(page: Page, address: str, width: int) -> None:
    """The screen shows its data, has a heading, fits the page, does not move while it loads, axe finds nothing, and the focus shows."""
    expect(page.locator("main")).to_contain_text(SCREENS[address])
    expect(page.locator("h1").first).to_be_visible()
    assert page.url.endswith(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.shift") < 0.1
    assert serious_findings(page) == []
    assert page.evaluate(UNREACHABLE) == []


@pytest.fixture(scope="module")
def inspected(browser: Browser, url: str) -> Iterator[BrowserContext]:
    """A context whose pages run axe, which the policy refuses, and count how far their content moves."""
    context = browser.new_context(base_url=url, bypass_csp=True, viewport={"width": 1440, "height": 900})
    context.add_init_script(SHIFTS)
    yield context
    context.close()


@pytest.mark.parametrize("address", SCREENS)
def test_screen_shows_its_data_in_both_themes_and_widths_and_survives_reload(
    inspected: BrowserContext, url: str, address: str
) -> None:
    with watched(inspected, url) as page:
        page.goto(f"/#{address}")
        check_screen(page, address, 1440)
        page.set_viewport_size({"width": 390, "height": 844})
        page.emulate_media(color_scheme="dark")
        page.reload()
        check_screen(page, address, 390)


def test_axe_finds_nothing_serious_in_dialogs_menus_and_messages(browser: Browser, url: str) -> None:
    with watched_page(browser, url, bypass_csp=True, viewport={"width": 390, "height": 844}) as page:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.goto("about:blank")
            page.goto("/#/topics/orders?seq=400")
            expect(page.locator("#record")).to_be_visible()
            page.get_by_role("button", name="Menu").click()
            assert serious_findings(page, "#sidebar") == []
            page.get_by_role("button", name="Close the menu").click(position={"x": 380, "y": 400})
            page.get_by_role("button", name="More actions").click()
            assert serious_findings(page, ".menu:popover-open") == []
            page.get_by_role("button", name="Delete topic").click()
            expect(page.get_by_role("dialog")).to_be_visible()
            assert serious_findings(page, "dialog") == []
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Send a record").click()
            page.locator("[data-role=data]").fill("not JSON")
            page.get_by_role("dialog").get_by_role("button", name="Send", exact=True).click()
            expect(page.get_by_role("alert")).to_be_visible()
            assert serious_findings(page, "dialog") == []
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Theme").click()
            expect(page.locator("#toasts")).to_contain_text("Theme: light")
            assert page.evaluate("document.documentElement.dataset.theme") == "light"
            assert serious_findings(page, "#toasts") == []
            page.evaluate("localStorage.clear()")


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


def test_address_that_names_no_screen_says_so(page: Page) -> None:
    for address in ("/nothing", "/topics/%E0%A4%A"):
        page.goto(f"/#{address}")
        expect(page.locator("h1")).to_have_text("No such screen")


def test_hostile_names_and_texts_are_shown_as_text(page: Page, api: Api) -> None:
    fill_hostile(api)
    encoded = quote(HOSTILE, safe="")
    for address in (
        "/topics/hostile?seq=1",
        f"/topics/hostile?tag={quote(HOSTILE[:4])}*",
        "/topics/hostile?tab=archive",
        "/topics/hostile?tab=groups",
        "/queues/hostile.jobs?tab=in_flight",
        "/queues/hostile.jobs?tab=dead",
        "/groups",
        f"/groups/hostile/{encoded}",
        "/pipelines",
        f"/sql?q={quote('SELECT group_id FROM system.consumer_groups')}",
    ):
        page.goto("about:blank")
        page.goto(f"/#{address}")
        if "/sql" in address:
            page.get_by_role("button", name="Run").click()
        expect(page.locator("main")).to_contain_text("<img src=x onerror")
        assert page.locator("main img").count() == 0, address
    # Titles of dialogs and messages.
    page.goto(f"/#/groups/hostile/{encoded}")
    page.get_by_role("button", name="Seek").click()
    expect(page.get_by_role("dialog").locator("h2")).to_contain_text(HOSTILE)
    page.get_by_role("dialog").get_by_role("button", name="Seek").click()
    expect(page.locator("#toasts")).to_contain_text(HOSTILE)


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
    for key, heading in HEADINGS.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("h1")).to_have_text(heading)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_first_paint_takes_less_than_200_ms_on_a_machine_that_does_nothing_else(browser: Browser, url: str) -> None:
    painted = []
    for _ in range(3):
        with watched_page(browser, url) as page:
            page.goto("/#/")
            expect(page.locator("main")).to_contain_text("Needs attention")
            painted.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            # The other screens are loaded behind the first one.
            page.wait_for_function(
                "number => performance.getEntriesByType('resource')"
                ".filter((e) => e.name.includes('/console/screens/') && e.responseEnd).length === number",
                arg=len(
                    [each for each in (files("topics.console") / "screens").iterdir() if each.name.endswith(".js")]
                ),
            )
            sizes = page.evaluate(
                "performance.getEntries().filter((e) => e.entryType === 'navigation' || e.name.includes('/console/'))"
                ".map((e) => e.decodedBodySize)"
            )
            assert 20 < len(sizes) < 60
            assert sum(sizes) < 300_000
            # A reload asks for the page; every module is kept.
            page.reload()
            expect(page.locator("main")).to_contain_text("Needs attention")
            fetched = page.evaluate(
                "performance.getEntriesByType('resource').filter((e) => e.name.includes('/console/') && e.transferSize)"
                ".map((e) => e.name)"
            )
            assert fetched == []
    assert min(painted) < MAX_FIRST_PAINT_MS * load_factor()
