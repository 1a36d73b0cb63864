"""Tokens: JSON Web Tokens with a user's name, role and expiry.

Ours are issued at login, signed with HS256. Tokens of other issuers are accepted when they are signed with the same secret
or, with RS256, with the private key of the configured public key. The algorithm is fixed by the key and not taken from the
token. Claims: `sub` the name, `role` the role, `exp` the expiry, `iat` and `iss` on ours.

`exp` is required. `exp`, `nbf` and `iat` must be times: numbers from 0 to the end of the year 9999, so that neither
Infinity, NaN nor a huge number makes a token that never expires.
"""

from collections.abc import Callable
from time import time
from typing import Any

from topics.server.auth.authorization import Caller
from topics.server.auth.roles import caller_for
from topics.server.ops.settings import ROLES, BadSettings

ISSUER = "topics"
MAX_CALLERS = 10_000
MAX_TOKEN_BYTES = 8192
MAX_TIME = 253_402_300_799  # 9999-12-31T23:59:59Z


class Tokens:
    """Issues tokens and recognises them."""

    def __init__(
        self,
        secret: str | None,
        public_key: str | None,
        *,
        seconds: int,
        user_may_consume: bool,
        role_of: Callable[[str], str | None],
        now: Callable[[], float] = time,
    ) -> None:
        # Imported by servers that take tokens only.
        import jwt

        self._jwt = jwt
        self._keys: dict[str, Any] = {}
        if secret is not None:
            # HMAC pads a short key with zeros. Padded here, because the library would warn about a short key at every call; the
            # server warns once, at its start.
            self._keys["HS256"] = secret.encode().ljust(32, b"\0")
        if public_key is not None:
            self._keys["RS256"] = read_public_key(public_key)
        self.seconds = seconds
        self._user_may_consume = user_may_consume
        self._role_of = role_of
        self._now = now
        self._callers: dict[tuple[str, str], Caller] = {}

    def issue(self, name: str, role: str) -> str:
        """A token for this user that expires after `seconds`."""
        now = int(self._now())
        claims = {"sub": name, "role": role, "iss": ISSUER, "iat": now, "exp": now + self.seconds}
        return self._jwt.encode(claims, self._keys["HS256"], algorithm="HS256")

    def find(self, token: bytes) -> Caller | None:
        """The user of the token; None when its signature or a claim is wrong, or it has expired."""
        if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
            return None
        claims = self._claims(token)
        if claims is None:
            return None
        name, role = claims.get("sub"), claims.get("role")
        # Names get into logs: no control characters, no half surrogate pairs.
        if not isinstance(name, str) or not 1 <= len(name) <= 255 or not name.isprintable():
            return None
        if claims.get("iss") == ISSUER:
            # The role that the user has now counts, not the one in the token.
            role = self._role_of(name)
        if role not in ROLES:
            return None
        return self._caller(name, role)

    def keep_callers_of(self, previous: "Tokens") -> None:
        """Use the Callers of the tokens before a reload, if their roles mean the same."""
        if self._user_may_consume == previous._user_may_consume:
            self._callers = previous._callers

    def _claims(self, token: bytes) -> dict[str, Any] | None:
        try:
            algorithm: str = str(self._jwt.get_unverified_header(token).get("alg"))
            key = self._keys.get(algorithm)
            if key is None:
                return None
            # Times are compared here, by the clock this object was given.
            checks = {
                "require": ["exp"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "verify_aud": False,
            }
            claims = self._jwt.decode(token, key, algorithms=[algorithm], options=checks)  # type: ignore[arg-type]
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        if not all([is_time(claims[name]) for name in ("exp", "nbf", "iat") if name in claims]):
            return None
        now = self._now()
        return dict(claims) if claims.get("nbf", 0) <= now < claims["exp"] else None

    def _caller(self, name: str, role: str) -> Caller:
        caller = self._callers.get((name, role))
        if caller is None:
            if len(self._callers) >= MAX_CALLERS:
                del self._callers[next(iter(self._callers))]
            caller = self._callers[name, role] = caller_for(
                name, role, user_may_consume=self._user_may_consume, lasting=False
            )
        return caller


def is_time(claim: object) -> bool:
    """Whether a claim is a time that a token can have. NaN is not: it compares with nothing."""
    return isinstance(claim, int | float) and not isinstance(claim, bool) and 0 <= claim <= MAX_TIME


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_public_key(text: str) -> Any:
    """The key in a PEM text or in the file of that name. Raises BadSettings."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text.encode() if "-----BEGIN" in text else _read_bytes(text))
    except (OSError, ValueError) as error:
        raise BadSettings([f"auth.jwt_public_key cannot be read: {error}"]) from None
    if not isinstance(key, RSAPublicKey):
        raise BadSettings(["auth.jwt_public_key must be an RSA key"])
    return key
