"""Segments that nobody reads any more: their files stay as long as recovery may ask for them, and no longer."""

from tests.broker.house import House

TEXT = "x" * 50


def house_with_sealed_segments() -> House:
    house = House()
    house.configure("log", cap_records=100)
    write(house, 100)
    return house


def write(house: House, count: int) -> None:
    for number in range(count):
        house.append("log", f"{number}{TEXT}")


def segments(house: House) -> list[str]:
    return [name for name in house.disk.list("segments") if name.endswith(".arrow")]


def test_segments_evicted_after_a_snapshot_do_not_keep_the_server_from_starting() -> None:
    house = house_with_sealed_segments()
    house.checkpoint()
    named = segments(house)
    write(house, 100)
    house.wait(2000)
    again = house.after_kill()
    assert again.broker.topic("log").partitions[0].earliest_seq == 101
    assert set(named) <= set(segments(again)), "the snapshot still names them"
    once_more = again.after_kill()
    assert once_more.datas("log") == house.datas("log")


def test_segments_leave_the_disk_when_no_kept_snapshot_names_them() -> None:
    house = house_with_sealed_segments()
    house.checkpoint()
    named = set(segments(house))
    write(house, 100)
    house.wait(2000)
    again = house.after_kill()
    for _ in range(2):
        again.checkpoint()
        again.wait(2000)
    assert named.isdisjoint(segments(again))
    assert again.after_kill().datas("log") == house.datas("log")


def test_segments_no_snapshot_names_leave_at_once() -> None:
    house = house_with_sealed_segments()
    first = segments(house)[0]
    write(house, 100)
    house.wait(2000)
    assert first not in segments(house)
    assert house.after_kill().datas("log") == house.datas("log")


def test_a_segment_sealed_anew_after_an_end_is_not_taken_for_its_predecessor() -> None:
    house = House()
    house.configure("log", cap_records=30)
    write(house, 30)
    house.configure("log", cap_records=4)
    write(house, 1)
    house.wait(2000)
    first = "-00000000000000000001.arrow"
    assert not any([name.endswith(first) for name in segments(house)]), "dropped, and named by nothing"
    again = house.after_kill()
    again.broker.keeper.seal(again.broker.topic("log"), again.broker.topic("log").partitions[0])
    again.runtime.run()
    assert any([name.endswith(first) for name in segments(again)]), "what was hot in replay begins there"
    assert again.after_kill().datas("log") == house.datas("log")
