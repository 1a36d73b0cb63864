"""Who works on which partition, as time passes and members come and go."""

import itertools
import random

import pytest

from topics.engine.cache import Cache
from topics.engine.groups.group import Group, Position, lag
from topics.engine.partitions.partition import Partition, Totals
from topics.model.facts import Deleted, DeletedBelow
from topics.model.records.page import make_page

SESSION_MS = 1000


def positioned(partitions: int) -> Group:
    group = Group("g")
    group.positions = {number: Position(1) for number in range(partitions)}
    return group


def test_the_next_offset_is_the_pin_until_an_ack_passes_it() -> None:
    assert Position(5).next_offset == 5
    assert Position(5, 7).next_offset == 8
    assert Position(5, 2).next_offset == 5


def test_an_older_ack_changes_nothing() -> None:
    position = Position(1, 7, 10)
    assert position.acked_up_to(7, 99) is position
    assert position.acked_up_to(8, 99) == Position(1, 8, 99)


def test_a_decision_builds_on_the_one_under_way() -> None:
    group = positioned(1)
    group.decided[0] = Position(1, 5)
    assert group.latest(0) == Position(1, 5)
    assert group.latest(1) is None


def test_the_first_member_gets_everything_and_the_second_its_half() -> None:
    group = positioned(4)
    group.join("a", 0, SESSION_MS, 4)
    assert group.owned("a") == [0, 1, 2, 3]
    group.join("b", 0, SESSION_MS, 4)
    assert (len(group.owned("a")), len(group.owned("b"))) == (2, 2)


def test_a_partition_with_records_in_hand_does_not_move_until_they_are_acked() -> None:
    group = positioned(2)
    group.join("a", 0, SESSION_MS, 2)
    group.hand_out(0, 10)
    group.hand_out(1, 3)
    group.join("b", 0, SESSION_MS, 2)
    assert group.owned("b") == []
    group.positions[1] = Position(1, 2)
    group.share(2)
    assert group.owned("b") == []
    group.positions[1] = Position(1, 3)
    group.share(2)
    assert group.owned("b") == [1]


def test_a_session_lasts_while_a_poll_is_open_and_a_while_after() -> None:
    group = positioned(1)
    member = group.join("a", 0, SESSION_MS, 1)
    assert member is not None
    member.open_polls = 1
    assert not group.expire(10 * SESSION_MS, 1)
    assert group.next_expiry_ms() is None
    member.open_polls = 0
    member.until_ms = 11 * SESSION_MS
    assert group.next_expiry_ms() == 11 * SESSION_MS
    assert not group.expire(11 * SESSION_MS - 1, 1)
    assert group.expire(11 * SESSION_MS, 1)
    assert group.owners == {}


def test_what_a_dead_member_held_goes_to_the_living_with_what_was_in_hand() -> None:
    group = positioned(3)
    group.join("a", 0, SESSION_MS, 3)
    group.hand_out(0, 5)
    group.join("b", SESSION_MS, SESSION_MS, 3)
    assert group.owned("b") == [0, 1, 2]
    assert not group.outstanding(0)


def test_a_live_session_is_renewed_and_an_expired_one_is_not() -> None:
    group = positioned(1)
    member = group.join("a", 0, SESSION_MS, 1)
    assert member is not None
    assert group.renew("a", 900, SESSION_MS)
    assert not group.renew("unknown", 900, SESSION_MS)
    assert not group.expire(1899, 1)
    # Nothing has swept it yet, and it is over all the same.
    assert not group.renew("a", 1900, SESSION_MS)
    assert group.expire(1900, 1)


def test_partitions_of_expired_sessions_go_to_live_members() -> None:
    group = positioned(3)
    group.join("a", 0, SESSION_MS, 3)
    group.hand_out(0, 5)
    group.hand_out(1, 5)
    group.hand_out(2, 5)
    group.join("b", 500, SESSION_MS, 3)
    assert group.owned("b") == []
    assert group.expire(SESSION_MS, 3)
    assert group.owned("b") == [0, 1, 2]


