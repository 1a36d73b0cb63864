"""API keys: how `TOPICS_API_KEYS` is read, and how a presented token is recognised.

    entries  := entry ("," entry)*
    entry    := secret | secret ":" scopes | secret ":" scopes ":" prefixes
    scopes   := "" | scope ("+" scope)*         an empty field means all of them
    scope    := read | write | delete | admin | r | w | d | a | rw
    prefixes := "" | prefix ("|" prefix)*       an empty field means every name; a prefix may hold colons

Only SHA-256 digests of the secrets are kept. A token is compared with all of them in constant time: the time does not depend on
which key matches, or on how much of it. An entry that cannot be read stops the server; the message names its position.
"""

from hashlib import sha256
from hmac import compare_digest

from topics.api.operation import ADMIN, ALL, DELETE, READ, WRITE
from topics.server.auth.authorization import Caller

SCOPES = {
    "read": READ,
    "r": READ,
    "write": WRITE,
    "w": WRITE,
    "delete": DELETE,
    "d": DELETE,
    "admin": ADMIN,
    "a": ADMIN,
    "rw": READ | WRITE,
}


class Keyring:
    """The keys of one server. Holds digests and what each may do, never a secret."""

    def __init__(self, keys: list[tuple[bytes, Caller]] | None = None) -> None:
        self._keys = keys or []

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def callers(self) -> list[Caller]:
        return [caller for _, caller in self._keys]

    def with_callers_of(self, previous: "Keyring") -> "Keyring":
        """The same keys. A key that was in `previous` and may do the same keeps its Caller: its streams and sessions go on."""
        known = dict(previous._keys)
        return Keyring(
            [
                (digest, known[digest] if digest in known and known[digest].allows_the_same_as(caller) else caller)
                for digest, caller in self._keys
            ]
        )

    def find(self, token: bytes) -> Caller | None:
        """Who holds this token."""
        presented = sha256(token).digest()
        found = None
        for digest, caller in self._keys:
            if compare_digest(digest, presented):
                found = caller
        return found


def parse_keys(text: str) -> tuple[Keyring, list[str]]:
    """The keys, and what is wrong with the entries that could not be read, without their secrets."""
    keys: dict[bytes, Caller] = {}
    problems: list[str] = []
    entries = [(number, entry.strip()) for number, entry in enumerate(text.split(","), start=1)]
    for number, entry in entries:
        if not entry:
            continue
        secret, _, rest = entry.partition(":")
        scope_field, _, prefix_field = rest.partition(":")
        if not secret:
            problems.append(f"entry {number} has no key before its first colon")
            continue
        scopes = ALL
        if scope_field:
            scopes = 0
            for token in scope_field.split("+"):
                if token not in SCOPES:
                    # This may be part of a secret that contains a colon: the message does not repeat it.
                    problems.append(f"entry {number} has a scope that does not exist (known: {', '.join(SCOPES)})")
                    break
                scopes |= SCOPES[token]
        prefixes = prefix_field.split("|") if prefix_field else []
        if not all(prefixes):
            problems.append(f"entry {number} has an empty prefix in its list, which would allow every name")
        caller = Caller(f"key-{number}", scopes, prefixes)
        other = keys.setdefault(digest_of(secret), caller)
        if (other.scopes, other.prefixes) != (caller.scopes, caller.prefixes):
            problems.append(f"entry {number} has the same key as {other.name} but allows something else")
    if text.strip() and not keys and not problems:
        problems.append("there is no key in it")
    return Keyring(list(keys.items())), problems


def digest_of(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()
