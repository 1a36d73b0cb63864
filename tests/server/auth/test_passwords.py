"""Passwords are checked aside and slow to guess, and the guesses of one client do not lock a user out."""

from typing import Any

import pytest
from argon2 import PasswordHasher

from topics.model.errors import Throttled
from topics.server.auth.passwords import (
    MAX_LINE,
    MAX_LINES,
    MAX_PAUSE_MS,
    MAX_SUSPECT_PAUSE_MS,
    SUSPECT_MS,
    SUSPECT_WRONG,
    WRONG_KEPT_MS,
    Passwords,
    client_group,
)
from topics.server.ops.settings import User
from topics.testing.runtime import ManualRuntime

HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("right")
USERS = (User("ada", "dba", password_hash=HASH), User("bo", "user", password="plain"))
HOME, ELSEWHERE = "192.0.2.1", "198.51.100.7"


class Site:
    """Users with their passwords, on a clock that the test moves."""

    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.passwords = Passwords(USERS, self.runtime)
        self.answers: list[Any] = []

    def check(self, name: str, password: str, address: str = HOME) -> list[Any]:
        """The outcome comes into the list, and into `answers`: a name, None or the error."""
        outcome: list[Any] = []

        def done(found: Any) -> None:
            outcome.append(found.name if isinstance(found, User) else found)
            self.answers.append(outcome[0])

        self.passwords.check(name, password, address, done)
        return outcome

    def run(self) -> None:
        self.runtime.run()

    def pass_time(self, milliseconds: int) -> None:
        self.runtime.clock.advance(milliseconds)
        self.runtime.run()

    def guess(self, count: int, name: str = "ada", address: str = HOME) -> None:
        """As many wrong passwords, one after the other, each as soon as it is allowed."""
        for number in range(count):
            self.check(name, f"wrong {len(self.answers)} {number}", address)
            self.pass_time(MAX_SUSPECT_PAUSE_MS)


def test_the_right_password_is_known_after_one_check_aside_until_the_process_ends() -> None:
    site = Site()
    outcome = site.check("ada", "right")
    assert outcome == []
    assert site.runtime.waiting_aside == 1
    site.run()
    assert outcome == ["ada"]
    for _ in range(100):
        site.pass_time(WRONG_KEPT_MS)
        assert site.passwords.known("ada", "right") == (True, USERS[0])
    assert site.check("ada", "right") == ["ada"]
    assert site.runtime.waiting_aside == 0


def test_a_wrong_pair_is_forgotten_after_a_while() -> None:
    site = Site()
    site.check("bo", "wrong")
    site.run()
    site.pass_time(WRONG_KEPT_MS - 1)
    assert site.passwords.known("bo", "wrong") == (True, None)
    site.pass_time(2)
    assert site.passwords.known("bo", "wrong") == (False, None)


@pytest.mark.parametrize(
    "pair", [("ada", "wrong"), ("ada", ""), ("absent", "right"), ("", ""), ("bo", "Plain"), ("ada", "x" * 2000)]
)
def test_wrong_pairs_belong_to_no_user(pair: tuple[str, str]) -> None:
    site = Site()
    outcome = site.check(*pair)
    site.run()
    assert outcome == [None]
    assert site.passwords.known(*pair) == (True, None)


def test_a_name_and_a_password_cannot_be_cut_elsewhere() -> None:
    site = Site()
    site.check("bo", "plain")
    site.run()
    assert site.passwords.known("bop", "lain") == (False, None)


# Locking out


def test_wrong_passwords_from_elsewhere_do_not_delay_a_user_who_logs_in_for_the_first_time() -> None:
    site = Site()
    for number in range(MAX_LINE + 20):
        site.check("ada", f"wrong {number}", ELSEWHERE)
    outcome = site.check("ada", "right", HOME)
    site.run()
    assert outcome == ["ada"], "no time has passed"


def test_wrong_passwords_do_not_delay_a_user_who_has_logged_in_before_wherever_they_come_from() -> None:
    site = Site()
    site.check("ada", "right")
    site.run()
    site.guess(SUSPECT_WRONG + 10)
    for number in range(MAX_LINE + 20):
        site.check("ada", f"wrong {number}")
    assert isinstance(site.answers[-1], Throttled)
    assert site.check("ada", "right") == ["ada"], "at once"


def test_forty_wrong_passwords_from_the_same_address_delay_the_first_login_by_seconds_only() -> None:
    site = Site()
    for number in range(40):
        site.check("ada", f"wrong {number}")
    outcome = site.check("ada", "right")
    waited_ms = 0
    while not outcome:
        site.pass_time(50)
        waited_ms += 50
        assert waited_ms < 8000
    assert outcome == ["ada"]


def test_wrong_passwords_for_many_names_do_not_push_out_what_is_known_to_be_right() -> None:
    site = Site()
    site.check("bo", "plain")
    site.run()
    for number in range(3000):
        site.check(f"name {number}", "x" * 2000, ELSEWHERE)
    assert site.passwords.known("bo", "plain")[0]


