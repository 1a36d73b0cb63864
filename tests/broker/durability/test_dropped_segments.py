"""Dropped segments: their files stay as long as recovery may need them, and no longer."""

from tests.broker.broker_under_test import BrokerUnderTest

TEXT = "x" * 50


def broker_with_sealed_segments() -> BrokerUnderTest:
    under_test = BrokerUnderTest()
    under_test.configure("log", cap_records=100)
    write(under_test, 100)
    return under_test


def write(under_test: BrokerUnderTest, count: int) -> None:
    for number in range(count):
        under_test.append("log", f"{number}{TEXT}")


def segments(under_test: BrokerUnderTest) -> list[str]:
    return [name for name in under_test.disk.list("segments") if name.endswith(".arrow")]


def test_segments_evicted_after_a_snapshot_do_not_keep_the_server_from_starting() -> None:
    under_test = broker_with_sealed_segments()
    under_test.checkpoint()
    named = segments(under_test)
    write(under_test, 100)
    under_test.wait(2000)
    again = under_test.after_kill()
    assert again.broker.topic("log").partitions[0].earliest_seq == 101
    assert set(named) <= set(segments(again)), "the snapshot still names them"
    once_more = again.after_kill()
    assert once_more.datas("log") == under_test.datas("log")


def test_segments_leave_the_disk_when_no_kept_snapshot_names_them() -> None:
    under_test = broker_with_sealed_segments()
    under_test.checkpoint()
    named = set(segments(under_test))
    write(under_test, 100)
    under_test.wait(2000)
    again = under_test.after_kill()
    for _ in range(2):
        again.checkpoint()
        again.wait(2000)
    assert named.isdisjoint(segments(again))
    assert again.after_kill().datas("log") == under_test.datas("log")


def test_segments_no_snapshot_names_leave_at_once() -> None:
    under_test = broker_with_sealed_segments()
    first = segments(under_test)[0]
    write(under_test, 100)
    under_test.wait(2000)
    assert first not in segments(under_test)
    assert under_test.after_kill().datas("log") == under_test.datas("log")


def test_a_segment_sealed_again_after_an_end_is_not_taken_for_its_predecessor() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("log", cap_records=30)
    write(under_test, 30)
    under_test.configure("log", cap_records=4)
    write(under_test, 1)
    under_test.wait(2000)
    first = "-00000000000000000001.arrow"
    assert not any([name.endswith(first) for name in segments(under_test)]), "dropped, and named by nothing"
    again = under_test.after_kill()
    again.broker.sealer.seal(again.broker.topic("log"), again.broker.topic("log").partitions[0])
    again.runtime.run()
    assert any([name.endswith(first) for name in segments(again)]), "what was hot in replay begins there"
    assert again.after_kill().datas("log") == under_test.datas("log")
