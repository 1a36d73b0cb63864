"""Passwords: checks a user's name and password without blocking the event loop and without locking the user out.

Checking an argon2id hash takes tens of milliseconds by design, so it is done on a thread, one at a time. The right password of
a user is then remembered until the process ends, as a digest with a key of this process: later requests with it are
decided at once, whatever else is being checked. Users do not change while the process runs.

Guessing is slow, and the guesses of one client do not delay another. Checks wait in line per name and client address:

    after a wrong password     the next check of that line waits, longer each time, up to MAX_PAUSE_MS
    many wrong passwords       of one address, whatever the names: its lines wait up to MAX_SUSPECT_PAUSE_MS
    order of hashing           lines of addresses without recent wrong passwords come first
    MAX_LINE checks in a line  the next one is refused (429)
    MAX_LINES lines            those that wait longest are dropped, their checks refused (429)

Names that do not exist are treated like those that do and compared with a hash that has no known password, so that neither
the response nor its time distinguishes them.
"""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address
from secrets import token_bytes, token_hex
from typing import NamedTuple

from topics.model.errors import Throttled
from topics.runtime.interface import Runtime
from topics.server.ops.settings import User

# A wrong pair is remembered, so that a client that repeats it costs nothing.
WRONG_KEPT_MS = 60_000
MAX_WRONG_KEPT = 1000
FIRST_PAUSE_MS = 10
MAX_PAUSE_MS = 100
MAX_SUSPECT_PAUSE_MS = 5000
# Wrong passwords of one address, without a pause of SUSPECT_MS between them, before it is slowed down further.
SUSPECT_WRONG = 100
SUSPECT_MS = 600_000
MAX_SUSPECTS = 10_000
MAX_LINE = 64
MAX_LINES = 4096
MAX_PASSWORD_BYTES = 1024

# The user, None for a wrong pair, or Throttled for a check that was not made.
Outcome = User | Throttled | None


class Check(NamedTuple):
    name: str
    password: str
    done: Callable[[Outcome], None]


class Line:
    """Checks of one name from one client address, in the order they came. The first is being made or paused."""

    __slots__ = ("address", "checks", "free_at_ms", "wrong")

    def __init__(self, address: str) -> None:
        self.address = address
        self.checks: deque[Check] = deque()
        self.wrong = 0
        """Wrong passwords since the last right one."""
        self.free_at_ms = 0.0


class Suspect:
    """A client address that has sent wrong passwords."""

    __slots__ = ("until_ms", "wrong")

    def __init__(self) -> None:
        self.wrong = 0
        self.until_ms = 0.0


