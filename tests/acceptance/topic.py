"""One topic as a client sees it: each call is one request, and what must be true of every answer is checked here."""

import time
from typing import Any

from topics.testing.http import Answer, Api

ConfigFields = dict[str, Any]

DEFAULT_CONFIG: ConfigFields = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


class TopicApi:
    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = name
        self.path = f"/v0/topics/{name}"

    # Requests that must succeed.

    def configure(self, **config: Any) -> dict[str, Any]:
        return succeeded(self.api.put(self.path, config))

    def append(self, *datas: Any, **fields: Any) -> dict[str, Any]:
        """A write of these payloads."""
        return self.append_records(*[{"data": data} for data in datas], **fields)

    def append_records(self, *records: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return succeeded(self.api.post(self.path, {"records": list(records), **fields}))

    def diff(self, from_seq: int = 0, **fields: Any) -> dict[str, Any]:
        return checked_diff(from_seq, self.api.post(f"{self.path}/diff", {"from_seq": from_seq, **fields}))

    def remove(self, **fields: Any) -> dict[str, Any]:
        return succeeded(self.api.post(f"{self.path}/delete", fields))

    def state(self, touch: bool = False) -> dict[str, Any]:
        state = succeeded(self.api.get(f"{self.path}?touch={'true' if touch else 'false'}"))
        assert state["next_seq"] == state["head_seq"] + 1
        assert 1 <= state["earliest_seq"] <= state["head_seq"] + 1
        if not state["count"]:
            assert state["earliest_seq"] == state["head_seq"] + 1
        return state

    def drop(self) -> dict[str, Any]:
        return succeeded(self.api.delete(self.path))

    # What a reader finds.

    def seqs(self, from_seq: int = 0, **fields: Any) -> list[int]:
        return seqs_of(self.diff(from_seq, **fields))

    def exists(self) -> bool:
        return self.api.get(f"{self.path}?touch=false").status == 200

    def read_all(self, **fields: Any) -> list[dict[str, Any]]:
        """Everything there is, page by page, as a consumer would."""
        records: list[dict[str, Any]] = []
        cursor = 0
        for _ in range(10_000):
            page = self.diff(cursor, **fields)
            records += page["records"]
            assert page["next_from_seq"] > cursor or page["caught_up"], page
            cursor = page["next_from_seq"]
            if page["caught_up"]:
                return records
        raise AssertionError("the reader never catches up")


def succeeded(answer: Answer) -> dict[str, Any]:
    """The body of a success: bare data and a `performance` object."""
    assert answer.status in (200, 201), answer
    assert answer.headers["content-type"] == "application/json"
    body: dict[str, Any] = answer.json
    assert "error" not in body
    assert "ok" not in body
    performance = body["performance"]
    assert performance["server_total_ms"] >= 0
    assert all([isinstance(value, int | float) and value >= 0 for value in performance.values()]), performance
    return body


def refused(answer: Answer, status: int, code: str) -> Answer:
    assert (answer.status, answer.code) == (status, code), answer
    return answer


def checked_diff(from_seq: int, answer: Answer) -> dict[str, Any]:
    """A diff, after checking what holds for every diff."""
    body = succeeded(answer)
    assert {
        "topic",
        "records",
        "next_from_seq",
        "head_seq",
        "earliest_seq",
        "caught_up",
        "tombstone",
        "lag",
        "performance",
    } <= set(body)
    seqs = seqs_of(body)
    assert seqs == sorted(set(seqs))
    assert body["caught_up"] is (body["next_from_seq"] == body["head_seq"])
    assert body["lag"] == body["head_seq"] - body["next_from_seq"]
    assert all([body["earliest_seq"] <= seq <= body["next_from_seq"] for seq in seqs])
    times = [record["$ts"] for record in body["records"]]
    assert times == sorted(times)
    assert body["performance"]["records_scanned"] >= len(seqs)
    tombstone = body["tombstone"]
    if tombstone is None:
        assert all([seq > from_seq for seq in seqs])
    else:
        assert {"gap_from", "gap_to", "reason", "missed_estimate", "earliest_seq", "head_seq"} <= set(tombstone)
        gap_from = min(1, tombstone["gap_to"]) if tombstone["reason"] == "recreated" else from_seq + 1
        assert tombstone["gap_from"] == gap_from <= tombstone["gap_to"]
        assert tombstone["earliest_seq"] == body["earliest_seq"]
        assert tombstone["head_seq"] == body["head_seq"]
    return body


def seqs_of(diff: dict[str, Any]) -> list[int]:
    return [record["$seq"] for record in diff["records"]]


def wait_until_past(ts_ms: int) -> None:
    """Until the wall clock, which is also the server's, shows a later time."""
    while (left_ms := ts_ms - time.time_ns() // 1_000_000) >= 0:
        time.sleep((left_ms + 1) / 1000)
