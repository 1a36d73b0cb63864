"""Work of the storage thread is counted while it runs, so that syncs do not wait for it on the loop."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.durability.storage_thread import StorageThread


def test_the_disk_is_busy_until_the_work_is_done() -> None:
    under_test = BrokerUnderTest()
    committer = under_test.broker.committer
    thread = StorageThread(under_test.runtime, committer, committer.space)
    outcomes: list[object] = []
    thread.run(lambda: 7, lambda result, error: outcomes.append((result, error)))
    assert committer.disk_busy == 1
    under_test.runtime.run()
    assert (committer.disk_busy, outcomes) == (0, [(7, None)])


def test_an_exception_of_the_work_is_passed_on() -> None:
    under_test = BrokerUnderTest()
    committer = under_test.broker.committer
    outcomes: list[object] = []

    def fails() -> None:
        raise OSError("full")

    StorageThread(under_test.runtime, committer, committer.space).write(
        fails, lambda _, error: outcomes.append(str(error))
    )
    under_test.runtime.run()
    assert (committer.disk_busy, outcomes) == (0, ["full"])
