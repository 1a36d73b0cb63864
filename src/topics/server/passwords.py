"""Passwords: who a name and a password belong to, found out without holding up the event loop.

Checking an argon2id hash takes tens of milliseconds by design, so it is done on a thread of its own, and what was right
is remembered for a while: a client that sends its password with every request costs one check a minute. What is
remembered is keyed by a digest with a key of this process; no password is kept.

Guessing is slowed down per name: after a wrong password the next check for that name waits, twice as long each time, up to
some seconds; the right password ends it. Names that do not exist share one such wait and are checked against a hash that
nobody has, so that they cannot be told from those that do.
"""

from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_bytes, token_hex
from typing import NamedTuple

from topics.broker.runtime import Runtime
from topics.model.errors import Throttled
from topics.server.settings import User

KEPT_MS = 60_000
KEPT_MOST = 1000
FIRST_WAIT_MS = 100
LONGEST_WAIT_MS = 5000
# Checks that wait for their turn, for one name.
WAITING_MOST = 32
PASSWORD_BYTES_MOST = 1024


class Check(NamedTuple):
    """A pair to be checked, and who wants to know."""

    name: str
    password: str
    done: Callable[[User | None], None]


class Guesses:
    """How often a name was tried in vain, when it may be tried again, and who waits for that."""

    __slots__ = ("checking", "free_at_ms", "waiting", "wrong")

    def __init__(self) -> None:
        self.wrong = 0
        self.free_at_ms = 0.0
        self.checking = False
        self.waiting: deque[Check] = deque()


class Passwords:
    """The users of one server."""

    def __init__(self, users: Iterable[User], runtime: Runtime) -> None:
        self._users = {user.name: user for user in users}
        self._runtime = runtime
        self._key = token_bytes(32)
        # Digest of name and password -> until when this is known, and the user or None for a wrong password.
        self._known: dict[bytes, tuple[float, User | None]] = {}
        self._guesses: dict[str, Guesses] = {}
        self._nobody = User("", "user", password=token_hex(16))
        self._like_others: User | None = None

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def known(self, name: str, password: str) -> tuple[bool, User | None]:
        """Whether this pair was checked lately, and whose it is."""
        found = self._known.get(self._digest(name, password))
        if found is None or found[0] <= self._now_ms():
            return False, None
        return True, found[1]

    def check(self, name: str, password: str, done: Callable[[User | None], None]) -> None:
        """Call `done` with the user, or None when the pair is wrong. Raises Throttled when too many wait already."""
        if len(password.encode()) > PASSWORD_BYTES_MOST:
            # Nobody has it; said without the work that its length would cost.
            self._keep(self._digest(name, password), None)
            done(None)
            return
        guesses = self._guesses.setdefault(name if name in self._users else "", Guesses())
        if len(guesses.waiting) >= WAITING_MOST:
            raise Throttled("too many wrong passwords", retry_after_ms=LONGEST_WAIT_MS)
        guesses.waiting.append(Check(name, password, done))
        if not guesses.checking:
            self._check_next(guesses)

    def _check_next(self, guesses: Guesses) -> None:
        """One at a time for each name: guesses that come together are no quicker than one behind the other."""
        guesses.checking = bool(guesses.waiting)
        if guesses.checking:
            wait_ms = guesses.free_at_ms - self._now_ms()
            if wait_ms > 0:
                self._runtime.call_later(wait_ms, lambda: self._look(guesses))
            else:
                self._look(guesses)

    def _look(self, guesses: Guesses) -> None:
        name, password, done = guesses.waiting[0]
        known, user = self.known(name, password)
        if known:
            # Another request with the same pair was first.
            self._checked(guesses, done, user)
            return
        candidate = self._users.get(name) or self._stand_in()

        def checked(right: bool, error: BaseException | None) -> None:
            found = candidate if right and error is None and name in self._users else None
            if found is not None:
                guesses.wrong = 0
                guesses.free_at_ms = 0.0
            else:
                guesses.wrong += 1
                guesses.free_at_ms = self._now_ms() + self._pause_ms(guesses)
            self._keep(self._digest(name, password), found)
            self._checked(guesses, done, found)

        self._runtime.run_aside("passwords", lambda: matches(candidate, password), checked)

    def _checked(self, guesses: Guesses, done: Callable[[User | None], None], found: User | None) -> None:
        guesses.waiting.popleft()
        # In the next turn: who is told may ask again at once, hundreds of times, and each time would stand on the one before.
        self._runtime.call_soon(lambda: self._check_next(guesses))
        done(found)

    def _pause_ms(self, guesses: Guesses) -> float:
        return min(LONGEST_WAIT_MS, FIRST_WAIT_MS * (1 << min(guesses.wrong, 10)))

    def _stand_in(self) -> User:
        """Somebody whose password nobody knows and whose check takes as long as that of the others."""
        if self._like_others is None:
            hashed = [user for user in self._users.values() if user.password_hash is not None]
            self._like_others = hashed[0] if hashed else self._nobody
        return self._like_others

    def _keep(self, digest: bytes, user: User | None) -> None:
        if len(self._known) >= KEPT_MOST:
            del self._known[next(iter(self._known))]
        self._known.pop(digest, None)
        # A wrong password is remembered too, so that a client that repeats it costs nothing.
        self._known[digest] = (self._now_ms() + KEPT_MS, user)

    def _digest(self, name: str, password: str) -> bytes:
        text = len(name).to_bytes(4, "little") + name.encode() + password.encode()
        return blake2b(text, key=self._key, digest_size=32).digest()

    def _now_ms(self) -> float:
        return self._runtime.perf() * 1000


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
