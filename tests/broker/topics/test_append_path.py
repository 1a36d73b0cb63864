"""An append of one record can be followed in ten files: docs/ARCHITECTURE.md names them.

The append runs through more files than a reader must open. `CALLED` has every function of the others that it enters: each
does one thing that its name says, and no step of a write is in it. When an append calls something else, either the file
belongs to those that a reader opens, and there are at most ten, or its function is added here and to the last column of the
table in the document.

Not counted: values and loop helpers (`model` except the decoder, `runtime`), and the disk and the clock of the test.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.topics.fast_append import FastAppend
from topics.model.records.batch import decode_batch, decode_singles

ROOT = Path(__file__).resolve().parents[3]
BODY = b'{"records":[{"data":1}]}'
BESIDE = ("model/", "runtime/", "testing/")
MAX_FILES = 10

CALLED = {
    "broker/topics/quota.py": {"Quotas.takes_all"},
    "broker/log/sync_policy.py": {
        "must_sync",
        "SyncPolicy.delays_write",
        "SyncPolicy.start_write",
        "SyncPolicy.count_write",
    },
    "engine/partitions/reservation.py": {"Reservation.__init__", "Reservation.settle"},
    "broker/state.py": {"State.append"},
    "engine/partitions/hot_segment.py": {"HotSegment.append"},
    "broker/durability/sealer.py": {"Sealer.appended"},
    "broker/durability/checkpointer.py": {"Checkpointer.written"},
    "wire/timing.py": {"commit_timing"},
}


def documented(path: str) -> list[str]:
    """The files that the table names for this path."""
    (row,) = re.findall(rf"^\| {path} \|.*$", architecture(), re.M)
    return re.findall(r"`([\w/]+\.py)`", row.split("|")[2])


def architecture() -> str:
    return (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")


def functions_of(run: Callable[[], object]) -> dict[str, set[str]]:
    """The files of the package that are called, and the functions of each that another file calls."""
    entered: dict[str, set[str]] = defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        _, package, path = frame.f_code.co_filename.rpartition("/src/topics/")
        if event != "call" or not package or path.startswith(BESIDE):
            return
        caller = frame.f_back
        if caller is None or caller.f_code.co_filename != frame.f_code.co_filename:
            entered[path].add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return dict(entered)


def check(entered: dict[str, set[str]], files: list[str]) -> None:
    """Those files of the broker and below are called, and of the others only what `CALLED` has."""
    in_broker = {path for path in files if not path.startswith(("server/", *BESIDE))}
    assert in_broker <= set(entered)
    assert not in_broker & set(CALLED)
    others = {path: functions for path, functions in entered.items() if path not in in_broker}
    unexpected = {path: functions - CALLED.get(path, set()) for path, functions in others.items()}
    assert {path: functions for path, functions in unexpected.items() if functions} == {}
    assert set(CALLED) == set(others)
    assert len(files) <= MAX_FILES


@pytest.fixture
def bench() -> BrokerUnderTest:
    under_test = BrokerUnderTest()
    under_test.configure("a")
    # The first record of a partition is synced, which later ones are not.
    under_test.append("a", 0)
    return under_test


def test_append_that_is_handled_by_itself_runs_through_the_documented_files(bench: BrokerUnderTest) -> None:
    outcomes: list[Any] = []

    def append() -> None:
        bench.broker.append("a", decode_batch(BODY, bench.limits), outcomes.append)
        bench.runtime.run()

    check(functions_of(append), documented("handled by itself"))
    assert outcomes[0].first_seq == 2


def test_single_record_that_joins_a_group_runs_through_the_same_files(bench: BrokerUnderTest) -> None:
    replies: list[Any] = []

    def append() -> None:
        batch = decode_batch(BODY, bench.limits)
        assert bench.broker.join("a", batch, ["request"], lambda *reply: replies.append(reply))
        bench.runtime.run()

    check(functions_of(append), documented("handled by itself"))
    ((_, head_seq, _, _, error),) = replies
    assert (head_seq, error) == (2, None)


def test_append_that_is_decoded_with_others_runs_through_the_documented_files(bench: BrokerUnderTest) -> None:
    batch = decode_singles([BODY], bench.limits)
    assert batch is not None
    fast_append = FastAppend(bench.broker, "a")
    entered = functions_of(lambda: fast_append.write(batch, ["request"], lambda *_: None))
    check(entered, documented("decoded with others of its turn, or repeated by one writer"))


def test_document_says_what_each_other_file_is_called_for() -> None:
    (row,) = re.findall(r"^\| handled by itself \|.*$", architecture(), re.M)
    assert set(re.findall(r"`([\w/]+\.py)`", row.split("|")[3])) == set(CALLED)
