"""Every action of the console, performed in the browser; its effect is checked through the API."""

import re
import threading
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.console.conftest import watched_page
from topics.testing.http import Api

pytestmark = pytest.mark.slow


def append(api: Api, topic: str, *records: dict[str, Any], **more: Any) -> None:
    assert api.post(f"/v0/topics/{topic}", {"records": list(records), **more}).status in (200, 201)


def read(api: Api, topic: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = api.post(f"/v0/topics/{topic}/diff", {"include_tags": True}).json["records"]
    return records


def confirm(page: Page, name: str, button: str) -> None:
    """Type the name that a destructive action asks for; before that its button does nothing."""
    dialog = page.get_by_role("dialog")
    press = dialog.get_by_role("button", name=button)
    expect(press).to_be_disabled()
    dialog.locator("[data-role=confirm-name]").fill(name)
    press.click()
    expect(dialog).to_have_count(0)


def row(page: Page, text: str) -> Locator:
    return page.locator("tbody tr", has_text=text)


def test_create_send_repeat_and_delete_a_topic(page: Page, api: Api) -> None:
    page.goto("/#/topics")
    page.get_by_role("button", name="New topic").click()
    page.locator("[data-role=name]").fill("made.here")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("h1")).to_have_text("made.here")
    assert api.get("/v0/topics/made.here").json["count"] == 0
    expect(page.locator("main")).to_contain_text("This topic holds no records")

    page.get_by_role("button", name="Send a record").click()
    page.locator("[data-role=data]").fill('{"amount": 12345678901234567890}')
    page.locator("[data-role=tag]").fill("t1")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(row(page, "t1")).to_have_count(1)
    row(page, "t1").locator("td").last.click()
    page.get_by_role("button", name="Repeat").click()
    page.get_by_role("dialog").get_by_role("button", name="Send", exact=True).click()
    expect(row(page, "t1")).to_have_count(2)
    # Sent byte for byte: the number has more digits than JavaScript keeps.
    raw = api.post("/v0/topics/made.here/diff", {}).body
    assert raw.count(b'{"amount": 12345678901234567890}') == 2

    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("dialog")).to_contain_text("2 records")
    confirm(page, "made.here", "Delete topic")
    expect(page.locator("h1")).to_have_text("Topics")
    assert api.get("/v0/topics/made.here").status == 404


def test_wrong_data_is_refused_with_what_to_do(page: Page, api: Api) -> None:
    append(api, "refusing", {"data": 1})
    page.goto("/#/topics/refusing")
    page.get_by_role("button", name="Send a record").click()
    page.locator("[data-role=data]").fill("hello")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Texts need quotes")


def test_records_are_found_by_seq_time_and_tag(page: Page, api: Api) -> None:
    append(api, "found", *[{"data": {"n": number}, "tag": f"k{number % 3}"} for number in range(300)])
    page.goto("/#/topics/found")
    expect(row(page, '{"n":299}')).to_have_count(1)
    page.get_by_label("Tag", exact=True).fill("k1")
    expect(row(page, '{"n":298}')).to_have_count(1)
    expect(row(page, '{"n":299}')).to_have_count(0)
    page.get_by_label("Tag", exact=True).fill("")
    page.get_by_label("From seq").fill("10")
    expect(row(page, '{"n":9}')).to_have_count(1)
    assert "from=10" in page.url
    page.get_by_role("button", name="Newest").click()
    page.get_by_role("button", name="Older").click()
    expect(row(page, '{"n":249}')).to_have_count(1)
    page.get_by_label("From time").fill("2020-01-01T00:00:00")
    expect(row(page, '{"n":0}')).to_have_count(1)


def test_a_record_is_copied_as_curl_python_and_sql(page: Page, api: Api) -> None:
    append(api, "copied", {"data": {"a": 1}})
    page.goto("/#/topics/copied?seq=1")
    detail = page.locator("#record")
    for language, text in {"curl": "curl -sS", "Python": "client.diff(", "SQL": "CONSUME FROM copied"}.items():
        detail.get_by_role("button", name=language, exact=True).click()
        expect(detail).to_contain_text(text)


def test_tail_shows_records_pauses_and_counts_what_arrives(page: Page, api: Api) -> None:
    append(api, "tailed", {"data": "before"})
    page.goto("/#/topics/tailed?tab=tail")
    expect(page.get_by_text("Live", exact=True).last).to_be_visible()
    expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
    append(api, "tailed", {"data": "one"})
    expect(row(page, '"one"')).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    append(api, "tailed", {"data": "two"}, {"data": "three"})
    expect(page.locator("[data-role=arrived]")).to_have_text("2 records arrived while paused")
    expect(row(page, '"two"')).to_have_count(0)
    page.get_by_role("button", name="Resume").click()
    expect(row(page, '"three"')).to_have_count(1)


