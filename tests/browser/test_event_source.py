"""The browser's own EventSource: it comes back by itself and neither loses nor repeats anything."""

import subprocess
from pathlib import Path

import pytest

from tests.acceptance.topic import TopicApi
from topics.testing.chromium import Chromium
from topics.testing.events import EventStream
from topics.testing.http import Api
from topics.testing.process import ServerProcess

# What a page does: watch from where it is; when its session is gone with the server that knew it, make another one.
PAGE = """
    window.seen = [];
    window.opens = 0;
    window.cursor = 0;
    window.tombstones = 0;
    async function watch() {
        try {
            const answer = await fetch('/v0/watch', {
                method: 'POST',
                headers: {'Content-Type': 'application/json'},
                body: JSON.stringify({topics: {a: {from_seq: window.cursor}}, limit: 7}),
            });
            if (!answer.ok) throw new Error(answer.status);
            const session = await answer.json();
            window.url = session.stream_url;
            const source = new EventSource(session.stream_url);
            source.onopen = () => { window.opens += 1; };
            source.addEventListener('record', event => {
                const frame = JSON.parse(event.data);
                for (const record of frame.records) window.seen.push(record.$seq);
                window.cursor = frame.to_seq;
            });
            source.addEventListener('tombstone', () => { window.tombstones += 1; });
            source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(watch, 50); };
        } catch (error) {
            setTimeout(watch, 50);
        }
    }
    watch();
"""


@pytest.mark.slow
def test_the_browser_loses_and_repeats_nothing_over_a_lost_stream_and_a_killed_server(tmp_path: Path) -> None:
    written = 0

    def write(topic: TopicApi, count: int) -> None:
        nonlocal written
        for _ in range(count):
            topic.append_records(*[{"data": {"text": "line\nbreak"}}] * 3)
            written += 3

    with ServerProcess(tmp_path) as server, Chromium(tmp_path / "profile") as browser, Api(server.url) as api:
        topic = TopicApi(api, "a")
        write(topic, 20)
        browser.go_to(f"{server.url}/v0/health")
        browser.run(PAGE)
        browser.wait_for(f"window.seen.length >= {written}")

        # Its stream is taken away: it comes back with the last id it has seen.
        with EventStream(api, browser.run("window.url")) as thief:
            assert thief.status == 200
            write(topic, 20)
        browser.wait_for("window.opens >= 2")
        write(topic, 20)
        browser.wait_for(f"window.seen.length >= {written}")

        server.kill()
        api.close()
        server.start()
        write(topic, 20)
        browser.wait_for(f"window.seen.length >= {written}")
        write(topic, 1)
        browser.wait_for(f"window.seen.length >= {written}")
        assert browser.run("window.seen") == list(range(1, written + 1))
        assert browser.run("window.tombstones") == 0
        assert browser.run("window.opens") >= 3


@pytest.mark.slow
def test_curl_gets_frames_as_they_come_and_the_end_when_the_server_stops(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, Api(server.url) as api:
        topic = TopicApi(api, "a")
        topic.append("backlog")
        url = api.post("/v0/watch", {"topics": {"a": {}}}).json["stream_url"]
        with subprocess.Popen(["curl", "-sN", server.url + url], stdout=subprocess.PIPE) as curl:
            assert curl.stdout is not None
            lines = iter(curl.stdout.readline, b"")
            assert next(lines) == b"retry: 2000\n"
            assert any(line == b"event: caught-up\n" for line in lines)
            topic.append("live")
            assert any(b'"live"' in line for line in lines)
            assert server.stop() == 0
            assert list(lines)[-1] == b"\n"
            assert curl.wait(20) == 0
