"""An append of one record can be followed in ten files: docs/ARCHITECTURE.md names them, and an append runs through no others."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.topics.fast_append import FastAppend
from topics.model.records.batch import decode_batch, decode_singles

ROOT = Path(__file__).resolve().parents[3]
BODY = b'{"records":[{"data":1}]}'
# Values, the loop with its helpers, and the disk and the clock of the test.
BESIDE = ("model/", "runtime/", "testing/")


def documented(path: str) -> tuple[list[str], list[str]]:
    """The files of this row of the table: those to read, and those of which it makes one call."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {path}.*$", text, re.M)
    files, calls = [re.findall(r"`([\w/]+\.py)`", cell) for cell in row.strip("|").split("|")[1:]]
    return files, calls


def files_of(run: Callable[[], object]) -> set[str]:
    """The files of the package whose functions are called."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        _, package, path = frame.f_code.co_filename.rpartition("/src/topics/")
        if event == "call" and package:
            called.add(path)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return {path for path in called if not path.startswith(BESIDE)}


def in_broker(files: list[str]) -> set[str]:
    return {path for path in files if not path.startswith(("server/", *BESIDE))}


def bench() -> BrokerUnderTest:
    under_test = BrokerUnderTest()
    under_test.configure("a")
    # The first record of a partition is synced, which later ones are not.
    under_test.append("a", 0)
    return under_test


def test_an_append_of_one_record_runs_through_the_ten_documented_files_and_those_it_calls_once() -> None:
    under_test = bench()
    files, calls = documented("alone")
    outcomes: list[Any] = []

    def append() -> None:
        under_test.broker.append("a", decode_batch(BODY, under_test.limits), outcomes.append)
        under_test.runtime.run()

    assert files_of(append) == in_broker(files) | in_broker(calls)
    assert outcomes[0].first_seq == 2
    assert len(files) == 10


def test_the_fast_path_runs_through_ten_documented_files_and_calls_nothing_else() -> None:
    under_test = bench()
    files, _ = documented("with others")
    _, calls = documented("alone")
    batch = decode_singles([BODY], under_test.limits)
    assert batch is not None
    fast_append = FastAppend(under_test.broker, "a")
    called = files_of(lambda: fast_append.write(batch, ["request"], lambda *_: None))
    assert called == in_broker(files) | in_broker(calls) - {"broker/log/commit.py"}
    assert len(files) == 10