def test_delete_by_tag_shows_the_count_first(page: Page, api: Api) -> None:
    append(api, "tagged", *[{"data": number, "tag": "odd" if number % 2 else "even"} for number in range(9)])
    page.goto("/#/topics/tagged?tab=config")
    page.get_by_label("Tag of records to delete").fill("odd")
    page.get_by_role("button", name="Count and delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("4 records of 9 match")
    assert len(read(api, "tagged")) == 9
    confirm(page, "tagged", "Delete 4 records")
    expect(page.locator("#toasts")).to_contain_text("Deleted 4 records")
    assert [record["$tag"] for record in read(api, "tagged")] == ["even"] * 5


def test_config_change_says_what_it_drops_before_it_is_saved(page: Page, api: Api) -> None:
    append(api, "capped", *[{"data": number} for number in range(30)])
    page.goto("/#/topics/capped?tab=config")
    page.locator("input[name=cap_records]").fill("10")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("drops 20 records")
    assert api.get("/v0/topics/capped").json["count"] == 30
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("was saved")
    assert api.get("/v0/topics/capped").json["count"] == 10


def test_leases_are_extended_released_and_finished_by_hand(page: Page, api: Api) -> None:
    api.put("/v0/topics/hand", {"type": "queue", "lease_ms": 30_000})
    append(api, "hand", *[{"data": {"job": number}} for number in range(3)])
    claimed = api.post("/v0/topics/hand/claim", {"node": "w", "max": 3}).json["claimed"]
    page.goto("/#/queues/hand")
    row(page, '"job":0').get_by_role("button", name="Extend").click()
    expect(page.locator("#toasts")).to_contain_text("ends in 60 s")
    leases = {job["seq"]: job for job in api.get("/v0/topics/hand/jobs?state=in_flight").json["jobs"]}
    assert leases[1]["deadline"] > claimed[0]["deadline"]
    row(page, '"job":1').get_by_role("button", name="Release").click()
    expect(row(page, '"job":1')).to_have_count(0)
    assert [job["seq"] for job in api.get("/v0/topics/hand/jobs").json["jobs"]] == [2]
    row(page, '"job":2').get_by_role("button", name="Finish").click()
    confirm(page, "3", "Finish job")
    expect(row(page, '"job":2')).to_have_count(0)
    assert api.get("/v0/topics/hand").json["count"] == 2


def dead_letters(api: Api, queue: str, count: int) -> None:
    api.put(f"/v0/topics/{queue}", {"type": "queue", "max_deliveries": 1, "dead_letter": f"{queue}.dead"})
    append(api, queue, *[{"data": {"job": number}, "tag": "a" if number < 2 else "b"} for number in range(count)])
    claimed = api.post(f"/v0/topics/{queue}/claim", {"node": "w", "max": count}).json["claimed"]
    api.post(f"/v0/topics/{queue}/nack", {"node": "w", "seqs": [job["$seq"] for job in claimed]})
    api.post(f"/v0/topics/{queue}/claim", {"node": "w", "max": count})


def test_dead_letters_are_moved_back_one_some_and_all(page: Page, api: Api) -> None:
    dead_letters(api, "letters", 6)
    page.goto("/#/queues/letters?tab=dead")
    expect(page.locator("[data-role=letters]")).to_have_text("6 letters")
    row(page, '"job":5').get_by_role("button", name="Move back").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 1 job").click()
    expect(page.locator("[data-role=letters]")).to_have_text("5 letters")
    page.get_by_label("Tag", exact=True).fill("a")
    expect(page.locator("[data-role=letters]")).to_have_text("2 letters")
    page.get_by_role("button", name="Move filtered").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 2 jobs").click()
    expect(page.locator("[data-role=letters]")).to_have_text("0 letters")
    page.get_by_label("Tag", exact=True).fill("")
    expect(page.locator("[data-role=letters]")).to_have_text("3 letters")
    page.get_by_label("Search data and tags").fill('"job":3')
    page.get_by_role("button", name="Move filtered").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 1 job").click()
    page.get_by_label("Search data and tags").fill("")
    expect(page.locator("[data-role=letters]")).to_have_text("2 letters")
    page.get_by_role("button", name="Move all").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 2 jobs").click()
    expect(page.locator("main")).to_contain_text("No dead letters")
    assert read(api, "letters.dead") == []
    jobs = read(api, "letters")
    assert sorted([job["data"]["job"] for job in jobs]) == list(range(6))
    assert all(["meta" not in job for job in jobs]), "the keys of the dead letter are gone"


def test_group_is_moved_after_a_preview_and_a_member_is_ended(page: Page, api: Api) -> None:
    append(api, "grouped", *[{"data": number} for number in range(20)])
    poll = {"topic": "grouped", "group_id": "g", "consumer_id": "m1", "timeout_seconds": 0}
    api.post("/api/topics/consume", poll)
    page.goto("/#/groups/grouped/g")
    row(page, "m1").get_by_role("button", name="End session").click()
    confirm(page, "m1", "End session")
    expect(page.locator("main")).to_contain_text("No live members")
    page.get_by_role("button", name="Seek").click()
    page.locator("[data-role=where]").select_option("Latest")
    expect(page.get_by_role("dialog")).to_contain_text("from 1 to 21, then 0 records behind")
    assert api.get("/api/groups?topic=grouped").json["groups"][0]["lag_records"] == 20
    page.get_by_role("dialog").get_by_role("button", name="Seek").click()
    expect(page.locator("main")).to_contain_text("caught up")
    assert api.get("/api/groups?topic=grouped").json["groups"][0]["lag_records"] == 0


def test_router_is_made_and_deleted(page: Page, api: Api) -> None:
    append(api, "flow.in", {"data": 1})
    page.goto("/#/routes")
    page.get_by_role("button", name="New router").click()
    for role, text in {"router": "flow", "source": "flow.in", "dest": "flow.out"}.items():
        page.locator(f"[data-role={role}]").fill(text)
    page.get_by_label("Also forward what the source holds now").check()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("link", name="Topic flow.out")).to_be_visible()
    assert api.get("/v0/routers/flow").json["dest"] == "flow.out"
    row(page, "flow.out").get_by_role("button", name="Delete").click()
    confirm(page, "flow", "Delete router")
    expect(row(page, "flow.out")).to_have_count(0)
    assert api.get("/v0/routers/flow").status == 404