def test_a_named_partition_is_kept_from_others_and_brings_no_other() -> None:
    group = positioned(3)
    assert group.join("a", 0, SESSION_MS, 3, wanted=1) is not None
    assert group.owned("a") == [1]
    assert group.join("b", 0, SESSION_MS, 3, wanted=1) is None
    assert "b" not in group.members
    group.join("c", 0, SESSION_MS, 3)
    assert group.owned("c") == [0, 2]


def test_a_shared_partition_can_be_claimed_unless_its_records_are_in_hand() -> None:
    group = positioned(2)
    group.join("a", 0, SESSION_MS, 2)
    group.hand_out(0, 1)
    assert group.join("b", 0, SESSION_MS, 2, wanted=0) is None
    assert group.join("b", 0, SESSION_MS, 2, wanted=1) is not None
    assert (group.owned("a"), group.owned("b")) == ([0], [1])


def test_leaving_frees_at_once() -> None:
    group = positioned(2)
    group.join("a", 0, SESSION_MS, 2)
    group.join("b", 0, SESSION_MS, 2)
    assert group.leave("a", 2)
    assert group.owned("b") == [0, 1]
    assert not group.leave("a", 2)


@pytest.mark.parametrize("seed", range(30))
def test_no_record_is_ever_in_the_hands_of_two_live_members(seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.randint(1, 6)
    group = positioned(partitions)
    now_ms = 0
    # What each consumer was handed and has not acked; a dead one's hands are empty.
    hands: dict[tuple[int, int], str] = {}
    for _ in range(400):
        now_ms += chance.choice([0, 1, 50, 400])
        consumer = chance.choice("abcd")
        group.expire(now_ms, partitions)
        hands = {record: holder for record, holder in hands.items() if holder in group.members}
        group.join(consumer, now_ms, SESSION_MS, partitions)
        mine = group.owned(consumer)
        assert sorted(group.owners) == list(range(partitions))
        if not mine:
            continue
        number = chance.choice(mine)
        position = group.positions[number]
        if chance.random() < 0.6:
            upto = position.next_offset + chance.randint(0, 3)
            for offset in range(position.next_offset, upto + 1):
                assert hands.setdefault((number, offset), consumer) == consumer
            group.hand_out(number, upto)
        elif group.delivered.get(number):
            acked = chance.randint(position.acked, max(position.acked, group.delivered[number]))
            group.positions[number] = position.acked_up_to(acked, now_ms)
            hands = {record: holder for record, holder in hands.items() if record[0] != number or record[1] > acked}
            group.share(partitions)


def test_members_end_up_with_even_shares() -> None:
    for members, partitions in itertools.product(range(1, 6), range(1, 9)):
        group = positioned(partitions)
        for number in range(members):
            group.join(str(number), 0, SESSION_MS, partitions)
        shares = [len(group.owned(str(number))) for number in range(members)]
        assert sum(shares) == partitions
        assert max(shares) - min(shares) <= 1


# Lag


def filled(records: int) -> Partition:
    partition = Partition(1, 0, Cache(1000), Totals())
    for number in range(records):
        partition.apply_append(make_page(number + 1, 1, 1000 + number, b"1"))
    return partition


def test_lag_counts_live_records_and_the_age_of_the_oldest() -> None:
    partition = filled(10)
    assert (lag(partition, 1, 5000).records, lag(partition, 1, 5000).seconds) == (10, 4.0)
    assert (lag(partition, 8, 5000).records, lag(partition, 8, 5000).seconds) == (3, 3.993)
    assert (lag(partition, 11, 5000).records, lag(partition, 11, 5000).seconds) == (0, 0.0)
    assert lag(partition, 99, 5000).records == 0


def test_deleted_records_are_not_behind() -> None:
    partition = filled(10)
    partition.apply_deleted(Deleted(1, 0, b"".join([seq.to_bytes(8, "little") for seq in (2, 5, 6)])))
    assert [lag(partition, offset, 5000).records for offset in (1, 2, 3, 5, 6, 7, 10, 11)] == [7, 6, 6, 4, 4, 4, 1, 0]
    assert lag(partition, 5, 5000).seconds == 3.994
    partition.apply_deleted_below(DeletedBelow(1, 0, 9))
    assert [lag(partition, offset, 5000).records for offset in (1, 9, 10)] == [2, 2, 1]
