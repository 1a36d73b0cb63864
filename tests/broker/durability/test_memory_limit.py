"""Memory stays within its limit when records arrive faster than they are sealed: writes wait, and are refused when too many do."""

from typing import Any

import pytest

from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.model.errors import Throttled
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

SETTINGS = StorageSettings(segment_bytes=2000, hot_bytes=4000, wal_file_bytes=1 << 20, checkpoint_bytes=1 << 20)
LIMITS = Limits(max_body_bytes=4000)


class Site:
    """A broker whose slow work is done only when the test says so."""

    def __init__(self) -> None:
        disk = FakeDisk()
        disk.make_directory("")
        self.runtime = ManualRuntime()
        self.broker = Broker(disk, self.runtime, recover(disk, SETTINGS), LIMITS, SETTINGS)
        self.broker.start()
        self.runtime.run()
        self.answers: list[Any] = []

    def append(self, size: int = 1000) -> None:
        body = b'{"records":[{"data":"%b"}]}' % (b"x" * size)
        self.broker.append("t", decode_batch(body, Limits()), self.answers.append)
        self.runtime.turn()


@pytest.fixture
def site() -> Site:
    site = Site()
    site.append()
    site.runtime.run()
    while not site.broker.sealer.full:
        site.append()
    assert site.runtime.waiting_aside, "segments wait to be sealed"
    return site


def test_writes_wait_for_sealing_and_then_go_on_in_order(site: Site) -> None:
    answered = len(site.answers)
    for _ in range(3):
        site.append()
    assert len(site.answers) == answered
    site.runtime.run()
    seqs = [answer.first_seq for answer in site.answers]
    assert seqs == list(range(1, answered + 4))
    assert not site.broker.sealer.full
    assert site.broker.topic("t").partitions[0].head_seq == answered + 3


def test_more_waiting_than_may_be_hot_is_refused(site: Site) -> None:
    for _ in range(3):
        site.append()
    with pytest.raises(Throttled):
        site.append()
    assert site.broker.counts.no_room == 4
    site.runtime.run()
    site.append()
    site.runtime.run()
    assert not [answer for answer in site.answers if isinstance(answer, Exception)]
