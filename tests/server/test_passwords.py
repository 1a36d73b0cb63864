"""Passwords are checked aside, remembered for a while, and slow to guess."""

from typing import Any

import pytest
from argon2 import PasswordHasher

from topics.model.errors import Throttled
from topics.server.passwords import FIRST_WAIT_MS, KEPT_MOST, KEPT_MS, LONGEST_WAIT_MS, WAITING_MOST, Passwords
from topics.server.settings import User
from topics.testing.runtime import ManualRuntime

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("right")
USERS = (User("ada", "dba", password_hash=HASH), User("bo", "user", password="plain"))


class Door:
    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.passwords = Passwords(USERS, self.runtime)
        self.answers: list[Any] = []

    def knock(self, name: str, password: str) -> None:
        self.passwords.check(name, password, lambda user: self.answers.append(user and user.name))

    def pass_time(self, milliseconds: int) -> None:
        self.runtime.clock.advance(milliseconds)
        self.runtime.run()


def test_the_right_password_is_known_after_one_check_aside() -> None:
    door = Door()
    door.knock("ada", "right")
    assert door.answers == []
    assert door.runtime.waiting_aside == 1
    door.runtime.run()
    assert door.answers == ["ada"]
    known, user = door.passwords.known("ada", "right")
    assert (known, user) == (True, USERS[0])


def test_what_is_known_is_forgotten_after_a_while() -> None:
    door = Door()
    door.knock("bo", "plain")
    door.runtime.run()
    door.pass_time(KEPT_MS - 1)
    assert door.passwords.known("bo", "plain")[0]
    door.pass_time(2)
    assert not door.passwords.known("bo", "plain")[0]


@pytest.mark.parametrize(
    "pair", [("ada", "wrong"), ("ada", ""), ("nobody", "right"), ("", ""), ("bo", "Plain"), ("ada", "x" * 2000)]
)
def test_wrong_pairs_are_nobodys(pair: tuple[str, str]) -> None:
    door = Door()
    door.knock(*pair)
    door.runtime.run()
    assert door.answers == [None]
    assert door.passwords.known(*pair) == (True, None)


def test_a_name_and_a_password_cannot_be_cut_elsewhere() -> None:
    door = Door()
    door.knock("bo", "plain")
    door.runtime.run()
    assert door.passwords.known("bop", "lain") == (False, None)


def test_each_wrong_guess_makes_the_next_wait_longer_and_parallel_ones_are_no_quicker() -> None:
    door = Door()
    for number in range(8):
        door.knock("ada", f"wrong {number}")
    door.runtime.run()
    assert len(door.answers) == 1
    door.pass_time(2 * FIRST_WAIT_MS)
    assert len(door.answers) == 2
    door.pass_time(2 * FIRST_WAIT_MS)
    assert len(door.answers) == 2
    door.pass_time(2 * FIRST_WAIT_MS)
    assert len(door.answers) == 3
    door = Door()
    for number in range(6):
        door.knock("ada", f"wrong {number}")
        door.runtime.run()
        door.pass_time(LONGEST_WAIT_MS)
    assert door.answers == [None] * 6
    door.knock("ada", "wrong again")
    door.pass_time(LONGEST_WAIT_MS // 2)
    assert len(door.answers) == 7, "after the longest wait it was free"
    door.knock("ada", "once more")
    door.pass_time(1000)
    assert len(door.answers) == 7
    door.pass_time(LONGEST_WAIT_MS)
    assert len(door.answers) == 8


def test_guessing_one_name_does_not_hold_up_another() -> None:
    door = Door()
    for number in range(10):
        door.knock("ada", f"wrong {number}")
        door.runtime.run()
    door.answers.clear()
    door.knock("bo", "plain")
    door.runtime.run()
    assert door.answers == ["bo"]


def test_the_right_password_ends_the_waiting() -> None:
    door = Door()
    door.knock("ada", "wrong")
    door.runtime.run()
    door.knock("ada", "right")
    door.pass_time(LONGEST_WAIT_MS)
    assert door.answers == [None, "ada"]
    door.passwords._known.clear()
    door.knock("ada", "right")
    door.runtime.run()
    assert door.answers == [None, "ada", "ada"]


def test_too_many_guesses_at_once_are_refused() -> None:
    door = Door()
    for number in range(WAITING_MOST):
        door.knock("ada", f"wrong {number}")
    with pytest.raises(Throttled):
        door.knock("ada", "one more")
    door.knock("bo", "plain")


def test_what_is_remembered_is_bounded() -> None:
    door = Door()
    for number in range(KEPT_MOST + 10):
        door.passwords._keep(number.to_bytes(4, "little"), None)
    assert len(door.passwords._known) == KEPT_MOST


def test_whoever_repeats_a_wrong_password_with_each_answer_does_not_lock_the_name() -> None:
    """As a client does that sends hundreds of requests at once: each is looked at when the one before is answered."""
    door = Door()
    door.knock("ada", "wrong")
    door.runtime.run()
    door.pass_time(LONGEST_WAIT_MS)
    left = 1000

    def again(_user: Any) -> None:
        nonlocal left
        left -= 1
        if left:
            door.passwords.check("ada", "wrong", again)

    door.passwords.check("ada", "wrong", again)
    door.runtime.run()
    assert left == 0
    door.knock("ada", "right")
    door.runtime.run()
    assert door.answers == [None, "ada"]
