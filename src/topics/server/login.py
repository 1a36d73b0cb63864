"""POST /api/auth/login, and the two ways to be known that come with users: a password, and a token.

    {"username": "ada", "password": "..."}  ->  {"access_token": "...", "token_type": "Bearer", "expires_in": 3600, "role": "dba"}

A password in the head of a request (Basic) that was not checked lately takes a while to check. The request is then put
aside (`Undecided`) and handled again when it is known.
"""

import base64
import binascii
import logging
from secrets import token_urlsafe

import msgspec
from msgspec import Struct

from topics.broker.runtime import Runtime
from topics.model.errors import Unauthorized
from topics.server.access import Caller
from topics.server.answers import send, send_error
from topics.server.authority import Authority, Undecided
from topics.server.bodies import decode, require_json
from topics.server.http import Request
from topics.server.passwords import Passwords
from topics.server.roles import caller_for
from topics.server.settings import Settings, User
from topics.server.tokens import Tokens

log = logging.getLogger("topics.server")

SECRET_CHARS_LEAST = 32


class LoginBody(Struct):
    password: str
    username: str | None = None
    # Other words for the same.
    user: str | None = None
    name: str | None = None


_decoder = msgspec.json.Decoder(LoginBody)


class Users:
    """Everybody with a password or a token. Raises BadSettings for a key that cannot be used."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self.passwords = Passwords(settings.users, runtime)
        secret = settings.jwt_secret
        if secret is None and settings.users:
            # Tokens given out by this process are good until it ends.
            secret = token_urlsafe(32)
        self.tokens: Tokens | None = None
        if secret is not None or settings.jwt_public_key is not None:
            self.tokens = Tokens(
                secret,
                settings.jwt_public_key,
                seconds=settings.token_seconds,
                user_may_consume=settings.allow_user_role_consume,
                role_of=lambda name: getattr(self.passwords.user(name), "role", None),
            )
        self._has_users = bool(settings.users)
        self._callers = {
            user.name: caller_for(user.name, user.role, user_may_consume=settings.allow_user_role_consume, lasting=True)
            for user in settings.users
        }

    def join(self, authority: Authority) -> None:
        """From now on credentials of these kinds are asked for and understood."""
        if self._has_users:
            authority.add_way(b"basic", self.find)
        if self.tokens is not None:
            authority.add_way(b"bearer", self.tokens.find)

    def find(self, credential: bytes) -> Caller | None:
        """Who sends this Basic credential. Raises Undecided when it has to be checked first."""
        try:
            name, colon, password = base64.b64decode(credential, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        if not colon:
            return None
        known, user = self.passwords.known(name, password)
        if not known:
            raise Undecided(lambda again: self.passwords.check(name, password, lambda _: again()))
        return None if user is None else self._callers[user.name]

    def log_in(self, request: Request) -> None:
        require_json(request)
        body = decode(request.body, _decoder)
        name = body.username or body.user or body.name or ""

        def checked(user: User | None) -> None:
            if user is None or self.tokens is None:
                send_error(request, Unauthorized("the name or the password is wrong"))
                return
            fields = {
                "access_token": self.tokens.issue(user.name, user.role),
                "token_type": "Bearer",
                "expires_in": self.tokens.seconds,
                "role": user.role,
            }
            send(request, 200, fields)

        known, user = self.passwords.known(name, body.password)
        if known and user is not None:
            checked(user)
        else:
            self.passwords.check(name, body.password, checked)


def tell_about_users(settings: Settings) -> None:
    """Say aloud what is not fit for production."""
    plain = [user.name for user in settings.users if user.password is not None]
    if plain:
        log.warning(
            "PLAIN PASSWORDS in server.toml (%s): fit for development only. `topics user add` makes hashes",
            ", ".join(plain),
        )
    if settings.jwt_secret is not None and len(settings.jwt_secret) < SECRET_CHARS_LEAST:
        log.warning("SHORT JWT SECRET: use at least %s characters, or tokens can be forged", SECRET_CHARS_LEAST)