class Passwords:
    """The users of one server."""

    def __init__(self, users: Iterable[User], runtime: Runtime) -> None:
        self._users = {user.name: user for user in users}
        self._runtime = runtime
        self._key = token_bytes(32)
        # By user name, the digest of the pair that was found right.
        self._right: dict[str, bytes] = {}
        # By the digest of a wrong pair, until when it is remembered.
        self._wrong: dict[bytes, float] = {}
        self._lines: dict[tuple[str, str], Line] = {}
        self._suspects: dict[str, Suspect] = {}
        # Lines whose first check is to be made now: those of addresses without recent wrong passwords, and the others.
        self._trusted: deque[Line] = deque()
        self._suspected: deque[Line] = deque()
        self._hashing = False
        self._no_user = User("", "user", password=token_hex(16))
        self._stand_in_user: User | None = None

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def known(self, name: str, password: str) -> tuple[bool, User | None]:
        """Whether it is known already whose this pair is, and the user; None for a wrong pair."""
        digest = self._digest(name, password)
        right = self._right.get(name)
        if right is not None and compare_digest(right, digest):
            return True, self._users[name]
        until_ms = self._wrong.get(digest)
        return until_ms is not None and until_ms > self._now_ms(), None

    def check(self, name: str, password: str, address: str, done: Callable[[Outcome], None]) -> None:
        """Call `done` with the outcome, now or later. `address` is the client's: see `client_group`."""
        known, user = self.known(name, password)
        if known:
            done(user)
            return
        if len(password.encode()) > MAX_PASSWORD_BYTES:
            # No user has one; refused without the work that its length would cost.
            self._remember_wrong(name, password)
            done(None)
            return
        line = self._line(name, address)
        if len(line.checks) >= MAX_LINE:
            done(_refusal())
            return
        line.checks.append(Check(name, password, done))
        if len(line.checks) == 1:
            self._begin(line)

    def _line(self, name: str, address: str) -> Line:
        key = (name[:256], address)
        line = self._lines.pop(key, None)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                self._drop_line()
            line = Line(address)
        # Ordered by last use.
        self._lines[key] = line
        return line

    def _drop_line(self) -> None:
        """Make room for another line: one without checks, or the one that has waited longest."""
        key = next((key for key, line in self._lines.items() if not line.checks), None)
        if key is None:
            key = next(iter(self._lines))
        line = self._lines.pop(key)
        checks = list(line.checks)
        line.checks.clear()
        for check in checks:
            check.done(_refusal())

    def _begin(self, line: Line) -> None:
        """Have the first check of the line made, after its pause."""
        wait_ms = line.free_at_ms - self._now_ms()
        if wait_ms > 0:
            self._runtime.call_later(wait_ms, lambda: self._queue(line))
        else:
            self._queue(line)

    def _queue(self, line: Line) -> None:
        suspect = self._suspects.get(line.address)
        trusted = suspect is None or suspect.until_ms <= self._now_ms()
        (self._trusted if trusted else self._suspected).append(line)
        self._hash_next()

    def _hash_next(self) -> None:
        while not self._hashing and (self._trusted or self._suspected):
            line = (self._trusted or self._suspected).popleft()
            if not line.checks:
                continue
            name, password, _ = line.checks[0]
            known, user = self.known(name, password)
            if known:
                # Another request with the same pair was first.
                self._finish(line, user)
                continue
            self._hashing = True
            candidate = self._users.get(name) or self._stand_in()
            self._hash(line, line.checks[0], candidate)

    def _hash(self, line: Line, check: Check, candidate: User) -> None:
        def hashed(right: bool, error: BaseException | None) -> None:
            self._hashing = False
            found = candidate if right and error is None and check.name in self._users else None
            if found is not None:
                self._right[found.name] = self._digest(check.name, check.password)
                line.wrong = 0
                line.free_at_ms = 0.0
            else:
                self._remember_wrong(check.name, check.password)
                line.wrong += 1
                line.free_at_ms = self._now_ms() + self._pause_ms(line)
            if line.checks and line.checks[0] is check:
                self._finish(line, found)
            self._hash_next()

        self._runtime.run_in_thread("passwords", lambda: matches(candidate, check.password), hashed)

    def _finish(self, line: Line, found: User | None) -> None:
        check = line.checks.popleft()
        if line.checks:
            # In the next turn: `done` may check again at once, hundreds of times, each within the one before.
            self._runtime.call_soon(lambda: self._begin(line))
        check.done(found)

    def _pause_ms(self, line: Line) -> float:
        """How long the line pauses after another wrong password, which is counted for its address."""
        now_ms = self._now_ms()
        suspect = self._suspects.pop(line.address, None)
        if suspect is None:
            if len(self._suspects) >= MAX_SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            suspect = Suspect()
        self._suspects[line.address] = suspect
        suspect.wrong = suspect.wrong + 1 if suspect.until_ms > now_ms else 1
        suspect.until_ms = now_ms + SUSPECT_MS
        longest = MAX_PAUSE_MS if suspect.wrong < SUSPECT_WRONG else MAX_SUSPECT_PAUSE_MS
        return min(longest, FIRST_PAUSE_MS * (1 << min(line.wrong, 10)))

    def _stand_in(self) -> User:
        """A user whose password is not known to anyone and whose check takes as long as that of the others."""
        if self._stand_in_user is None:
            hashed = [user for user in self._users.values() if user.password_hash is not None]
            self._stand_in_user = hashed[0] if hashed else self._no_user
        return self._stand_in_user

    def _remember_wrong(self, name: str, password: str) -> None:
        digest = self._digest(name, password)
        if len(self._wrong) >= MAX_WRONG_KEPT:
            del self._wrong[next(iter(self._wrong))]
        self._wrong.pop(digest, None)
        self._wrong[digest] = self._now_ms() + WRONG_KEPT_MS

    def _digest(self, name: str, password: str) -> bytes:
        text = len(name).to_bytes(4, "little") + name.encode() + password.encode()
        return blake2b(text, key=self._key, digest_size=32).digest()

    def _now_ms(self) -> float:
        return self._runtime.perf() * 1000


def _refusal() -> Throttled:
    return Throttled("too many passwords are waiting to be checked", retry_after_ms=MAX_SUSPECT_PAUSE_MS)


def client_group(peer: object) -> str:
    """The address of a socket's peer as one client: an IPv6 host has a whole /64 of addresses."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return address.exploded[:19]
    return host


def matches(user: User, password: str) -> bool:
    """Whether this is the user's password. Takes long on purpose."""
    if user.password_hash is None:
        assert user.password is not None
        return compare_digest(user.password.encode(), password.encode())
    from argon2 import PasswordHasher
    from argon2.exceptions import Argon2Error, InvalidHashError

    try:
        return PasswordHasher().verify(user.password_hash, password)
    except (Argon2Error, InvalidHashError):
        return False


def hash_password(password: str) -> str:
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)
