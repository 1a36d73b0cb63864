"""Every action of the console, performed in the browser; its effect is checked through the API."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import topics
from tests.console.conftest import watched_page
from tests.served import server_settings
from topics.api.errors import STATUS_OF
from topics.testing.http import Api
from topics.testing.server import running_server

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}
CONSOLE = Path(topics.__file__).parent / "console"


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

    page.get_by_role("button", name="More actions").click()
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
    expect(page.get_by_role("alert")).to_contain_text("Data is not JSON")
    expect(page.get_by_role("alert")).to_contain_text("Texts need quotes")
    page.locator("[data-role=data]").fill('"hello"')
    page.get_by_label("Meta (an object)").fill("{trace}")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Meta is not JSON")
    expect(page.get_by_role("alert")).to_contain_text('such as {"trace": "abc"}')
    expect(page.get_by_role("alert")).not_to_contain_text("Reload")


def test_records_are_found_by_seq_time_and_tag(page: Page, api: Api) -> None:
    append(api, "found", *[{"data": {"n": number}, "tag": f"k{number % 3}"} for number in range(300)])
    page.goto("/#/topics/found")
    expect(row(page, '{"n":299}')).to_have_count(1)
    page.get_by_label("Tag", exact=True).fill("k1")
    expect(row(page, '{"n":298}')).to_have_count(1)
    expect(row(page, '{"n":299}')).to_have_count(0)
    page.get_by_label("Tag", exact=True).fill("")
    go_to = page.get_by_label("Go to")
    go_to.select_option("Seq")
    page.get_by_label("From seq").fill("10")
    expect(row(page, '{"n":9}')).to_have_count(1)
    assert "from=10" in page.url
    go_to.select_option("Newest")
    expect(row(page, '{"n":299}')).to_have_count(1)
    page.get_by_role("button", name="Older").click()
    expect(row(page, '{"n":249}')).to_have_count(1)
    page.get_by_role("button", name="Newer").click()
    expect(row(page, '{"n":299}')).to_have_count(1)
    go_to.select_option("Time")
    page.get_by_label("From time").fill("2020-01-01T00:00:00")
    expect(row(page, '{"n":0}')).to_have_count(1)
    go_to.select_option("Newest")
    expect(row(page, '{"n":299}')).to_have_count(1)
    go_to.select_option("Oldest")
    expect(row(page, '{"n":0}')).to_have_count(1)


def test_records_are_searched_by_text_and_downloaded(page: Page, api: Api) -> None:
    append(api, "sought", *[{"data": {"n": number, "id": 12345678901234567890}} for number in range(2500)])
    append(api, "sought", {"data": "hay", "tag": "needle-tag"}, {"data": "hay", "meta": {"trace": "Needle"}})
    append(api, "sought", *[{"data": {"n": number}} for number in range(50)])
    page.goto("/#/topics/sought")
    expect(row(page, '{"n":49}')).to_have_count(1)
    search = page.get_by_label("Search data, tag, node and meta")
    search.fill("NEEDLE")
    rows = page.get_by_role("region", name="Records").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator("main")).to_contain_text("2 found in 1 to 2,552 of 1 to 2,552")
    assert "q=NEEDLE" in page.url
    # More than one page is found: the search goes on below it, and back above it.
    search.fill('"n":1')
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older").click()
    expect(row(page, '"n":1999,')).to_have_count(0)
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Newer").click()
    expect(row(page, '"n":1999,')).to_have_count(1)
    search.fill('"n":2345,')
    expect(rows).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "sought.jsonl"
    (line,) = download.value.path().read_text().splitlines()
    assert json.loads(line)["data"] == {"n": 2345, "id": 12345678901234567890}


def test_a_record_is_copied_as_json_and_as_code_that_reads_it(browser: Browser, url: str, api: Api) -> None:
    api.put("/v0/topics/copied.here", {"partitions": 2})
    append(api, "copied.here", {"data": {"part": "first"}}, partition=0)
    append(api, "copied.here", {"data": {"part": "second", "big": 12345678901234567890}}, partition=1)
    with watched_page(browser, url, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto("/#/topics/copied.here?seq=1&partition=1")
        detail = page.locator("#record")
        copied = {}
        for label in ("JSON", "curl", "Python", "SQL"):
            if label != "JSON":
                detail.get_by_role("button", name=label, exact=True).click()
            detail.get_by_role("button", name=f"Copy {label}").click()
            expect(page.locator("#toasts")).to_contain_text("Copied")
            copied[label] = page.evaluate("navigator.clipboard.readText()")
    assert copied["JSON"] == '{"part": "second", "big": 12345678901234567890}'
    for command in (["bash", "-c", copied["curl"]], [sys.executable, "-c", copied["Python"]]):
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "second" in printed
        assert "first" not in printed
    rows = api.post("/api/sql", {"sql": copied["SQL"]}).json["rows"]
    assert [row[1:3] for row in rows] == [[1, 1]]
    assert api.get("/api/groups?topic=copied.here").json["groups"] == [], "reading makes no consumer group"


def test_numbers_keep_all_their_digits(page: Page, api: Api) -> None:
    exact = '{"id": 12345678901234567890, "price": 1.10}'
    api.put("/v0/topics/exact.jobs", {"type": "queue"})
    body = f'{{"records":[{{"data":{exact}}}]}}'.encode()
    for topic in ("exact", "exact.jobs"):
        assert api.send("POST", f"/v0/topics/{topic}", body, JSON).status in (200, 201)
    page.goto("/#/topics/exact?seq=1")
    expect(page.locator("#record .json")).to_contain_text("12345678901234567890")
    expect(page.locator("#record .json")).to_contain_text("1.10")
    expect(page.locator("tbody .payload")).to_have_text('{"id":12345678901234567890,"price":1.10}')
    page.goto("/#/queues/exact.jobs?tab=ready")
    expect(row(page, '{"id":12345678901234567890,"price":1.10}')).to_have_count(1)
    page.goto("/#/topics/exact?tab=tail")
    expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
    api.send("POST", "/v0/topics/exact", body, JSON)
    expect(row(page, '{"id":12345678901234567890,"price":1.10}')).to_have_count(1)


def test_link_of_a_record_names_its_partition_and_keeps_the_filter(page: Page, api: Api) -> None:
    api.put("/v0/topics/parted", {"partitions": 4})
    for partition in range(4):
        append(api, "parted", {"data": {"in": partition}, "tag": "t"}, partition=partition)
    page.goto("/#/topics/parted?partition=3&tag=t")
    link = page.locator("tbody").get_by_role("link", name="1", exact=True)
    expect(link).to_be_visible()
    page.goto(f"/{link.get_attribute('href')}")
    expect(page.locator("#record")).to_contain_text('"in": 3')
    expect(page.get_by_label("Tag", exact=True)).to_have_value("t")
    expect(page.get_by_label("Partition", exact=True)).to_have_value("3")


def test_rows_are_opened_with_the_keyboard(page: Page, api: Api) -> None:
    append(api, "pressed", {"data": 0})
    page.goto("/#/topics/pressed?tab=tail")
    expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
    append(api, "pressed", {"data": {"deep": "one"}}, {"data": {"deep": "two"}})
    expect(row(page, "two")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(row(page, "one")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text('"deep": "one"')
    page.keyboard.press("Escape")
    # A row that holds no link is reached with Tab as well.
    assert row(page, "one").get_attribute("tabindex") == "0"
    page.goto("/#/topics/pressed")
    expect(page.get_by_role("button", name="Older")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#record")).to_contain_text('"deep": "two"')


def test_every_error_of_the_server_says_what_to_do_next(page: Page) -> None:
    page.goto("/#/settings")
    steps = page.evaluate(
        "async (codes) => { const { ApiError } = await import('/console/lib/api.js');"
        " return Object.fromEntries(codes.map((code) => [code, new ApiError(0, code, '').next])); }",
        [*STATUS_OF, "unknown"],
    )
    unknown = steps.pop("unknown")
    assert unknown
    assert [code for code, step in steps.items() if step == unknown] == ["internal"]


def test_tail_shows_records_pauses_and_counts_what_arrives(page: Page, api: Api) -> None:
    append(api, "tailed", {"data": "before"})
    api.put("/v0/topics/tailed.parts", {"partitions": 2})
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
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("main")).to_contain_text("Waiting for records")
    page.goto("/#/topics/tailed.parts?tab=tail")
    page.get_by_label("Partition").select_option("1")
    expect(page.locator(".tag.good", has_text="Live")).to_be_visible()
    append(api, "tailed.parts", {"data": "in zero"}, partition=0)
    append(api, "tailed.parts", {"data": "in one"}, partition=1)
    expect(row(page, "in one")).to_have_count(1)
    expect(row(page, "in zero")).to_have_count(0)


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
    api.put("/v0/topics/sliced", {"partitions": 2})
    for partition in range(2):
        append(api, "sliced", *[{"data": number} for number in range(5)], partition=partition)
    page.goto("/#/topics/sliced?tab=config")
    expect(page.locator("h1")).to_have_text("sliced")
    page.get_by_label("Delete records before this seq").fill("4")
    page.get_by_label("Partition to delete from").fill("1")
    page.get_by_role("button", name="Count and delete").click()
    confirm(page, "sliced", "Delete 3 records")
    expect(page.locator("#toasts")).to_contain_text("Deleted 3 records")
    assert [each["count"] for each in api.get("/v0/topics/sliced").json["partitions"]] == [5, 2]


def test_config_change_says_what_it_drops_before_it_is_saved(page: Page, api: Api) -> None:
    append(api, "capped", *[{"data": number} for number in range(30)])
    page.goto("/#/topics/capped?tab=config")
    page.locator("input[name=ttl_ms]").fill("604800000")
    expect(page.locator("main")).to_contain_text("7 d. 0 for no limit")
    page.locator("input[name=cap_records]").fill("10")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("drops 20 records")
    assert api.get("/v0/topics/capped").json["count"] == 30
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_contain_text("drops 20 records")
    confirm(page, "capped", "Save and drop 20 records")
    expect(page.locator("#toasts")).to_contain_text("was saved")
    assert api.get("/v0/topics/capped").json["count"] == 10
    page.locator("input[name=cap_records]").fill("100")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts .toast")).to_have_count(2)
    assert api.get("/v0/topics/capped").json["config"]["cap_records"] == 100


def test_job_is_sent_with_a_delay_to_a_partition(page: Page, api: Api) -> None:
    api.put("/v0/topics/sent.jobs", {"type": "queue", "partitions": 2})
    page.goto("/#/queues/sent.jobs?tab=delayed")
    page.get_by_role("button", name="Send a job").click()
    page.locator("[data-role=data]").fill('{"task":"later"}')
    page.get_by_label("Delay in ms").fill("3600000")
    page.get_by_role("dialog").get_by_label("Partition").fill("1")
    page.get_by_role("dialog").get_by_role("button", name="Send", exact=True).click()
    expect(row(page, '{"task":"later"}')).to_have_count(1)
    (job,) = api.get("/v0/topics/sent.jobs/jobs?state=delayed").json["jobs"]
    assert (job["partition"], job["data"]) == (1, {"task": "later"})


def test_queue_is_made(page: Page, api: Api) -> None:
    page.goto("/#/queues")
    page.get_by_role("button", name="New queue").click()
    page.locator("[data-role=name]").fill("made.queue")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("h1")).to_have_text("made.queue")
    expect(page.locator("main")).to_contain_text("No job is leased")
    assert api.get("/v0/topics/made.queue").json["type"] == "queue"


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
    """Letters with the jobs 0 to `count`; the first has another reason, the first two another tag."""
    api.put(f"/v0/topics/{queue}", {"type": "queue", "max_deliveries": 1, "dead_letter": f"{queue}.dead"})
    append(api, queue, *[{"data": {"job": number}, "tag": "a" if number < 2 else "b"} for number in range(count)])
    for size, reason in ((1, "disk on fire"), (count - 1, "no answer")):
        claimed = api.post(f"/v0/topics/{queue}/claim", {"node": "w", "max": size}).json["claimed"]
        seqs = [job["$seq"] for job in claimed]
        api.post(f"/v0/topics/{queue}/nack", {"node": "w", "seqs": seqs, "reason": reason})
    api.post(f"/v0/topics/{queue}/claim", {"node": "w", "max": count})


def test_dead_letters_are_moved_back_one_some_and_all(page: Page, api: Api) -> None:
    dead_letters(api, "letters", 6)
    page.goto("/#/queues/letters?tab=dead")
    expect(page.locator("[data-role=letters]")).to_have_text("6 letters")
    filtered = page.get_by_role("button", name="Move filtered")
    expect(filtered).to_have_attribute("aria-disabled", "true")
    filtered.click(force=True)
    expect(page.locator("#toasts")).to_contain_text("Search or give a tag first")
    expect(page.get_by_role("dialog")).to_have_count(0)
    row(page, '"job":5').get_by_role("button", name="Move back").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 1 job").click()
    expect(page.locator("[data-role=letters]")).to_have_text("5 letters")
    page.get_by_label("Tag", exact=True).fill("a")
    expect(page.locator("[data-role=letters]")).to_have_text("2 letters")
    filtered.click()
    page.get_by_role("dialog").get_by_role("button", name="Move 2 jobs").click()
    expect(page.locator("[data-role=letters]")).to_have_text("0 letters")
    page.get_by_label("Tag", exact=True).fill("")
    expect(page.locator("[data-role=letters]")).to_have_text("3 letters")
    page.get_by_label("Search data, tag and reason").fill('"job":3')
    expect(page.locator("[data-role=letters]")).to_have_text("1 letter of 3")
    filtered.click()
    page.get_by_role("dialog").get_by_role("button", name="Move 1 job").click()
    # A field behind an open dialog takes no input.
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_label("Search data, tag and reason").fill("")
    expect(page.locator("[data-role=letters]")).to_have_text("2 letters")
    page.get_by_role("button", name="Move all").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 2 jobs").click()
    expect(page.locator("main")).to_contain_text("No dead letters")
    assert read(api, "letters.dead") == []
    jobs = read(api, "letters")
    assert sorted([job["data"]["job"] for job in jobs]) == list(range(6))
    assert all(["meta" not in job for job in jobs]), "the keys of the dead letter are gone"


def test_many_dead_letters_are_paged_newest_first_and_all_are_searched(page: Page, api: Api) -> None:
    dead_letters(api, "crowd", 250)
    page.goto("/#/queues/crowd?tab=dead")
    note = page.locator("[data-role=letters]")
    expect(note).to_have_text("the newest 100 of 250 letters")
    letters = page.get_by_role("region", name="Dead letters").locator("tbody tr")
    expect(letters).to_have_count(100)
    expect(letters.first).to_contain_text('{"job":249}')
    expect(letters.first).to_contain_text("no answer")
    expect(letters.first.locator("td").nth(3)).to_have_text("1")
    page.get_by_role("button", name="Show more").click()
    expect(letters).to_have_count(200)
    # The oldest letter is found by its reason, though it is not listed.
    page.get_by_label("Search data, tag and reason").fill("FIRE")
    expect(note).to_have_text("1 letter of 250")
    expect(letters).to_have_count(1)
    letters.first.locator("td").nth(2).click()
    expect(page.get_by_role("dialog")).to_contain_text("disk on fire")


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
    api.put("/v0/topics/grouped.parts", {"partitions": 2})
    for partition in range(2):
        append(api, "grouped.parts", *[{"data": number} for number in range(10)], partition=partition)
    api.post("/api/topics/consume", {"topic": "grouped.parts", "group_id": "g", "timeout_seconds": 0, "limit": 1})
    page.goto("/#/groups/grouped.parts/g")
    for where, label, value, offset in (("Offset", "Offset", "7", 7), ("Timestamp", "Time", "2020-01-01T00:00:00", 1)):
        page.get_by_role("button", name="Seek").click()
        dialog = page.get_by_role("dialog")
        page.locator("[data-role=where]").select_option(where)
        dialog.get_by_label(label, exact=True).fill(value)
        dialog.get_by_label("Partition").fill("1")
        expect(dialog).to_contain_text(f"to {offset}, then")
        dialog.get_by_role("button", name="Seek").click()
        expect(dialog).to_have_count(0)
        (group,) = api.get("/api/groups?topic=grouped.parts").json["groups"]
        assert {each["partition_id"]: each["next_offset"] for each in group["partitions"]}[1] == offset


def test_group_is_dropped_after_its_name_is_typed(page: Page, api: Api) -> None:
    append(api, "drop.from", {"data": 1})
    group = 'it\'s "one"'
    poll = {"topic": "drop.from", "group_id": group, "consumer_id": "m", "timeout_seconds": 0}
    api.post("/api/topics/consume", poll)
    page.goto(f"/#/groups/drop.from/{quote(group, safe='')}")
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Drop group").click()
    expect(page.get_by_role("dialog")).to_contain_text("forgets 1 position and ends 1 session")
    confirm(page, group, "Drop group")
    expect(page.locator("h1")).to_have_text("Consumer groups")
    assert api.get("/api/groups?topic=drop.from").json["groups"] == []


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
    row(page, "flow.out").get_by_role("button", name="More actions of flow").click()
    page.get_by_role("button", name="Delete router").click()
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
    card.get_by_role("button", name="More actions of side").click()
    card.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("dialog")).to_contain_text("0 jobs")
    confirm(page, "side", "Forget pipeline")
    expect(card).to_have_count(0)
    assert api.get("/api/pipelines/side").status == 404


def test_live_connections_are_listed_and_disconnected(browser: Browser, page: Page, api: Api, url: str) -> None:
    append(api, "watched", {"data": 1})
    api.put("/v0/topics/worked", {"type": "queue"})
    append(api, "worked", {"data": 1})
    session = api.post("/v0/watch", {"topics": {"watched": {}}}).json
    ended = {}
    for kind, path in {"Watch stream": session["stream_url"], "Work stream": "/v0/topics/worked/work?node=w"}.items():
        ended[kind] = threading.Event()
        threading.Thread(target=listen, args=(url, path, ended[kind]), daemon=True).start()
    with watched_page(browser, url) as other:
        other.goto("/#/settings")
        other.evaluate("""() => {
            const socket = new WebSocket("/v0/ws");
            window.ended = new Promise((resolve) => { socket.onclose = () => resolve("closed"); });
            socket.onopen = () => socket.send(JSON.stringify({op: "subscribe", topics: {watched: {}}}));
        }""")
        page.goto("/#/live")
        page.get_by_label("Kind").select_option("Work stream")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_label("Kind").select_option("All kinds")
        for kind, topic in {"Watch stream": "watched", "Work stream": "worked", "WebSocket": "watched"}.items():
            connection = row(page, topic).filter(has_text=kind)
            expect(connection).to_have_count(1)
            connection.get_by_role("button", name="Disconnect").click()
            confirm(page, topic, "Disconnect")
            expect(connection).to_have_count(0)
        assert other.evaluate("window.ended") == "closed"
    assert all([event.wait(10) for event in ended.values()])


def listen(url: str, path: str, ended: threading.Event) -> None:
    with Api(url) as reader:
        reader.get(path, {"Accept": "text/event-stream"})
    ended.set()


def test_sql_runs_keeps_its_history_and_gives_csv(browser: Browser, url: str, api: Api) -> None:
    append(api, "queried", {"data": 1})
    clipboard = ["clipboard-read", "clipboard-write"]
    with watched_page(browser, url, allowed_errors=("400 (Bad Request)",), permissions=clipboard) as page:
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
    page.get_by_role("button", name="Copy CSV").click()
    expect(page.locator("#toasts")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").split() == ["topic_id,count", "queried,1"]
    editor.fill("SELECT nonsense")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_title(re.compile("WHERE topic_id = 'queried'")).click()
    expect(editor).to_have_value(re.compile("WHERE topic_id = 'queried'"))
    page.get_by_role("button", name="system.queues").click()
    expect(editor).to_have_value("SELECT * FROM system.queues")


def test_archive_is_set_and_cleared(page: Page, api: Api) -> None:
    append(api, "kept", {"data": 1})
    page.goto("/#/topics/kept?tab=archive")
    page.get_by_role("button", name="Archive this topic").click()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("main")).to_contain_text("Freshness")
    assert api.get("/v0/topics/kept/archive").status == 200
    expect(page.locator("main")).to_contain_text("topics read kept --history")
    page.get_by_role("button", name="Change").click()
    page.get_by_label("Freshness in seconds").fill("60")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("main")).to_contain_text(re.compile("Freshness1 min(?! \\d)"))
    assert api.get("/v0/topics/kept/archive").json["freshness_ms"] == 60_000
    # A record that is gone is looked for in the archive.
    append(api, "kept", {"data": 2})
    api.post("/v0/topics/kept/delete", {"before_seq": 2})
    page.goto("/#/topics/kept?seq=1")
    expect(page.locator("main")).to_contain_text("Record 1 is gone")
    expect(page.locator("main")).to_contain_text("topics read kept --history")
    page.goto("/#/topics/kept?tab=archive")
    page.get_by_role("button", name="Stop archiving").click()
    confirm(page, "kept", "Stop archiving")
    expect(page.locator("main")).to_contain_text("is not archived")
    assert api.get("/v0/topics/kept/archive").status == 404


def test_lists_are_filtered_and_sorted(page: Page, api: Api) -> None:
    page.goto("/#/topics")
    total = page.locator("[data-role=total]")
    page.get_by_label("Type").select_option("Queues")
    expect(page.get_by_role("link", name="orders", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="jobs", exact=True)).to_be_visible()
    page.get_by_label("Filter by name").fill("jobs")
    expect(total).to_have_text(re.compile(r"^\d+ topics?$"))
    assert "type=queue" in page.url
    page.goto("/#/queues")
    page.get_by_role("button", name="Queue", exact=True).click()
    expect(page.get_by_role("columnheader", name="Queue")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Filter by name").fill("no such queue")
    expect(page.locator("main")).to_contain_text("No queue matches the filter")
    page.goto("/#/groups")
    page.get_by_label("Filter by topic or group").fill("climate")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto("/#/settings?tab=settings")
    page.get_by_label("Filter settings").fill("data_dir")
    expect(page.locator("tbody tr")).to_have_count(1)


EMPTY_SCREENS = {
    "/": "Overview",
    "/topics": "Topics",
    "/queues": "Queues",
    "/groups": "Consumer groups",
    "/routes": "Routers and routes",
    "/pipelines": "Pipelines",
    "/live": "Live connections",
}


# After the lines above have run, and with a queue without dead letters.
EMPTY_PARTS = {
    "/topics/empty": "This topic holds no records",
    "/topics/empty?tab=tail": "Waiting for records",
    "/topics/empty?tab=groups": "No consumer group reads this topic",
    "/topics/empty?tab=archive": "This topic is not archived",
    "/queues/jobs?tab=ready": "No job can be claimed",
    "/queues/jobs?tab=delayed": "No job is delayed",
    "/queues/jobs": "No job is leased",
    "/queues/plain?tab=dead": "This queue has no dead-letter topic",
}


def test_every_line_of_an_empty_state_runs_when_pasted(browser: Browser, tmp_path: Path) -> None:
    settings = server_settings(tmp_path, TOPICS_API_KEYS="secret")
    with running_server(settings) as url, watched_page(browser, url) as page:
        page.add_init_script("sessionStorage.setItem('topics.credential', '{\"token\": \"secret\"}')")
        assert run_lines(page, EMPTY_SCREENS) >= 7
        with Api(url, {"Authorization": "Bearer secret"}) as api:
            api.put("/v0/topics/empty", {})
            api.put("/v0/topics/plain", {"type": "queue"})
        assert run_lines(page, EMPTY_PARTS) == 8


def run_lines(page: Page, screens: dict[str, str]) -> int:
    """Run the lines that these empty screens show, as pasted into a shell that knows the key. Return how many."""
    lines: list[str] = []
    for address, text in screens.items():
        page.goto(f"/#{address}")
        # The screen before may have the text as well, and is there until the next one has loaded.
        part = page.locator("main h1") if screens is EMPTY_SCREENS else page.locator("main")
        expect(part).to_contain_text(text)
        expect(page.locator(".empty").first).to_be_visible()
        lines += page.locator(".snippet pre").all_text_contents()
    commands = [line for line in dict.fromkeys(lines) if line.startswith("curl")]
    for line in commands:
        if "stream_url" in line:
            assert "record" in first_event(line)
        else:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=KNOWN_KEY)
            assert '"error"' not in done.stdout, (line, done.stdout)
    return len(commands)


KNOWN_KEY = {**os.environ, "TOPICS_TOKEN": "secret"}


def first_event(line: str) -> str:
    """The first event that a command which does not end prints."""
    with subprocess.Popen(
        ["bash", "-c", line], stdout=subprocess.PIPE, text=True, start_new_session=True, env=KNOWN_KEY
    ) as process:
        assert process.stdout is not None
        found = next(text for text in process.stdout if text.startswith("event:"))
        os.killpg(process.pid, signal.SIGTERM)
    return found


def test_every_action_of_the_sources_is_performed_by_a_test() -> None:
    """Each label of a button made by `action()` occurs in these tests."""
    sources = "".join([path.read_text() for path in CONSOLE.rglob("*.js")])
    labels = set(re.findall(r"\baction\(\s*\"([^\"]+)\"", sources))
    labels |= {
        label for pair in re.findall(r"\baction\([^,]*\? \"([^\"]+)\" : \"([^\"]+)\"", sources) for label in pair
    }
    assert len(labels) > 25
    tests = Path(__file__).read_text()
    assert sorted([label for label in labels if f'name="{label}"' not in tests]) == []