def test_addresses_without_wrong_passwords_are_hashed_first() -> None:
    site = Site()
    site.guess(1, "someone", ELSEWHERE)
    for number in range(20):
        site.check(f"name {number}", "guess", ELSEWHERE)
    outcome = site.check("ada", "right", HOME)
    # The one that is being made cannot be overtaken.
    for _ in range(2):
        site.runtime.finish_one()
        site.runtime.turn()
    assert outcome == ["ada"]


# Guessing


def test_guesses_of_one_line_are_made_one_by_one_with_growing_pauses() -> None:
    site = Site()
    for number in range(8):
        site.check("ada", f"wrong {number}")
    site.run()
    assert len(site.answers) == 1
    counts = []
    for _ in range(10):
        site.pass_time(MAX_PAUSE_MS // 2)
        counts.append(len(site.answers))
    assert counts[-1] <= 8
    # From the fourth on each waits MAX_PAUSE_MS.
    assert counts[5] - counts[3] == 1
    site.pass_time(MAX_PAUSE_MS * 8)


def test_an_address_with_many_wrong_passwords_is_slowed_down_for_every_name() -> None:
    site = Site()
    for number in range(SUSPECT_WRONG):
        site.guess(1, f"name {number}")
    made = len(site.answers)
    for number in range(8):
        site.check("ada", f"wrong {number}")
    for _ in range(12):
        site.pass_time(1000)
    # Pauses of 20 ms to 5 s, twice as long each time: 20, 40, ... 2560, 5000 ms.
    assert len(site.answers) - made <= 9
    # Others are not.
    outcome = site.check("bo", "plain", ELSEWHERE)
    site.run()
    assert outcome == ["bo"]
    # After a while without wrong passwords it starts again.
    site.pass_time(60_000)
    site.pass_time(SUSPECT_MS)
    made = len(site.answers)
    for number in range(20):
        site.check("ada", f"later {number}")
    for _ in range(30):
        site.pass_time(MAX_PAUSE_MS)
    assert len(site.answers) - made == 20


def test_the_right_password_ends_the_pauses_of_its_line() -> None:
    site = Site()
    site.guess(6)
    site.check("ada", "right")
    site.pass_time(MAX_PAUSE_MS)
    site.answers.clear()
    site.check("ada", "wrong again")
    site.run()
    assert site.answers == [None], "without a pause before it"


def test_names_that_do_not_exist_are_paused_and_hashed_like_those_that_do() -> None:
    timelines = []
    for name in ("ada", "absent"):
        site = Site()
        for number in range(12):
            site.check(name, f"wrong {number}")
        timeline = []
        for _ in range(40):
            site.pass_time(10)
            timeline.append(len(site.answers))
        timelines.append(timeline)
    assert timelines[0] == timelines[1]


# Bounds


def test_checks_beyond_the_longest_line_are_refused() -> None:
    site = Site()
    for number in range(MAX_LINE):
        assert site.check("ada", f"wrong {number}") == []
    (refused,) = site.check("ada", "one more")
    assert isinstance(refused, Throttled)
    assert refused.retry_after_ms > 0


def test_lines_are_bounded_and_the_one_that_waits_longest_is_dropped_for_another() -> None:
    site = Site()
    first = site.check("name 0", "guess", ELSEWHERE)
    second = site.check("name 1", "guess", ELSEWHERE)
    for number in range(2, MAX_LINES + 1):
        site.check(f"name {number}", "guess", ELSEWHERE)
    assert isinstance(first[0], Throttled)
    assert second == []
    site.run()
    assert second == [None]
    assert len(site.answers) == MAX_LINES + 1


def test_client_that_repeats_a_wrong_password_with_each_answer_costs_one_check() -> None:
    """As a client does that sends hundreds of requests at once: each is looked at when the one before is answered."""
    site = Site()
    left = 1000

    def again(_user: Any) -> None:
        nonlocal left
        left -= 1
        if left % 100:
            site.passwords.check("ada", "wrong", HOME, again)

    site.passwords.check("ada", "wrong", HOME, again)
    site.run()
    for _ in range(9):
        site.passwords.check("ada", "wrong", HOME, again)
        site.run()
    assert left == 0
    assert site.runtime.waiting_aside == 0
    outcome = site.check("ada", "right")
    site.pass_time(MAX_PAUSE_MS)
    assert outcome == ["ada"]


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        (("192.0.2.1", 80), "192.0.2.1"),
        (("2001:db8:1:2:3:4:5:6", 80, 0, 0), "2001:0db8:0001:0002"),
        (("2001:db8:1:2::1", 80, 0, 0), "2001:0db8:0001:0002"),
        (("fe80::1%eth0", 80, 0, 2), "fe80:0000:0000:0000"),
        (("::ffff:192.0.2.1", 80, 0, 0), "::ffff:192.0.2.1"),
        (None, ""),
        ("", ""),
    ],
)
def test_an_ipv6_host_with_all_its_addresses_is_one_client(peer: object, group: str) -> None:
    assert client_group(peer) == group
