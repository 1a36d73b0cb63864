"""Nothing stays unsynced for long, also what was written while a sync was already under way."""

from typing import Any

from topics.model.storage_settings import StorageSettings
from topics.testing.broker import BrokerBench

WRITE = b'{"records":[{"data":1}]}'
SETTINGS = StorageSettings(sync_interval_ms=100)


def written_during_a_sync() -> BrokerBench:
    """A write to a disk topic after the sync began and before its end was handled."""
    bench = BrokerBench(settings=SETTINGS)
    # The very first write of a log waits for a sync, whatever its class.
    bench.append("disk", b"0")
    bench.configure("fsync", durability="fsync")
    bench.clock.advance(1000)
    bench.runtime.run()
    bench.submit("fsync", WRITE)
    bench.runtime.turn()
    assert bench.runtime.waiting_aside == 1
    bench.runtime.finish_one()
    outcome = bench.submit("disk", WRITE)
    bench.broker.committer.flush()
    assert outcome, "a disk topic does not wait for a sync"
    assert bench.broker.committer.wal.dirty
    return bench


def test_a_write_during_a_sync_is_synced_within_the_interval() -> None:
    bench = written_during_a_sync()
    bench.runtime.run()
    bench.clock.advance(SETTINGS.sync_interval_ms)
    bench.runtime.run()
    assert not bench.broker.committer.wal.dirty


def test_a_write_during_a_sync_does_not_keep_the_server_from_stopping() -> None:
    bench = written_during_a_sync()
    stopped: list[Any] = []
    bench.broker.stop(stopped.append)
    bench.runtime.run()
    assert stopped == [True]
