"""SIGHUP: read API keys and users again, without dropping connections.

    settings cannot be read, or would turn authentication off   nothing changes; the log says why
    key or user that may do the same as before                  its requests, streams and sessions go on
    key or user that is new                                     works from now on
    key or user that was removed, or may do something else      its next request is checked again; its streams are ended

A secret that came from the environment cannot change while the process runs. Settings other than keys, users and the
secrets of tokens need a restart; the log names those that differ.
"""

import logging
from collections.abc import Callable

from msgspec import structs

from topics.runtime.interface import Runtime
from topics.server.auth.login import Users
from topics.server.http import Listener
from topics.server.ops.settings import BadSettings, Settings
from topics.server.service import Service

log = logging.getLogger("topics.server")

RELOADED = {"keys", "users", "jwt_secret", "jwt_public_key", "token_seconds", "origins", "unknown_variables", "retired"}
# Field -> the variable it may come from.
SECRETS = {"keys": "TOPICS_API_KEYS", "jwt_secret": "TOPICS_JWT_SECRET"}


class CredentialReload:
    """Applies what `load` returns to a running server."""

    def __init__(
        self,
        service: Service,
        settings: Settings,
        load: Callable[[], Settings] | None,
        listener: Listener,
        runtime: Runtime,
    ) -> None:
        self._service = service
        self._settings = settings
        self._load = load
        self._listener = listener
        self._runtime = runtime

    def run(self) -> None:
        """Reload, or log why nothing changes."""
        if self._load is None:
            log.warning("SIGHUP ignored: this server was not started from settings that can be read again")
            return
        try:
            settings = self._with_secrets_of_the_start(self._load())
            if self._service.authority.enabled and not settings.asks_for_credentials:
                raise BadSettings(
                    ["no keys and no users are left, which would turn authentication off: restart for that"]
                )
            self._apply(settings)
        except BadSettings as error:
            for problem in error.problems:
                log.error("keys and users not reloaded: %s", problem)

    def _with_secrets_of_the_start(self, loaded: Settings) -> Settings:
        kept = {
            field: getattr(self._settings, field)
            for field, variable in SECRETS.items()
            if self._settings.origins.get(variable) == variable
        }
        return structs.replace(loaded, **kept)

    def _apply(self, settings: Settings) -> None:
        service = self._service
        previous_users = service.users
        users = None
        if settings.users or settings.jwt_secret is not None or settings.jwt_public_key is not None:
            users = Users(settings, self._runtime, previous_users)
        previous_callers = set(service.authority.keys.callers)
        keys = settings.keys.with_callers_of(service.authority.keys)
        service.authority.reset(keys)
        service.users = users
        if users is not None:
            users.join(service.authority)
        removed = previous_callers - set(keys.callers)
        removed_names = (previous_users.names if previous_users is not None else set()) - (
            users.names if users is not None else set()
        )
        for connection in self._listener.connections:
            connection.forget_heads()
        ended = service.streams.end_those_of(lambda caller: caller in removed or caller.name in removed_names)
        log.info(
            "keys and users reloaded: %s api keys, %s users; %s removed or changed, %s of their streams ended",
            len(keys),
            len(settings.users),
            len(removed) + len(removed_names),
            ended,
        )
        for name in Settings.__struct_fields__:
            if name not in RELOADED and getattr(settings, name) != getattr(self._settings, name):
                log.warning("%s differs from the running server's and needs a restart", name)
