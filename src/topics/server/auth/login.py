"""Users: login, and authentication by a password (Basic) or by a token (Bearer).

    {"username": "ada", "password": "..."}  ->  {"access_token": "...", "token_type": "Bearer", "expires_in": 3600, "role": "dba"}

Checking a password that was not checked before takes tens of milliseconds. The request waits meanwhile (`Undecided`) and is handled
again when the outcome is known.
"""

import base64
import binascii
import logging
from collections.abc import Callable
from secrets import token_urlsafe

from topics.api.ops import LoginBody
from topics.model.errors import Throttled, Unauthorized
from topics.runtime.interface import Runtime
from topics.server.auth.authentication import Authority, Undecided
from topics.server.auth.authorization import Caller
from topics.server.auth.passwords import Outcome, Passwords, client_group
from topics.server.auth.roles import caller_for
from topics.server.auth.tokens import Tokens
from topics.server.http import Request
from topics.server.ops.settings import Settings
from topics.server.responses import send, send_error

log = logging.getLogger("topics.server")

MIN_SECRET_CHARS = 32
WRONG_PASSWORD = "the user name or the password is wrong"


class Users:
    """The users of a server. Raises BadSettings for a key that cannot be used."""

    def __init__(self, settings: Settings, runtime: Runtime, previous: "Users | None" = None) -> None:
        """`previous` are the users before a reload: their tokens stay valid, and those that may do the same keep their Caller."""
        self.passwords = Passwords(settings.users, runtime)
        # Without a secret in the settings, tokens are valid until the process ends.
        self._own_secret: str = previous._own_secret if previous is not None else token_urlsafe(32)
        secret = settings.jwt_secret
        if secret is None and settings.users:
            secret = self._own_secret
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
        if previous is not None:
            kept = previous._callers
            for name, caller in self._callers.items():
                if name in kept and kept[name].name == caller.name and kept[name].allows_the_same_as(caller):
                    self._callers[name] = kept[name]
            if self.tokens is not None and previous.tokens is not None:
                self.tokens.keep_callers_of(previous.tokens)

    @property
    def names(self) -> set[str]:
        """The names of the callers, which include their roles."""
        return {caller.name for caller in self._callers.values()}

    def join(self, authority: Authority) -> None:
        """Require credentials, and accept those of users."""
        if self._has_users:
            authority.add_method(b"basic", self.find, WRONG_PASSWORD)
        if self.tokens is not None:
            authority.add_method(
                b"bearer", self.tokens.find, "the key or token is not known here, or the token has expired"
            )

    def find(self, credential: bytes) -> Caller | None:
        """The user with this Basic credential. Raises Undecided when it has to be checked first."""
        try:
            name, colon, password = base64.b64decode(credential, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise Unauthorized("a Basic credential is the base64 of name:password")
        known, user = self.passwords.known(name, password)
        if not known:

            def start(request: Request, again: Callable[[], None]) -> None:
                def checked(outcome: Outcome) -> None:
                    if isinstance(outcome, Throttled):
                        send_error(request, outcome)
                    else:
                        again()

                self.passwords.check(name, password, client_group(request.peer), checked)

            raise Undecided(start)
        return None if user is None else self._callers[user.name]

    def log_in(self, request: Request, body: LoginBody) -> None:
        name = body.username or body.user or body.name or ""

        def checked(user: Outcome) -> None:
            if isinstance(user, Throttled):
                send_error(request, user)
                return
            if user is None or self.tokens is None:
                send_error(request, Unauthorized(WRONG_PASSWORD))
                return
            fields = {
                "access_token": self.tokens.issue(user.name, user.role),
                "token_type": "Bearer",
                "expires_in": self.tokens.seconds,
                "role": user.role,
            }
            send(request, 200, fields)

        self.passwords.check(name, body.password, client_group(request.peer), checked)


def warn_about_users(settings: Settings) -> None:
    """Log settings that are not fit for production."""
    plain = [user.name for user in settings.users if user.password is not None]
    if plain:
        log.warning(
            "PLAIN PASSWORDS in server.toml (%s): fit for development only. `topics user add` makes hashes",
            ", ".join(plain),
        )
    if settings.jwt_secret is not None and len(settings.jwt_secret) < MIN_SECRET_CHARS:
        log.warning("SHORT JWT SECRET: use at least %s characters, or tokens can be forged", MIN_SECRET_CHARS)
