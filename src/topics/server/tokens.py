"""Tokens: JSON Web Tokens that say who somebody is, until when, and in which role.

Ours are given out at login, signed with HS256. Those of somebody else are taken when they are signed with the same secret
or, with RS256, by the owner of the public key. Which algorithm goes with which key is fixed here and not asked of the
token; one without an end is refused. Claims: `sub` the name, `role` the role, `exp` the end, `iat` and `iss` on ours.
"""

from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

from topics.server.access import Caller
from topics.server.roles import caller_for
from topics.server.settings import ROLES, BadSettings

ISSUER = "topics"
CALLERS_MOST = 10_000
TOKEN_BYTES_MOST = 8192


class Tokens:
    """Gives out tokens and recognises them."""

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
            # Zeros behind a short key are what HMAC adds itself; the library complains about a short one at every call,
            # the server does once, at its start.
            self._keys["HS256"] = secret.encode().ljust(32, b"\0")
        if public_key is not None:
            self._keys["RS256"] = read_public_key(public_key)
        self.seconds = seconds
        self._user_may_consume = user_may_consume
        self._role_of = role_of
        self._now = now
        self._callers: dict[tuple[str, str], Caller] = {}

    def issue(self, name: str, role: str) -> str:
        """A token for this user, good for `seconds`."""
        now = int(self._now())
        claims = {"sub": name, "role": role, "iss": ISSUER, "iat": now, "exp": now + self.seconds}
        return self._jwt.encode(claims, self._keys["HS256"], algorithm="HS256")

    def find(self, token: bytes) -> Caller | None:
        """Who the token speaks of; None when it is not to be believed or its time is over."""
        if len(token) > TOKEN_BYTES_MOST or token.count(b".") != 2:
            return None
        claims = self._claims(token)
        if claims is None:
            return None
        name, role = claims.get("sub"), claims.get("role")
        if not isinstance(name, str) or not 1 <= len(name) <= 255:
            return None
        if claims.get("iss") == ISSUER:
            # What the user may do now counts, not what it was when the token was given out.
            role = self._role_of(name)
        if role not in ROLES:
            return None
        return self._caller(name, role)

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
        except (self._jwt.PyJWTError, ValueError, TypeError):
            return None
        end = claims.get("exp")
        if isinstance(end, bool) or not isinstance(end, int | float) or end <= self._now():
            return None
        begin = claims.get("nbf", 0)
        if isinstance(begin, bool) or not isinstance(begin, int | float) or begin > self._now():
            return None
        return dict(claims)

    def _caller(self, name: str, role: str) -> Caller:
        caller = self._callers.get((name, role))
        if caller is None:
            if len(self._callers) >= CALLERS_MOST:
                del self._callers[next(iter(self._callers))]
            caller = self._callers[name, role] = caller_for(
                name, role, user_may_consume=self._user_may_consume, lasting=False
            )
        return caller


def read_public_key(text: str) -> Any:
    """The key in a PEM text or in the file of that name. Raises BadSettings."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        pem = text.encode() if "-----BEGIN" in text else Path(text).read_bytes()
        key = load_pem_public_key(pem)
    except (OSError, ValueError) as error:
        raise BadSettings([f"auth.jwt_public_key cannot be read: {error}"]) from None
    if not isinstance(key, RSAPublicKey):
        raise BadSettings(["auth.jwt_public_key must be an RSA key"])
    return key
