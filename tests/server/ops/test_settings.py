"""Settings from variables and from server.toml."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from topics.cli.main import main
from topics.model.limits import Limits
from topics.server.ops import process
from topics.server.ops.options import OPTIONS
from topics.server.ops.settings import BadSettings, Settings, describe_settings, is_loopback, load_settings

SECRET = "s3cr3t-token"


def problems_of(**environment: str) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load_settings(environment)
    return caught.value.problems


def file_with(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_defaults_are_those_of_the_contract() -> None:
    settings = load_settings({})
    limits = settings.limits
    assert (settings.host, settings.port, settings.probe_auth) == ("127.0.0.1", 4000, False)
    assert (limits.max_topics, limits.max_routers, limits.max_watch_sessions) == (100_000, 10_000, 10_000)
    assert (limits.max_sse_connections, limits.max_sse_connections_per_key) == (10_000, 1000)
    assert (limits.max_inflight_per_key, limits.max_total_bytes) == (1000, 0)
    assert (limits.max_batch_records, limits.max_record_bytes, limits.max_body_bytes) == (10_000, 1 << 20, 64 << 20)


# Of lists whose items are checked.
LIST_ITEMS = {
    "cors_origins": "https://app.example.com",
    "allowed_hosts": "topics.example.com",
    "archive_roots": "s3://lake/x",
}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.variable)
def test_every_option_can_be_set_by_variable_and_by_file_and_the_variable_wins(option: object, tmp_path: Path) -> None:
    def value_of(settings: Settings) -> object:
        groups = {"server": settings, "limits": settings.limits, "storage": settings.storage, "live": settings.live}
        return getattr(groups[option.group], option.field)

    kinds = {
        "number": ("8191", "8192"),
        "flag": ("true", "false"),
        "text": ('"warm"', '"cold"'),
        "list": (f'["{LIST_ITEMS.get(option.field, "warm")}"]', f'"{LIST_ITEMS.get(option.field, "cold")}"'),
    }
    first, second = kinds[option.kind]
    if option.choices:
        first, second = (f'"{choice}"' for choice in option.choices[:2])
    # A host that others can reach needs this.
    allowed = {"TOPICS_ALLOW_INSECURE_NO_AUTH": "1"} if option.field != "allow_insecure_no_auth" else {}
    path = file_with(tmp_path, f"[{option.section}]\n{option.key} = {first}\n")
    from_file = value_of(load_settings({**allowed, "TOPICS_CONFIG": path}))
    from_both = value_of(load_settings({**allowed, "TOPICS_CONFIG": path, option.variable: second.strip('"')}))
    if option.kind == "list":
        assert from_file == tuple(tomllib.loads(f"x = {first}")["x"])
        assert from_both == (second.strip('"'),)
        return
    assert from_file == tomllib.loads(f"x = {first}")["x"]
    assert from_both == tomllib.loads(f"x = {second}")["x"]


def test_every_limit_of_the_contract_has_its_variable() -> None:
    variables = {option.variable for option in OPTIONS}
    for name in [
        "TOPICS",
        "MAX_TOPICS",
        "MAX_ROUTERS",
        "MAX_WATCH_SESSIONS",
        "MAX_SSE_CONNECTIONS",
        "MAX_SSE_CONNECTIONS_PER_KEY",
        "MAX_INFLIGHT_PER_KEY",
        "MAX_TOTAL_BYTES",
        "MAX_BATCH_RECORDS",
        "MAX_RECORD_BYTES",
        "MAX_BODY_BYTES",
        "MAX_META_BYTES",
        "MAX_TAG_BYTES",
        "MAX_NODE_BYTES",
        "MAX_LIMIT",
        "MAX_CLAIM",
        "MAX_WATCH_TOPICS",
    ][1:]:
        assert f"TOPICS_{name}" in variables


@pytest.mark.parametrize(
    "name",
    ["topics", "routers", "watch_sessions", "sse_connections", "sse_connections_per_key", "inflight_per_key"],
)
def test_resource_cap_may_be_zero(name: str) -> None:
    limits = load_settings({f"TOPICS_MAX_{name.upper()}": "0"}).limits
    assert getattr(limits, f"max_{name}") == 0


@pytest.mark.parametrize("value", ["-1", "1.5", "x", "1e3", "0x10", "١", "99999999999999999999999"])
def test_number_that_is_none_is_refused(value: str) -> None:
    (problem,) = problems_of(TOPICS_MAX_TOPICS=value)
    assert problem.startswith("TOPICS_MAX_TOPICS must be a whole number")


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = file_with(
        tmp_path,
        'nonsense = 1\n[server]\nport = "http"\nprot = 1\n[limits]\nmax_claim = 0\nmax_topics = true\n[colours]\nred = 1\n',
    )
    problems = problems_of(
        TOPICS_CONFIG=path,
        TOPICS_DRAIN_MS="soon",
        TOPICS_LOG_LEVEL="loud",
        TOPICS_PROBE_AUTH="maybe",
        TOPICS_API_KEYS=f"{SECRET}:reed",
    )
    text = "\n".join(problems)
    for expected in (
        "server.toml: server.port must be",
        "server.toml: server.prot is not a setting",
        "server.toml: limits.max_claim must be",
        "server.toml: limits.max_topics must be",
        "server.toml: colours.red is not a setting",
        "server.toml: nonsense is not a setting",
        "TOPICS_DRAIN_MS must be",
        "TOPICS_LOG_LEVEL must be one of",
        "TOPICS_PROBE_AUTH must be true or false",
        "TOPICS_API_KEYS: entry 1 ",
    ):
        assert expected in text
    assert len(problems) == 10
    assert SECRET not in text


def test_file_that_is_missing_or_no_toml_is_a_problem(tmp_path: Path) -> None:
    assert "cannot be read" in problems_of(TOPICS_CONFIG=str(tmp_path / "none"))[0]
    assert "is not TOML" in problems_of(TOPICS_CONFIG=file_with(tmp_path, "= ["))[0]


def test_keys_from_the_file_count_like_those_from_the_variable(tmp_path: Path) -> None:
    path = file_with(tmp_path, '[auth]\napi_keys = ["one:read", "two::t:"]\n')
    assert len(load_settings({"TOPICS_CONFIG": path}).keys) == 2
    assert len(load_settings({"TOPICS_CONFIG": path, "TOPICS_API_KEYS": "three"}).keys) == 1
    wrong = file_with(tmp_path, "[auth]\napi_keys = [7]\n")
    assert "auth.api_keys must be a list" in problems_of(TOPICS_CONFIG=wrong)[0]


# The hash of "x", made cheaply.
HASH = "$argon2id$v=19$m=8,t=1,p=1$9A0Ky6wp3PLIO/3ACosDyw$veQoMYlZiFAf+b7dJSMole49JGoz8mlJwmtOog9dt08"


def test_users_are_read_and_checked(tmp_path: Path) -> None:
    good = f'[[users]]\nname = "ada"\npassword = "pw"\nrole = "dba"\n[[users]]\nname = "bo"\npassword_hash = "{HASH}"\n'
    ada, bo = load_settings({"TOPICS_CONFIG": file_with(tmp_path, good)}).users
    assert (ada.name, ada.role, ada.password) == ("ada", "dba", "pw")
    assert (bo.name, bo.role, bo.password_hash) == ("bo", "user", HASH)
    assert "pw" not in repr(ada)
    bad = good + f'[[users]]\nname = "ada"\nrole = "king"\npassword = "{SECRET}"\n[[users]]\nname = "bo"\ncolour = 1\n'
    problems = problems_of(TOPICS_CONFIG=file_with(tmp_path, bad))
    assert [problem.split(":")[1].strip()[:13] for problem in problems] == ["users entry 3"] + ["users entry 4"] * 3
    assert SECRET not in "\n".join(problems)


def test_flag_has_its_usual_spellings() -> None:
    for yes in ("1", "true", "TRUE", "yes", "on"):
        assert load_settings({"TOPICS_PROBE_AUTH": yes}).probe_auth
    for no in ("0", "false", "no", "off", ""):
        assert not load_settings({"TOPICS_PROBE_AUTH": no}).probe_auth


def test_unknown_topics_variable_is_reported() -> None:
    settings = load_settings({"TOPICS_MAX_TOPIC": "1", "TOPICS_URL": "x", "TOPICS_TOKEN": "y", "PATH": "z"})
    assert settings.unknown_variables == ("TOPICS_MAX_TOPIC",)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "::1", "::ffff:127.0.0.1"])
def test_loopback_without_keys_is_allowed(host: str) -> None:
    assert is_loopback(host)
    assert load_settings({"TOPICS_HOST": host}).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "10.0.0.1", "example.test", "localhost.example.test"])
def test_address_others_can_reach_without_keys_is_refused_unless_allowed(host: str) -> None:
    assert not is_loopback(host)
    (problem,) = problems_of(TOPICS_HOST=host)
    assert "TOPICS_API_KEYS" in problem
    assert "TOPICS_ALLOW_INSECURE_NO_AUTH" in problem
    problems_of(TOPICS_HOST=host, TOPICS_ALLOW_INSECURE_NO_AUTH="0")
    load_settings({"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "1"})
    load_settings({"TOPICS_HOST": host, "TOPICS_API_KEYS": "k"})


def test_description_gives_the_same_settings_again_and_shows_no_secret(tmp_path: Path) -> None:
    environment = {
        "TOPICS_API_KEYS": f"{SECRET},other-{SECRET}:r+w:a|b:",
        "TOPICS_JWT_SECRET": f"jwt-{SECRET}",
        "TOPICS_MAX_TOPICS": "7",
        "TOPICS_CONFIG": file_with(tmp_path, f'[[users]]\nname = "ada"\npassword = "pw-{SECRET}"\n'),
        "TOPICS_LOG_FORMAT": "json",
    }
    settings = load_settings(environment)
    text = describe_settings(settings)
    assert SECRET not in text
    read = tomllib.loads(text)
    assert read["auth"]["api_keys"] == ["********::", "********:read+write:a|b:"]
    assert read["auth"]["jwt_secret"] == "********"
    assert read["users"] == [{"name": "ada", "role": "user", "password": "********"}]
    again = load_settings(
        {"TOPICS_CONFIG": file_with(tmp_path, text), "TOPICS_API_KEYS": environment["TOPICS_API_KEYS"]}
    )
    assert again.limits == settings.limits == Limits(max_topics=7)
    assert (again.storage, again.port, again.log_format) == (settings.storage, settings.port, "json")


def test_description_names_the_origin_of_each_value(tmp_path: Path) -> None:
    path = file_with(tmp_path, '[server]\nport = 4100\n[logs]\nlevel = "debug"\n')
    environment = {"TOPICS_CONFIG": path, "TOPICS_LOG_LEVEL": "error", "TOPICS_API_KEYS": "k"}
    lines = describe_settings(load_settings(environment)).splitlines()
    assert f"port = 4100  # {path}" in lines
    assert 'level = "error"  # TOPICS_LOG_LEVEL' in lines, "a variable wins over the file"
    assert 'host = "127.0.0.1"  # default' in lines
    assert 'api_keys = ["********::"]  # TOPICS_API_KEYS' in lines
    path = file_with(tmp_path, '[auth]\napi_keys = ["k"]\n')
    assert f'api_keys = ["********::"]  # {path}' in describe_settings(load_settings({"TOPICS_CONFIG": path}))


def topics(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    command = [sys.executable, "-m", "topics.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env={**kept, **environment})


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TOPICS_API_KEYS": f"ok:read,{SECRET}:reed"}, "entry 2"),
        ({"TOPICS_HOST": "0.0.0.0"}, "no api keys are set"),
        ({"TOPICS_PORT": "x", "TOPICS_MAX_TOPICS": "y"}, "TOPICS_MAX_TOPICS"),
    ],
)
def test_process_refuses_to_start_and_says_why(environment: dict[str, str], said: str, tmp_path: Path) -> None:
    done = topics("serve", TOPICS_DATA_DIR=str(tmp_path / "data"), **environment)
    assert done.returncode == 1
    assert said in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert not (tmp_path / "data").exists(), "the data directory was touched"


def test_config_command_prints_the_effective_values_or_all_problems() -> None:
    done = topics("config", TOPICS_MAX_CLAIM="5", TOPICS_API_KEYS=SECRET)
    assert done.returncode == 0
    assert tomllib.loads(done.stdout)["limits"]["max_claim"] == 5
    assert SECRET not in done.stdout + done.stderr
    done = topics("config", TOPICS_MAX_CLAIM="0", TOPICS_PORT="x")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2


def test_keys_are_gone_from_the_environment_once_the_server_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[int, set[str]]] = []

    def serve(settings: Settings, **_: object) -> int:
        seen.append((len(settings.keys), {name for name, value in os.environ.items() if SECRET in value}))
        return 0

    monkeypatch.setattr(process, "run", serve)
    for name in ("TOPICS_API_KEYS", "TOPICS_JWT_SECRET"):
        monkeypatch.setenv(name, SECRET)
    assert main(["serve"]) == 0
    assert seen == [(1, set())]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "NO API KEYS: authentication is off"),
        ({"TOPICS_HOST": "0.0.0.0", "TOPICS_ALLOW_INSECURE_NO_AUTH": "1"}, "NO API KEYS ON 0.0.0.0"),
    ],
)
def test_server_without_keys_says_so_loudly(
    environment: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    process.log_authentication(load_settings(environment))
    assert said in caplog.text
    assert caplog.records[-1].levelname == "WARNING"


def test_server_with_keys_says_how_many_and_not_which(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    process.log_authentication(load_settings({"TOPICS_API_KEYS": f"{SECRET},b", "TOPICS_TYPO": "x"}))
    assert "2 api keys" in caplog.text
    assert "TOPICS_TYPO is not a setting" in caplog.text
    assert SECRET not in caplog.text


def test_number_of_log_shards_is_accepted_and_reported_as_without_effect(tmp_path: Path) -> None:
    file = file_with(tmp_path, "[storage]\nwal_shards = 2\n")
    (variable, in_file) = load_settings({"TOPICS_WAL_SHARDS": "4", "TOPICS_CONFIG": file}).retired
    assert variable.startswith("TOPICS_WAL_SHARDS has no effect")
    assert in_file.startswith("server.toml: storage.wal_shards has no effect")
    assert load_settings({"TOPICS_WAL_SHARDS": "1"}).retired == ()
    assert load_settings({"TOPICS_WAL_SHARDS": "4"}).unknown_variables == ()