def test_pipeline_is_stopped_and_forgotten(page: Page, api: Api) -> None:
    api.put("/api/pipelines/side", {"state": "running", "started_ts": 1, "jobs": []})
    page.goto("/#/pipelines")
    card = page.locator("section[aria-label=side]")
    card.get_by_role("button", name="Stop").click()
    confirm(page, "side", "Stop pipeline")
    expect(card).to_contain_text("asked to stop")
    assert api.get("/api/pipelines/side").json["stop"] is True
    card.get_by_role("button", name="Forget").click()
    expect(card).to_have_count(0)
    assert api.get("/api/pipelines/side").status == 404


def test_live_connection_is_listed_and_disconnected(page: Page, api: Api, url: str) -> None:
    append(api, "watched", {"data": 1})
    session = api.post("/v0/watch", {"topics": {"watched": {}}}).json
    ended = threading.Event()

    def listen() -> None:
        with Api(url) as reader:
            reader.get(session["stream_url"], {"Accept": "text/event-stream"})
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    page.goto("/#/live")
    stream = row(page, "watched").filter(has_text="Watch stream")
    expect(stream).to_have_count(1)
    stream.get_by_role("button", name="Disconnect").click()
    confirm(page, "watch", "Disconnect")
    assert ended.wait(10)
    expect(stream).to_have_count(0)


def test_sql_runs_keeps_its_history_and_gives_csv(browser: Browser, url: str, api: Api) -> None:
    append(api, "queried", {"data": 1})
    with watched_page(browser, url, allowed_errors=("400 (Bad Request)",)) as page:
        run_sql(page)


def run_sql(page: Page) -> None:
    page.goto("/#/sql")
    editor = page.get_by_label("SQL statement")
    editor.fill("SELECT topic_id, count FROM system.topics WHERE topic_id = 'queried'")
    editor.press("Control+Enter")
    expect(page.locator("#result")).to_contain_text("queried")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.path().read_text().splitlines() == ["topic_id,count", "queried,1"]
    editor.fill("SELECT nonsense")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_title(re.compile("WHERE topic_id = 'queried'"))).to_be_visible()


def test_archive_is_set_and_cleared(page: Page, api: Api) -> None:
    append(api, "kept", {"data": 1})
    page.goto("/#/topics/kept?tab=archive")
    page.get_by_role("button", name="Archive this topic").click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("main")).to_contain_text("Freshness")
    assert api.get("/v0/topics/kept/archive").status == 200
    page.get_by_role("button", name="Stop archiving").click()
    confirm(page, "kept", "Stop archiving")
    expect(page.locator("main")).to_contain_text("is not archived")
    assert api.get("/v0/topics/kept/archive").status == 404
