"""Single appends in the shapes that users send, each against the plain shape.

Each shape and its plain counterpart have a server of their own: what one leaves behind must not slow the other.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from bench.load import append_body, post_script, wrk
from bench.measure import OURS, Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer

CONNECTIONS = 16
ROUTER = "r"


def _script_with_function(body: str) -> str:
    """A wrk script whose Lua expression gives another body for each request."""
    return (
        'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nlocal n = 0\n'
        f"request = function()\n  n = n + 1\n  return wrk.format(nil, nil, nil, {body})\nend\n"
    )


PLAIN = post_script(append_body(1))
# Wrk restarts its counter with each measurement; the time makes the keys differ between them.
KEYED = _script_with_function(
    'string.format(\'{"records":[{"data":"' + "x" * 98 + '"}],"idempotency_key":"%d-%d"}\', os.time(), n)'
)
VARYING = _script_with_function("'{\"records\":[{\"data\":\"' .. string.rep('x', 50 + n % 100) .. '\"}]}'")

SHAPES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tag and node": (post_script(append_body(1, fields=',"tag":"user:1042","node":"web-1"')), "", {}),
    "meta": (post_script(append_body(1, fields=',"meta":{"trace":"4bf92f3577b34da6"}')), "", {}),
    "node of the batch": (post_script(append_body(1, batch_fields=',"node":"web-1"')), "", {}),
    "return_seqs=false": (PLAIN, "?return_seqs=false", {}),
    "topic with cap_records": (PLAIN, "", {"cap_records": 100_000}),
    "topic with a router": (PLAIN, "", {"router": True}),
    "idempotency key": (KEYED, "", {}),
    "varying sizes": (VARYING, "", {}),
    "topic with a TTL": (PLAIN, "", {"ttl_ms": 60_000}),
    "queue": (PLAIN, "", {"type": "queue"}),
}


def _against_plain(shape: str) -> Callable[[Options], AbstractContextManager[Contenders]]:
    script, query, config = SHAPES[shape]

    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with ExitStack() as stack:
            made: Contenders = {}
            for server in stack.enter_context(options.v0_servers()):
                server.must("PUT", "/v0/topics/t", {key: value for key, value in config.items() if key != "router"})
                if "router" in config:
                    server.must("PUT", f"/v0/routers/{ROUTER}", {"source": "t", "dest": "copy"})
                made[server.name] = _contender(server, options, query, script, routed="router" in config)
            for server in stack.enter_context(options.v0_servers()):
                server.must("PUT", "/v0/topics/t", {})
                plain = "plain" if server.name == OURS else f"{server.name} plain"
                made[plain] = _contender(server, options, "", PLAIN)
            yield made

    return contenders


def _contender(server: TopicsServer, options: Options, query: str, script: str, *, routed: bool = False) -> Contender:
    def measure() -> Sample:
        requests = wrk(server.url(f"/v0/topics/t{query}"), script, CONNECTIONS, options.seconds)
        while routed and server.must("GET", f"/v0/routers/{ROUTER}")["lag"]:
            # The next contender is measured when this server is idle.
            time.sleep(0.05)
        return Sample(requests, requests * max(1, round(options.seconds)))

    return Contender(measure, server)


WORKLOADS = [Workload("append shapes", shape, "records/s", _against_plain(shape), baseline="plain") for shape in SHAPES]
