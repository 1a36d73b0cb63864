"""A real browser with a page of another origin: what it can do to a server on the same machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from topics.testing.chromium import Chromium
from topics.testing.http import Api
from topics.testing.process import ServerProcess

pytestmark = pytest.mark.slow

# A name that resolves to this machine, as after DNS rebinding.
REBOUND = "rebound.example"
RESOLVER = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"

# What a page can send without the browser asking the server first, and a cors read. Each answers how it went.
ATTACKS = """
    async function attempt(how) {
        try { return await how(); } catch (error) { return error.name; }
    }
    const text = {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}};
    function form(path) {
        return new Promise(done => {
            const frame = document.createElement('iframe');
            frame.name = 'f' + Math.random();
            document.body.append(frame);
            const form = document.createElement('form');
            form.method = 'POST';
            form.action = SERVER + path;
            form.target = frame.name;
            document.body.append(form);
            frame.onload = () => done('sent');
            form.submit();
        });
    }
    function image(path) {
        return new Promise(done => {
            const image = new Image();
            image.onload = image.onerror = () => done('sent');
            image.src = SERVER + path;
        });
    }
    function socket() {
        return new Promise(done => {
            const socket = new WebSocket(SERVER.replace('http', 'ws') + '/v0/ws');
            socket.onopen = () => {
                socket.send(JSON.stringify({op: 'publish', topic: 'made', records: [{data: 1}]}));
                socket.onmessage = () => done('opened');
            };
            socket.onerror = () => done('refused');
        });
    }
    (async () => ({
        stop: await attempt(() => fetch(SERVER + '/api/pipelines/main/stop', text).then(answer => answer.type)),
        stop_form: await attempt(() => form('/api/pipelines/main/stop')),
        claim: await attempt(() => fetch(SERVER + '/v0/topics/jobs/claim', {...text, body: '{"node":"w"}'}).then(answer => answer.type)),
        append: await attempt(() => fetch(SERVER + '/v0/topics/made', {...text, body: '{"records":[{"data":1}]}'}).then(answer => answer.type)),
        work_image: await attempt(() => image('/v0/topics/jobs/work?node=image')),
        work_fetch: await attempt(() => fetch(SERVER + '/v0/topics/jobs/work?node=fetch', {mode: 'no-cors'}).then(answer => answer.type)),
        work_events: await attempt(() => new Promise(done => {
            const source = new EventSource(SERVER + '/v0/topics/jobs/work?node=events');
            source.onopen = () => done('opened');
            source.onerror = () => done('refused');
        })),
        socket: await attempt(socket),
        read: await attempt(() => fetch(SERVER + '/v0/topics').then(answer => answer.status)),
        write: await attempt(() => fetch(SERVER + '/v0/topics/made', {method: 'PUT'}).then(answer => answer.status)),
    }))()
