"""A chat page: messages arrive live, and a page that was closed or lost its connection resumes where it was.

    TOPICS_CORS_ORIGINS=http://127.0.0.1:8000 topics serve
    python examples/chat.py http://127.0.0.1:4000 8000        then open http://127.0.0.1:8000

The page remembers the seq of the last message that it has shown. With it a reload shows nothing twice and misses nothing.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = """<!doctype html>
<title>Chat</title>
<ul id="messages"></ul>
<form id="form"><input id="text" autofocus> <button>Send</button></form>
<script>
const server = "SERVER", messages = JSON.parse(localStorage.messages || "[]");
let seq = Number(localStorage.seq || 0);
const post = (path, body) => fetch(server + path, {
    method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
function show(text) {
    document.getElementById("messages").appendChild(document.createElement("li")).textContent = text;
}
async function watch() {
    const answer = await post("/v0/watch?lenient=true", {topics: {chat: {from_seq: seq}}}).catch(() => null);
    if (!answer || !answer.ok) return setTimeout(watch, 1000);
    const source = new EventSource(server + (await answer.json()).stream_url);
    source.addEventListener("record", event => {
        for (const record of JSON.parse(event.data).records.filter(each => each.$seq > seq)) {
            show(record.data); messages.push(record.data); seq = record.$seq;
        }
        localStorage.seq = seq; localStorage.messages = JSON.stringify(messages.slice(-100));
    });
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) setTimeout(watch, 1000); };
}
document.getElementById("form").onsubmit = event => {
    event.preventDefault();
    post("/v0/topics/chat", {records: [{data: text.value}]}); text.value = "";
};
messages.forEach(show);
post("/v0/topics/chat", {records: [{data: "a page was opened"}]}).then(watch);
</script>"""


class Handler(BaseHTTPRequestHandler):
    """Serves the page; everything else is between the browser and the server of topics."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE.replace("SERVER", sys.argv[1]).encode())


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler) as http_server:
        print(f"http://127.0.0.1:{http_server.server_port}/", flush=True)
        http_server.serve_forever()
