"""Named contexts: servers with their credentials, in one file that only its owner can read.

`topics login` adds one, `topics context use` chooses the current one. The file is `topics/contexts.json` below
XDG_CONFIG_HOME (default ~/.config). A credential is sent only to the server that it was saved with.
"""

import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from topics.model.errors import InvalidRequest, NotFound, Unauthorized


class Context(Struct, omit_defaults=True):
    url: str
    token: str | None = None
    # The user who logged in; None for an API key.
    user: str | None = None
    # When a token of a login ends, in ms since 1970.
    expires_ms: int | None = None
    # How to reach the server: files with certificates, and a proxy.
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    proxy: str | None = None


class Contexts(Struct, omit_defaults=True):
    current: str | None = None
    contexts: dict[str, Context] = {}


def contexts_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "topics" / "contexts.json"


def load_contexts() -> Contexts:
    """Raises InvalidRequest when the file cannot be read or is not one of ours."""
    path = contexts_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}; correct or remove it") from None


def save_contexts(contexts: Contexts) -> None:
    """Replace the file as a whole; mode 0600."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")
    os.replace(aside, path)


def find_context(name: str | None) -> tuple[str, Context] | None:
    """The named context, or the current one, or None. Raises NotFound for a name that is not there."""
    if name is None and not contexts_path().exists():
        return None
    kept = load_contexts()
    chosen = name or kept.current
    if chosen is None:
        return None
    if chosen not in kept.contexts:
        from topics.cli.shared.spelling import did_you_mean

        hint = did_you_mean(chosen, kept.contexts) or "See: topics context ls"
        raise NotFound(f"there is no context {chosen!r}. {hint}", code="not_found")
    return chosen, kept.contexts[chosen]


def find_address(url: str | None, token: str | None, name: str | None) -> tuple[str | None, str | None, Context | None]:
    """The URL and the credential for a command, options first, then variables, then the context; and the context, if it is used.

    A context that an option names counts more than the variables. None leaves the choice to the client.
    Raises Unauthorized when the login of the context has expired.
    """
    if url is not None or (name is None and os.environ.get("TOPICS_URL")):
        return url, token, None
    found = find_context(name or os.environ.get("TOPICS_CONTEXT") or None)
    if found is None:
        return None, token, None
    chosen, context = found
    if token is not None or (name is None and os.environ.get("TOPICS_TOKEN")):
        return context.url, token, context
    if context.expires_ms is not None and context.expires_ms <= time.time() * 1000:
        again = f"topics login {context.url} --name {chosen} --user {context.user}"
        raise Unauthorized(f"the login of context {chosen!r} has expired; run: {again}", code="login_expired")
    # An empty text, so that TOPICS_TOKEN is not sent to a server that needs no credential.
    return context.url, context.token or "", context