"""

# What a page of a configured origin can do.
USES = """
    (async () => {
        const json = {'Content-Type': 'application/json', 'Idempotency-Key': 'once', ...HEADERS};
        const put = await fetch(SERVER + '/v0/topics/a', {method: 'PUT', headers: HEADERS});
        const body = JSON.stringify({records: [{data: 'from the page'}]});
        const append = await fetch(SERVER + '/v0/topics/a', {method: 'POST', headers: json, body});
        const absent = await fetch(SERVER + '/v0/topics/absent', {headers: HEADERS});
        const unknown = await fetch(SERVER + '/v0/topics', {headers: {Authorization: 'Bearer wrong'}});
        const watch = await fetch(SERVER + '/v0/watch', {method: 'POST', headers: json, body: JSON.stringify({topics: {a: {}}})});
        const url = SERVER + (await watch.json()).stream_url + QUERY;
        const record = await new Promise((done, failed) => {
            const source = new EventSource(url);
            source.addEventListener('record', event => { source.close(); done(JSON.parse(event.data).records[0].data); });
            source.onerror = () => failed(new Error('stream refused'));
        });
        return {
            put: put.status, append: append.status, absent: (await absent.json()).error.code, unknown: unknown.status,
            deleted: (await fetch(SERVER + '/v0/topics/a', {method: 'DELETE', headers: HEADERS})).status, record,
        };
    })()
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><body>a page of another origin</body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def page_server() -> Iterator[str]:
    """The URL of a page of another origin than the server's: the same machine, another port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{pages.server_address[1]}"
        finally:
            pages.shutdown()
            thread.join()


def script(text: str, **values: Any) -> str:
    """Run in a scope of its own, so that a page can run several."""
    constants = "".join([f"const {name} = {json.dumps(value)};" for name, value in values.items()])
    head, _, last = text.rpartition("(async () =>")
    return f"(() => {{ {constants} {head} return (async () =>{last.rstrip().removesuffix(';')}; }})()"


def test_a_page_of_another_origin_changes_nothing_leases_nothing_and_reads_nothing(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path) as server,
        page_server() as page,
        Chromium(tmp_path / "profile") as browser,
        Api(server.url) as api,
    ):
        api.put("/v0/topics/jobs", {"type": "queue"})
        for number in range(5):
            api.post("/v0/topics/jobs", {"records": [{"data": number}]})
        api.put("/api/pipelines/main", {"state": "running", "started_ts": 1, "jobs": []})
        browser.go_to(page)
        outcome = browser.run(script(ATTACKS, SERVER=server.url))
        assert outcome["socket"] == "refused"
        assert outcome["work_events"] == "refused"
        assert outcome["read"] == outcome["write"] == "TypeError", "the browser blocked what has no CORS headers"
        assert api.get("/api/pipelines/main").json["stop"] is False
        assert [each["topic"] for each in api.get("/v0/topics").json["topics"]] == ["jobs"]
        state = api.get("/v0/topics/jobs").json["queue"]
        assert (state["ready"], state["in_flight"]) == (5, 0)
        # The next claim is the first delivery of each job: no page has held one in between.
        claimed = api.post("/v0/topics/jobs/claim", {"node": "w", "max": 5}).json["claimed"]
        assert [job["deliveries"] for job in claimed] == [1] * 5


def test_a_page_whose_name_was_rebound_to_this_machine_gets_nothing(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path) as server,
        Chromium(tmp_path / "profile", RESOLVER) as browser,
        Api(server.url) as api,
    ):
        api.post("/v0/topics/secret", {"records": [{"data": "secret"}]})
        port = server.url.rpartition(":")[2]
        browser.go_to(f"http://{REBOUND}:{port}/v0/health")
        statuses = browser.run(
            """(async () => [
                (await fetch('/v0/topics')).status,
                (await fetch('/v0/topics/secret/diff', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})).status,
                (await fetch('/v0/topics/made', {method: 'PUT'})).status,
                await new Promise(done => {
                    const socket = new WebSocket('ws://' + location.host + '/v0/ws');
                    socket.onopen = () => done('opened');
                    socket.onerror = () => done('refused');
                }),
            ])()"""
        )
        assert statuses == [403, 403, 403, "refused"]
        assert [each["topic"] for each in api.get("/v0/topics").json["topics"]] == ["secret"]


@pytest.mark.parametrize("key", [None, "page-key"])
def test_a_page_of_a_configured_origin_uses_the_server(tmp_path: Path, key: str | None) -> None:
    with page_server() as page:
        environment = {"TOPICS_CORS_ORIGINS": page} | ({} if key is None else {"TOPICS_API_KEYS": key})
        with ServerProcess(tmp_path, **environment) as server, Chromium(tmp_path / "profile") as browser:
            browser.go_to(page)
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            query = "" if key is None else f"?token={key}"
            outcome = browser.run(script(USES, SERVER=server.url, HEADERS=headers, QUERY=query))
            assert outcome == {
                "put": 201,
                "append": 200,
                "absent": "topic_not_found",
                "unknown": 200 if key is None else 401,
                "deleted": 200,
                "record": "from the page",
            }
