"""Copies that routers make are not logged, yet whatever a reader saw of them is there after any end, at the same seq.

Each run plays the same history: three routers in two generations, a source that deletes, evicts, is sealed and
checkpointed. The disk ends it at one step, and readers of the dests compare what they saw before with what is there
after the next start; then the routers catch up, and nothing is missing and nothing is there twice.
"""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.routers.routers import WantedRouter
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.model.router import RouterChange
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk, PowerCut

DESTS = ("disk", "fsync", "far")
# `make crash` ends each history at every step. Otherwise each variant takes every so-manieth, beginning elsewhere.
THOROUGH = hypothesis_settings().max_examples >= 1000
STRIDE = 1 if THOROUGH else 8


def settings() -> StorageSettings:
    return StorageSettings(
        wal_file_bytes=8 << 10,
        segment_bytes=600,
        hot_bytes=6000,
        checkpoint_bytes=1 << 30,
        margin=100,
    )


class History:
    """One life of a server: what was acknowledged to its writers and seen by its readers."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.acked: list[int] = []
        self.seen: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in DESTS}
        self.under_test: BrokerUnderTest | None = None

    def play(self) -> None:
        """Until the end, or until the power goes."""
        self.under_test = under_test = BrokerUnderTest(self.disk, settings())
        under_test.configure("source", cap_records=40)
        under_test.configure("disk")
        under_test.configure("fsync", durability="fsync")
        self.route("source", "disk")
        self.route("source", "fsync", preserve_node=False)
        self.route("disk", "far", filter=TagMatch("even", False), guarantee="exactly_once")
        for start in range(0, 60, 6):
            self.append(range(start, start + 6))
            if start == 12:
                self.delete(before_seq=9)
            if start == 18:
                self.delete(match=TagMatch("odd", False))
            if start in (24, 42):
                under_test.broker.checkpointer.checkpoint()
            self.rest()

    def append(self, numbers: range) -> None:
        assert self.under_test is not None
        records = [
            {"data": f"{number}-{'x' * 20}", "tag": "odd" if number % 2 else "even", "node": "n"} for number in numbers
        ]
        for record in records:
            batch = decode_batch(msgspec.json.encode({"records": [record]}), Limits())
            self.under_test.broker.append("source", batch, self._note)
        self.rest()

    def delete(self, before_seq: int | None = None, match: TagMatch | None = None) -> None:
        assert self.under_test is not None
        self.under_test.broker.delete_records("source", before_seq, match, 0, lambda _: None)

    def route(self, source: str, dest: str, **options: Any) -> None:
        assert self.under_test is not None
        self.under_test.ask(
            self.under_test.broker.routers.put, WantedRouter(f"{source}->{dest}", source, dest, RouterChange(**options))
        )

    def rest(self) -> None:
        """Let everything come to rest, with readers looking on all the time."""
        assert self.under_test is not None
        runtime = self.under_test.runtime
        for _ in range(10_000):
            runtime.turn()
            self.look()
            if not runtime.waiting_aside:
                return
            runtime.finish_one()
        raise AssertionError("it never comes to rest")

    def look(self) -> None:
        assert self.under_test is not None
        for name in DESTS:
            if name in self.under_test.broker.state.topics:
                for record in self.under_test.read(name):
                    known = self.seen[name].setdefault(record["$seq"], record)
                    assert known == record, f"{name}: a record changed under its readers"

    def _note(self, outcome: Any) -> None:
        if not isinstance(outcome, TopicsError):
            self.acked.append(outcome.first_seq)


def played(step: int | None, seed: int = 0) -> History:
    disk = FakeDisk(seed)
    disk.make_directory("")
    if step is not None:
        disk.cut_at = step
    history = History(disk)
    try:
        history.play()
    except PowerCut:
        pass
    return history


def check_dests(history: History, under_test: BrokerUnderTest, *, may_lose: tuple[str, ...]) -> None:
    """Whatever was seen is there unchanged, or, where that is allowed, gone and never replaced by something else."""
    for name in DESTS:
        if name not in under_test.broker.state.topics:
            assert not history.seen[name]
            continue
        now = {record["$seq"]: record for record in under_test.read(name)}
        partition = under_test.broker.topic(name).partitions[0]
        for seq, record in history.seen[name].items():
            if seq in now:
                assert now[seq] == record, f"{name}: seq {seq} is another record now"
            else:
                assert name in may_lose, f"{name}: seq {seq} is gone"
                assert seq <= partition.head_seq, f"{name}: seq {seq} can be handed out again"


def check_no_record_twice(under_test: BrokerUnderTest) -> None:
    for name in DESTS:
        if name in under_test.broker.state.topics:
            datas = under_test.datas(name)
            assert len(datas) == len(set(datas)), f"{name} holds a record twice"
            numbers = [int(data.split("-")[0]) for data in datas]
            assert numbers == sorted(numbers), f"{name} is out of order"


def check_everything_arrives(under_test: BrokerUnderTest) -> None:
    """Records of the source after the router's start are in its dest, or were reported as lost, or deleted."""
    if "source->disk" not in under_test.broker.state.routers.by_name:
        return
    held = set(under_test.datas("source"))
    assert held <= set(under_test.datas("disk"))
    if "source->fsync" in under_test.broker.state.routers.by_name:
        assert held <= set(under_test.datas("fsync"))


def test_copies_keep_their_seqs_when_the_process_is_killed_at_any_step() -> None:
    for step in itertools.count(0, 1 + (not THOROUGH)):
        history = played(step)
        under_test = BrokerUnderTest(history.disk.after_kill(), settings())
        under_test.wait(100)
        check_dests(history, under_test, may_lose=())
        check_no_record_twice(under_test)
        check_everything_arrives(under_test)
        if not history.disk.was_cut:
            break
    assert step > 50


@pytest.mark.parametrize("survive", ["none", "all", "random"])
def test_copies_in_an_fsync_dest_survive_a_power_cut_at_any_step(survive: Any) -> None:
    for step in itertools.count(["none", "all", "random"].index(survive) + 1, STRIDE):
        history = played(step, seed=step)
        under_test = BrokerUnderTest(history.disk.after_power_cut(survive=survive), settings())
        under_test.wait(100)
        check_dests(history, under_test, may_lose=("disk", "far"))
        check_no_record_twice(under_test)
        check_everything_arrives(under_test)
        if not history.disk.was_cut:
            break
    assert step > 50


def test_a_second_end_during_recovery_changes_nothing() -> None:
    whole = played(None, 1)
    for first in range(40, whole.disk.steps, 7 if THOROUGH else 60):
        history = played(first, 1)
        for second in itertools.count(0, 1 if THOROUGH else 2):
            disk = history.disk.after_kill()
            disk.cut_at = second
            try:
                BrokerUnderTest(disk, settings()).wait(100)
            except PowerCut:
                pass
            under_test = BrokerUnderTest(disk.after_kill(), settings())
            under_test.wait(100)
            check_dests(history, under_test, may_lose=())
            check_no_record_twice(under_test)
            if not disk.was_cut:
                break
