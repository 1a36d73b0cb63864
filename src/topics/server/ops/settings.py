"""Settings: read from `TOPICS_*` variables and from the server.toml that `TOPICS_CONFIG` names.

A variable overrides the file, the file overrides the default. All problems are reported together, each with its variable or its
place in the file; a server with problems does not start. `options` lists the settings with their names and limits.

Only digests of secrets are kept, except where a comment says otherwise.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from topics.api.operation import ALL, SCOPE_NAMES
from topics.model.limits import Limits
from topics.model.storage_settings import StorageSettings
from topics.server.auth.authorization import Caller
from topics.server.auth.keys import Keyring, parse_keys
from topics.server.live.shared import LiveSettings
from topics.server.ops.options import OPTIONS, RETIRED_OPTIONS, Option

Role = Literal["user", "service", "dba", "system"]
ROLES = ("user", "service", "dba", "system")
# Variables of ours that are not options: the file, the keys, and what only clients read.
OTHER_VARIABLES = {"TOPICS_CONFIG", "TOPICS_API_KEYS", "TOPICS_URL", "TOPICS_TOKEN", "TOPICS_CONTEXT"}


MASK = "********"


class User(Struct, frozen=True):
    """A user of `[[users]]`. Either `password` or `password_hash` is set; `password` only until it is hashed."""

    name: str
    role: Role
    password: str | None = None
    password_hash: str | None = None

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.role!r})"


class Settings(Struct, frozen=True):
    """The effective settings of one server."""

    host: str = "127.0.0.1"
    port: int = 4000
    port_file: str | None = None
    data_dir: str = "./topics-data"
    # Where the marker of the data directory is kept: in memory, not on the disk that it is about.
    runtime_dir: str = "/dev/shm"
    # The console at `/` and its files.
    console: bool = True
    drain_ms: int = 5_000
    max_connections: int = 16_384
    # How long a client's machine may not answer before its connections are closed.
    peer_timeout_ms: int = 60_000
    # Host names, beside addresses and localhost, that a server without credentials answers to.
    allowed_hosts: tuple[str, ...] = ()
    # Origins whose pages may use the server.
    cors_origins: tuple[str, ...] = ()
    # Where keys with prefixes may have topics archived; empty for `archive` in the data directory.
    archive_roots: tuple[str, ...] = ()
    keys: Keyring = msgspec.field(default_factory=Keyring)
    probe_auth: bool = False
    allow_insecure_no_auth: bool = False
    # Signs and checks tokens, so the secret itself is kept and not its digest.
    jwt_secret: str | None = None
    # A PEM text or the path of a file with one: tokens signed with its private key are accepted too.
    jwt_public_key: str | None = None
    # Lifetime of a token issued at login.
    token_seconds: int = 3600
    users: tuple[User, ...] = ()
    log_format: str = "text"
    log_level: str = "info"
    # Requests that take longer are logged; 0 logs none.
    slow_ms: int = 1000
    metrics_topics_max: int = 10_000
    # How late the event loop may be before low priorities are throttled; 0 never throttles.
    throttle_lag_ms: int = 50
    # How long a write is parked under pressure before it gets 429.
    throttle_wait_ms: int = 250
    # Seconds, as in the documents.
    default_consume_timeout: int = 30
    max_consume_timeout: int = 300
    allow_user_role_consume: bool = False
    # How long a member of a consumer group keeps its partitions without a poll or heartbeat.
    consumer_session_ms: int = 30_000
    limits: Limits = Limits()
    storage: StorageSettings = StorageSettings()
    live: LiveSettings = LiveSettings()
    # Variables that begin with TOPICS_ and are not settings, usually misspelled.
    unknown_variables: tuple[str, ...] = ()
    # For each setting that is not a default, by its variable: the variable's name, or the file that sets it.
    origins: dict[str, str] = {}
    # One sentence for each setting of an earlier version that is set and has no effect.
    retired: tuple[str, ...] = ()

    @property
    def asks_for_credentials(self) -> bool:
        return bool(len(self.keys) or self.users or self.jwt_secret or self.jwt_public_key)


class BadSettings(Exception):
    """Lists every problem, one per line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Raises BadSettings with everything that is wrong."""
    reader = _Reader(environment)
    fields: dict[str, dict[str, Any]] = {"server": {}, "limits": {}, "storage": {}, "live": {}}
    for option in OPTIONS:
        value = reader.value(option)
        if value is not None:
            fields[option.group][option.field] = value
    known = {option.variable for option in OPTIONS} | {each.variable for each in RETIRED_OPTIONS} | OTHER_VARIABLES
    settings = Settings(
        **fields["server"],
        keys=reader.keys(),
        users=reader.users(),
        limits=msgspec.structs.replace(Limits(), **fields["limits"]),
        storage=msgspec.structs.replace(StorageSettings(), **fields["storage"]),
        live=msgspec.structs.replace(LiveSettings(), **fields["live"]),
        unknown_variables=tuple(
            sorted(name for name in environment if name.startswith("TOPICS_") and name not in known)
        ),
        origins=reader.origins,
        retired=reader.retired(),
    )
    reader.refuse_unknown_entries()
    if not settings.asks_for_credentials and not is_loopback(settings.host) and not settings.allow_insecure_no_auth:
        reader.problems.append(
            f"TOPICS_HOST is {settings.host}, which others can reach, but no api keys are set: every client could read, write "
            "and delete everything. Set TOPICS_API_KEYS, or TOPICS_ALLOW_INSECURE_NO_AUTH=1 to allow that"
        )
    if reader.problems:
        raise BadSettings(reader.problems)
    return settings


def effective_settings(settings: Settings) -> list[tuple[str, str, object, str]]:
    """Section, key, value and origin of every setting, by section. Secrets are masked."""
    sections: dict[str, list[tuple[str, str, object, str]]] = {}
    groups = {"server": settings, "limits": settings.limits, "storage": settings.storage, "live": settings.live}
    for option in OPTIONS:
        value = getattr(groups[option.group], option.field)
        shown = MASK if option.secret and value is not None else value
        origin = settings.origins.get(option.variable, "default")
        sections.setdefault(option.section, []).append((option.section, option.key, shown, origin))
    keys = [describe_caller(caller) for caller in settings.keys.callers]
    sections["auth"].append(("auth", "api_keys", keys, settings.origins.get("TOPICS_API_KEYS", "default")))
    return [row for rows in sections.values() for row in rows]


def describe_settings(settings: Settings) -> str:
    """Every setting with its effective value and its origin, as a server.toml that gives the same. Secrets are masked."""
    lines: list[str] = []
    current = None
    for section, key, value, origin in effective_settings(settings):
        if section != current:
            lines += ["", f"[{section}]"]
            current = section
        lines.append(f"# {key} is not set" if value is None else f"{key} = {_toml(value)}  # {origin}")
    for user in settings.users:
        lines += ["", "[[users]]", f"name = {_toml(user.name)}", f"role = {_toml(user.role)}"]
        lines.append(f"{'password' if user.password is not None else 'password_hash'} = {_toml(MASK)}")
    return "\n".join(lines[1:])


def describe_caller(caller: Caller) -> str:
    """An entry as it was given, but for the secret."""
    scopes = (
        "" if caller.scopes == ALL else "+".join([name for bit, name in SCOPE_NAMES.items() if caller.scopes & bit])
    )
    return f"{MASK}:{scopes}:{'|'.join(caller.prefixes)}"


def _toml(value: object) -> str:
    # For texts, numbers, booleans and lists of texts, what JSON writes is TOML.
    return msgspec.json.encode(value).decode()


def is_argon2id(text: str) -> bool:
    if not text.startswith("$argon2id$"):
        return False
    from argon2 import extract_parameters
    from argon2.exceptions import InvalidHashError

    try:
        extract_parameters(text)
    except InvalidHashError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. Names other than localhost count as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class _Reader:
    """Reads values from the environment and the file, and collects what is wrong with them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []
        self.origins: dict[str, str] = {}
        self._file: dict[str, Any] = {}
        self._path = environment.get("TOPICS_CONFIG", "").strip()
        if self._path:
            self._read_file(self._path)

    def value(self, option: Option) -> Any:
        """What the option is set to; None when it is not set or wrong."""
        kept = self._taken_from_file(option.section, option.key)
        text = self._environment.get(option.variable, "").strip()
        if text:
            self.origins[option.variable] = option.variable
            return self._from_text(option, text)
        if kept is None:
            return None
        self.origins[option.variable] = self._path
        return self._from_file(option, kept)

    def retired(self) -> tuple[str, ...]:
        sentences = []
        for option in RETIRED_OPTIONS:
            kept = self._taken_from_file(option.section, option.key)
            text = self._environment.get(option.variable, "").strip()
            for where, value in ((option.variable, text), (f"server.toml: {option.section}.{option.key}", kept)):
                if value not in (None, "") and str(value) != option.silent:
                    sentences.append(f"{where} has no effect any more and can be removed: {option.reason}")
        return tuple(sentences)

    def keys(self) -> Keyring:
        kept = self._taken_from_file("auth", "api_keys")
        where, text = "TOPICS_API_KEYS", self._environment.get("TOPICS_API_KEYS", "").strip()
        if not text and kept is not None:
            where = "server.toml: auth.api_keys"
            entries = kept if isinstance(kept, list) else [kept]
            if not all([isinstance(entry, str) and "," not in entry for entry in entries]):
                self.problems.append(f"{where} must be a list of texts, one for each key, without commas")
                return Keyring()
            text = ",".join(entries)
        if text:
            self.origins["TOPICS_API_KEYS"] = where if where == "TOPICS_API_KEYS" else self._path
        keys, problems = parse_keys(text)
        self.problems += [f"{where}: {problem}" for problem in problems]
        return keys

    def users(self) -> tuple[User, ...]:
        kept = self._file.pop("users", [])
        if not isinstance(kept, list) or not all([isinstance(user, dict) for user in kept]):
            self.problems.append("server.toml: users must be written as [[users]]")
            return ()
        users: dict[str, User] = {}
        for number, fields in enumerate(kept, start=1):
            where = f"server.toml: users entry {number}"
            try:
                user = msgspec.convert({"role": "user", **fields}, User)
            except msgspec.ValidationError as error:
                # The value is not repeated by msgspec, only its type and place.
                self.problems.append(f"{where}: {error}")
                continue
            if unknown := sorted(set(fields) - set(User.__struct_fields__)):
                self.problems.append(f"{where} has unknown fields: {', '.join(unknown)}")
            if not user.name or ":" in user.name:
                self.problems.append(f"{where} needs a name without a colon")
            if (user.password is None) == (user.password_hash is None):
                self.problems.append(f"{where} needs either password or password_hash")
            if user.password_hash is not None and not is_argon2id(user.password_hash):
                self.problems.append(f"{where}: password_hash is not an argon2id hash; `topics user add` makes one")
            if users.setdefault(user.name, user) is not user:
                self.problems.append(f"{where} has the name of another user")
        return tuple(users.values())

    def refuse_unknown_entries(self) -> None:
        """Report every entry of the file that is not a setting: it is probably misspelled."""
        for section, content in self._file.items():
            if not isinstance(content, dict):
                self.problems.append(f"server.toml: {section} is not a setting")
            else:
                self.problems += [f"server.toml: {section}.{key} is not a setting" for key in content]

    def _read_file(self, path: str) -> None:
        import tomllib

        try:
            with open(path, encoding="utf-8") as file:
                self._file = tomllib.loads(file.read())
        except OSError as error:
            self.problems.append(f"TOPICS_CONFIG: {path} cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.problems.append(f"TOPICS_CONFIG: {path} is not UTF-8")
        except tomllib.TOMLDecodeError as error:
            self.problems.append(f"TOPICS_CONFIG: {path} is not TOML: {error}")

    def _taken_from_file(self, section: str, key: str) -> Any:
        content = self._file.get(section)
        return content.pop(key, None) if isinstance(content, dict) else None

    def _from_text(self, option: Option, text: str) -> Any:
        where = option.variable
        if option.kind == "number":
            if text.isascii() and text.isdigit() and len(text) <= 19:
                return self._bounded(option, where, int(text))
            return self._wrong(option, where, text)
        if option.kind == "flag":
            lowered = text.lower()
            if lowered in ("1", "true", "yes", "on"):
                return True
            if lowered in ("0", "false", "no", "off"):
                return False
            return self._wrong(option, where, text)
        if option.kind == "list":
            return self._items(option, where, [item.strip() for item in text.split(",") if item.strip()])
        return self._chosen(option, where, text)

    def _from_file(self, option: Option, value: Any) -> Any:
        where = f"server.toml: {option.section}.{option.key}"
        if option.kind == "number":
            is_number = isinstance(value, int) and not isinstance(value, bool)
            return self._bounded(option, where, value) if is_number else self._wrong(option, where, value)
        if option.kind == "flag":
            return value if isinstance(value, bool) else self._wrong(option, where, value)
        if option.kind == "list":
            items = value if isinstance(value, list) else [value]
            all_texts = all([isinstance(item, str) for item in items])
            return self._items(option, where, items) if all_texts else self._wrong(option, where, value)
        return self._chosen(option, where, value) if isinstance(value, str) else self._wrong(option, where, value)

    def _bounded(self, option: Option, where: str, value: int) -> Any:
        return value if option.low <= value <= option.high else self._wrong(option, where, value)

    def _items(self, option: Option, where: str, items: list[str]) -> Any:
        parsed = [(item, option.parse_item(item)) for item in items]
        wrong = [item for item, value in parsed if value is None]
        return self._wrong(option, where, wrong[0]) if wrong else tuple(dict(parsed).values())

    def _chosen(self, option: Option, where: str, text: str) -> Any:
        if option.choices:
            text = text.lower()
            if text not in option.choices:
                return self._wrong(option, where, text)
        return text

    def _wrong(self, option: Option, where: str, value: object) -> Any:
        shown = "" if option.secret else f", not {str(value)[:100]!r}"
        self.problems.append(f"{where} must be {_expected(option)}{shown}")
        return None


def _expected(option: Option) -> str:
    if option.kind == "number":
        upper = f" and at most {option.high}" if option.high < 1 << 62 else ""
        return f"a whole number of at least {option.low}{upper}"
    if option.kind == "flag":
        return "true or false"
    if option.kind == "list":
        return f"a list, each item {option.item}"
    return f"one of {', '.join(option.choices)}" if option.choices else "a text"
