"""A queue whose process is killed under load, again and again, with several workers at it.

Workers note the responses they got before the server was killed. After each start: what was acked is gone, a dead letter is in
one place and there once, and leases are either all still held, by whom and under which id they were, or all over.
"""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_kill import SMALL, read_all
from topics.cli.main import main
from topics.testing.process import ServerProcess

ROUNDS = 3
WORKERS = 4
SETTLED_PER_ROUND = 120
MAX_DELIVERIES = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, **SMALL)
    yield process
    process.kill()


class Ledger:
    """The responses of all workers."""

    def __init__(self) -> None:
        self.appended: set[int] = set()
        self.acked: set[int] = set()
        # Sent, and perhaps done, when the server went away.
        self.perhaps_acked: set[int] = set()
        self.held: dict[int, dict[str, Any]] = {}
        self.enough = threading.Semaphore(0)


class Client(threading.Thread):
    """Talks to the server until it is gone."""

    def __init__(self, server: ServerProcess, ledger: Ledger, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.ledger = ledger
        self.statuses: set[int] = set()
        self.broken: AssertionError | None = None
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._connection.request("POST", f"/v0/topics/q{path}", json.dumps(body), {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        self.statuses.add(response.status)
        return answer

    def run(self) -> None:
        try:
            while True:
                self.work()
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return
        except AssertionError as broken:
            self.broken = broken
        finally:
            self._connection.close()

    def work(self) -> None:
        raise NotImplementedError


class Producer(Client):
    def work(self) -> None:
        answer = self.post("", {"records": [{"data": "x" * 100}] * 5})
        self.ledger.appended.update(answer["seqs"])


class Worker(Client):
    """The seq decides the end of a job: most are acked, some given back until they are dead letters, a few kept."""

    def work(self) -> None:
        ledger = self.ledger
        jobs = self.post("/claim", {"node": self.name, "max": 4, "lease_ms": 600_000, "wait_ms": 1000})["claimed"]
        # No other worker has these, or two workers would settle the same job, which is noticed below.
        for job in jobs:
            assert job["$seq"] not in ledger.acked, "an acked job returned"
            assert job["deliveries"] <= MAX_DELIVERIES
            ledger.held[job["$seq"]] = {"node": self.name, **job}
        acks = [job["$seq"] for job in jobs if job["$seq"] % 5 and job["$seq"] % 11]
        nacks = [job["$seq"] for job in jobs if job["$seq"] % 5 == 0]
        for seq in (*acks, *nacks):
            del ledger.held[seq]
        if acks:
            ledger.perhaps_acked.update(acks)
            answer = self.post("/ack", {"node": self.name, "seqs": acks})
            assert answer["skipped"] == [], "its holder was refused"
            ledger.acked.update(acks)
            ledger.enough.release()
        if nacks:
            assert self.post("/nack", {"node": self.name, "seqs": nacks})["skipped"] == []


@pytest.mark.slow
@pytest.mark.parametrize("leases_durable", [True, False])
def test_a_queue_keeps_its_promises_when_the_process_is_killed_under_load(
    server: ServerProcess, leases_durable: bool
) -> None:
    ledger = Ledger()
    server.start()
    config = {
        "type": "queue",
        "durability": "fsync",
        "leases_durable": leases_durable,
        "max_deliveries": MAX_DELIVERIES,
        "dead_letter": "dead",
    }
    assert server.request("PUT", "/v0/topics/q", config)[0] == 201
    for _ in range(ROUNDS):
        clients: list[Client] = [Worker(server, ledger, f"w{number}") for number in range(WORKERS)]
        clients.append(Producer(server, ledger, "producer"))
        for client in clients:
            client.start()
        for _ in range(SETTLED_PER_ROUND):
            assert ledger.enough.acquire(timeout=30), server.logs
        server.kill()
        for client in clients:
            client.join(30)
            assert client.statuses <= {200}
            assert client.broken is None, client.broken
        server.start()
        check(server, ledger, leases_durable)
    assert len(read_all(server, "dead")[0]) > 5
    assert server.stop() == 0
    assert main(["check", str(server.data_dir)]) == 0


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_lease_ends_when_it_would_have_ended_without_the_kill(server: ServerProcess, durability: str) -> None:
    server.start()
    server.request("PUT", "/v0/topics/q", {"type": "queue", "durability": durability, "leases_durable": True})
    server.request("POST", "/v0/topics/q", {"records": [{"data": 1}]})
    (before,) = server.request("POST", "/v0/topics/q/claim", {"node": "a", "lease_ms": 2000})[1]["claimed"]
    server.kill()
    server.start()
    claim = {"node": "b", "lease_ms": 1000, "wait_ms": 30_000}
    (after,) = server.request("POST", "/v0/topics/q/claim", claim)[1]["claimed"]
    assert (after["$seq"], after["deliveries"]) == (1, 2)
    assert after["deadline"] - 1000 > before["deadline"], "not before its deadline"
    assert after["lease_id"] != before["lease_id"]
    old = {"node": "a", "seqs": [1], "lease_ids": [before["lease_id"]]}
    assert server.request("POST", "/v0/topics/q/ack", old)[1]["skipped"] == [1]


def check(server: ServerProcess, ledger: Ledger, leases_durable: bool) -> None:
    there = set(read_all(server, "q")[0])
    letters = dead_letters(server)
    dead = set(letters)
    assert len(letters) == len(dead), "a dead letter came twice"
    assert not there & dead, "a dead letter is still a job"
    assert not (there | dead) & ledger.acked, "an acked job returned"
    assert ledger.appended <= there | dead | ledger.perhaps_acked, "a job is lost"
    queue = server.request("GET", "/v0/topics/q")[1]["queue"]
    assert queue["dead_lettered"] == len(dead)
    if leases_durable:
        assert ledger.held.keys() <= there
        assert queue["in_flight"] >= len(ledger.held)
        for seq, job in ledger.held.items():
            mine = {"node": job["node"], "seqs": [seq], "lease_ids": [job["lease_id"]]}
            _, answer = server.request("POST", "/v0/topics/q/extend", {**mine, "lease_ms": 600_000})
            assert answer["extended"] == 1, f"{job} is not with its holder"
        # And counted: given back, each comes for the next time or, if that was the last one, as a dead letter.
        for seq in sorted(ledger.held)[:3]:
            job = ledger.held.pop(seq)
            server.request("POST", "/v0/topics/q/nack", {"node": job["node"], "seqs": [seq]})
            _, answer = server.request("POST", "/v0/topics/q/claim", {"node": "w0", "max": 1000, "lease_ms": 600_000})
            found = {each["$seq"]: each for each in answer["claimed"]}
            ledger.held |= {each: {"node": "w0", **found[each]} for each in found if each != seq}
            if job["deliveries"] < MAX_DELIVERIES:
                assert found[seq]["deliveries"] == job["deliveries"] + 1
                ledger.held[seq] = {"node": "w0", **found[seq]}
            else:
                assert seq not in found
                assert seq in dead_letters(server)
    else:
        assert (queue["ready"], queue["in_flight"]) == (len(there), 0)
        ledger.held.clear()
    # What was under way and is not there any more was acked.
    ledger.acked |= ledger.perhaps_acked - there - dead
    ledger.appended = ledger.appended | there | dead


def dead_letters(server: ServerProcess) -> list[int]:
    if server.request("GET", "/v0/topics/dead")[0] == 404:
        return []
    found = []
    from_seq = 0
    for _ in range(1000):
        _, page = server.request("POST", "/v0/topics/dead/diff", {"from_seq": from_seq, "limit": 1000})
        found += [record["meta"]["$dead_letter_src_seq"] for record in page["records"]]
        from_seq = page["next_from_seq"]
        if page["caught_up"]:
            return found
    raise AssertionError("the reader never catches up")
