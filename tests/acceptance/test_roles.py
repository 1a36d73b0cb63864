"""Users, roles and tokens over HTTP: who is let in, what each role may do, and how guessing is slowed down."""

import base64
import hashlib
import hmac
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jwt
import pytest
from argon2 import PasswordHasher
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.acceptance.topic import refused, succeeded
from topics.cli.server.user import run as topics_user
from topics.server.ops.settings import BadSettings, load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

SECRET = "a secret that is long enough for its purpose"
PASSWORD = "correct horse battery"
ROLES = ("user", "service", "dba", "system")


@pytest.fixture(scope="module")
def key_pair() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def guarded_url(tmp_path_factory: pytest.TempPathFactory, key_pair: rsa.RSAPrivateKey) -> Iterator[str]:
    root = tmp_path_factory.mktemp("guarded")
    public = key_pair.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (root / "key.pem").write_bytes(public)
    cheap = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    users = "".join(
        [f'[[users]]\nname = "{role}"\npassword_hash = "{cheap.hash(PASSWORD)}"\nrole = "{role}"\n' for role in ROLES]
    )
    users += f'[[users]]\nname = "plain"\npassword = "{PASSWORD}"\nrole = "service"\n'
    (root / "server.toml").write_text(
        f'[auth]\njwt_secret = "{SECRET}"\njwt_public_key = "{root / "key.pem"}"\n{users}', encoding="utf-8"
    )
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(root / "data"),
        "TOPICS_CONFIG": str(root / "server.toml"),
        "TOPICS_API_KEYS": "machine:rw",
    }
    with running_server(load_settings(environment)) as url:
        with Api(url, basic("dba")) as dba:
            for name in ("t", "system.t"):
                succeeded(dba.post(f"/v0/topics/{name}", {"records": [{"data": 1}]}))
        yield url


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def consume(api: Api, topic: str = "t") -> Answer:
    return api.post("/api/topics/consume", {"topic": topic, "group_id": "g", "timeout_seconds": 0})


def sql(api: Api, text: str) -> Answer:
    return api.post("/api/sql", {"sql": text})


@pytest.fixture
def ask(guarded_url: str) -> Iterator[Api]:
    """A client without credentials."""
    with Api(guarded_url) as api:
        yield api


# Who is let in


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("dba", "wrong"),
        basic("absent"),
        basic("dba", "x" * 2000),
        {"Authorization": "Basic"},
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(b"no colon").decode()},
        {"Authorization": "Basic " + base64.b64encode(b"\xff\xfe:x").decode()},
        {"Authorization": "Digest x"},
        bearer("not.a.token"),
        bearer("x"),
    ],
)
def test_strangers_get_401_before_anything_else(ask: Api, headers: dict[str, str]) -> None:
    for path in ("/v0/topics/t", "/v0/topics/nowhere", "/no/such/path"):
        refused(ask.get(path, headers), 401, "unauthorized")
    body = {"topic": "nowhere", "group_id": "g"}
    refused(ask.post("/api/topics/consume", body, headers), 401, "unauthorized")
    refused(ask.post("/api/sql", b"not json", headers), 401, "unauthorized")


@pytest.mark.parametrize("name", [*ROLES, "plain"])
def test_a_password_lets_in(ask: Api, name: str) -> None:
    assert ask.get("/v0/topics/t", basic(name)).status == 200


def test_an_api_key_still_lets_in(ask: Api) -> None:
    assert ask.get("/v0/topics/t", bearer("machine")).status == 200


def test_probes_and_login_are_open(ask: Api) -> None:
    assert ask.get("/v0/health").status == 200
    refused(ask.post("/api/auth/login", {"username": "dba", "password": "wrong"}), 401, "unauthorized")


def test_a_login_gives_a_token_that_lets_in(ask: Api) -> None:
    for root in ("/api", "/v1/api"):
        given = succeeded(ask.post(f"{root}/auth/login", {"username": "service", "password": PASSWORD}))
        assert (given["token_type"], given["expires_in"], given["role"]) == ("Bearer", 3600, "service")
        assert ask.get("/v0/topics/t", bearer(given["access_token"])).status == 200
    claims = jwt.decode(given["access_token"], SECRET, algorithms=["HS256"])
    assert claims["exp"] == claims["iat"] + 3600


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"username":5,"password":"x"}', b'{"username":"dba"}'])
def test_a_bad_login_body_is_400(ask: Api, body: bytes) -> None:
    refused(ask.post("/api/auth/login", body), 400, "invalid_request")


# Tokens


def token(role: Any = "dba", key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    whole = {"sub": "user", "role": role, "exp": int(time.time()) + 60} | claims
    return jwt.encode({name: value for name, value in whole.items() if value is not None}, key, algorithm=algorithm)


def test_tokens_of_others_are_taken_with_the_secret_or_the_key(ask: Api, key_pair: rsa.RSAPrivateKey) -> None:
    assert ask.get("/v0/topics/t", bearer(token())).status == 200
    assert ask.get("/v0/topics/t", bearer(token(key=key_pair, algorithm="RS256"))).status == 200


def test_tokens_that_are_not_to_be_believed_are_401(ask: Api, key_pair: rsa.RSAPrivateKey) -> None:
    public = key_pair.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def part(value: Any) -> str:
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=").decode()

    claims = {"sub": "x", "role": "dba", "exp": 1 << 40}
    unsigned = f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."
    # Signed with the text of the public key as if it were a secret.
    confused = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    confused += "." + part(hmac.new(public, confused.encode(), hashlib.sha256).digest())
    for each in (
        token(exp=None),
        token(exp=int(time.time()) - 1),
        token(exp="tomorrow"),
        token(nbf=int(time.time()) + 60),
        token(key="another secret that is long enough too"),
        token(algorithm="HS512", key=SECRET * 2),
        token(key=other, algorithm="RS256"),
        token(role="root"),
        token(role=None),
        token(role=["dba"]),
        token(sub=""),
        token(iss="topics", sub="absent"),
        token()[:-3],
        token() + "x",
        unsigned,
        confused,
        "a.b.c",
        "..",
        "." * 5000,
        "é.é.é".encode().decode("latin-1"),
    ):
        refused(ask.get("/v0/topics/t", bearer(each)), 401, "unauthorized")


def test_a_token_of_ours_has_the_role_the_user_has_now(ask: Api) -> None:
    ours = token(role="dba", sub="user", iss="topics")
    refused(ask.put("/v0/topics/other", {}, bearer(ours)), 403, "forbidden")


# Roles


def test_the_role_user_reads_and_nothing_else(ask: Api) -> None:
    ask.headers = basic("user")
    assert ask.get("/v0/topics/t").status == 200
    assert succeeded(ask.post("/v0/topics/t/diff", {}))["records"]
    for answer in (
        ask.post("/v0/topics/t", {"records": [{"data": 1}]}),
        ask.put("/v0/topics/t", {}),
        ask.delete("/v0/topics/t"),
        consume(ask),
        consume(ask, "nowhere"),
        ask.post("/api/topics/ack", {"topic": "nowhere", "group_id": "g", "upto_offset": 1}),
        ask.post("/api/topics/seek", {"topic": "t", "group_id": "g", "to": "Latest"}),
        ask.get("/v0/topics/system.t"),
        sql(ask, "CONSUME FROM t GROUP 'g'"),
        sql(ask, "CONSUME FROM nowhere"),
        sql(ask, "CREATE TOPIC x"),
        sql(ask, "DROP TOPIC nowhere"),
        sql(ask, "ALTER TOPIC nowhere CLEAR ALIAS"),
        sql(ask, "DESCRIBE TOPIC system.t"),
        sql(ask, "SELECT * FROM system.settings"),
    ):
        refused(answer, 403, "forbidden")
    assert [row[0] for row in succeeded(sql(ask, "SELECT name FROM system.topics"))["rows"]] == ["t"]
    assert [each["topic"] for each in succeeded(ask.get("/v0/topics"))["topics"]] == ["t"]


def test_the_role_service_reads_writes_and_consumes(ask: Api) -> None:
    ask.headers = basic("service")
    succeeded(ask.post("/v0/topics/t", {"records": [{"data": 1}]}))
    assert succeeded(consume(ask))["messages"]
    succeeded(ask.post("/api/topics/ack", {"topic": "t", "group_id": "g", "upto_offset": 1}))
    refused(consume(ask, "nowhere"), 404, "topic_not_found")
    for answer in (
        ask.put("/v0/topics/x", {}),
        ask.delete("/v0/topics/t"),
        sql(ask, "CREATE TOPIC x"),
        sql(ask, "CLEAR TOPIC t"),
        sql(ask, "DROP CONSUMER GROUP 'g' ON t"),
    ):
        refused(answer, 403, "forbidden")


@pytest.mark.parametrize("role", ["dba", "system"])
def test_dba_and_system_may_do_everything(ask: Api, role: str) -> None:
    ask.headers = basic(role)
    name = f"made_by_{role}"
    succeeded(sql(ask, f"CREATE TOPIC {name}"))
    succeeded(consume(ask, name))
    succeeded(sql(ask, "SELECT * FROM system.settings"))
    assert ask.get("/v0/topics/system.t").status == 200
    succeeded(sql(ask, f"DROP TOPIC {name}"))


def test_secrets_are_not_among_the_settings(ask: Api) -> None:
    ask.headers = basic("dba")
    answer = sql(ask, "SELECT name, value FROM system.settings")
    assert SECRET.encode() not in answer.body
    assert dict(succeeded(answer)["rows"])["TOPICS_JWT_SECRET"] == "***"


def test_the_role_user_may_consume_where_the_server_allows_it(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(
        f'[topics]\nallow_user_role_consume = true\n[[users]]\nname = "u"\npassword = "{PASSWORD}"\n', encoding="utf-8"
    )
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "d"), "TOPICS_CONFIG": str(config)}
    environment["TOPICS_API_KEYS"] = "k"
    with running_server(load_settings(environment)) as url, Api(url) as api:
        succeeded(api.post("/v0/topics/t", {"records": [{"data": 1}]}, bearer("k")))
        api.headers = basic("u")
        assert succeeded(consume(api))["messages"]
        refused(api.post("/v0/topics/t", {"records": [{"data": 1}]}), 403, "forbidden")
        assert succeeded(api.post("/api/auth/login", {"username": "u", "password": PASSWORD}))["role"] == "user"


# Guessing


def test_guessing_is_slowed_down_and_does_not_hold_up_others(guarded_url: str) -> None:
    def guess(number: int) -> float:
        with Api(guarded_url) as api:
            started = time.monotonic()
            refused(api.get("/v0/topics/t", basic("system", f"wrong-{number}")), 401, "unauthorized")
            return time.monotonic() - started

    with ThreadPoolExecutor(12) as pool:
        guesses = [pool.submit(guess, number) for number in range(12)]
        with Api(guarded_url) as api:
            started = time.monotonic()
            for _ in range(20):
                assert api.get("/v0/topics/t", basic("dba")).status == 200
            assert time.monotonic() - started < 2
        took = sorted([each.result(60) for each in guesses])
    assert took[-1] > 0.5
    with Api(guarded_url) as api:
        assert api.get("/v0/topics/t", basic("system")).status == 200


def test_a_wrong_password_says_that_it_is_wrong(ask: Api) -> None:
    for name, password in (("dba", "wrong"), ("stranger", PASSWORD)):
        answer = ask.get("/v0/topics/t", basic(name, password))
        assert answer.json["error"]["message"] == "the user name or the password is wrong"
        login = ask.post("/api/auth/login", {"username": name, "password": password})
        assert login.json["error"]["message"] == "the user name or the password is wrong"
    assert "name:password" in ask.get("/v0/topics/t", {"Authorization": "Basic !!!"}).json["error"]["message"]
    assert "key or token" in ask.get("/v0/topics/t", bearer("wrong")).json["error"]["message"]
    assert "scheme" in ask.get("/v0/topics/t", {"Authorization": "Digest x"}).json["error"]["message"]


def test_forty_wrong_passwords_at_once_do_not_lock_a_user_out(tmp_path: Path) -> None:
    """From the same address, before the user's first login: the worst case. Hashes are as expensive as in production."""
    config = tmp_path / "server.toml"
    hashed = PasswordHasher().hash(PASSWORD)
    config.write_text(f'[[users]]\nname = "u"\npassword_hash = "{hashed}"\nrole = "dba"\n', encoding="utf-8")
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "d"), "TOPICS_CONFIG": str(config)}
    with running_server(load_settings(environment)) as url:

        def log_in(password: str) -> int:
            with Api(url) as api:
                return api.post("/api/auth/login", {"username": "u", "password": password}).status

        with ThreadPoolExecutor(41) as pool:
            wrong = [pool.submit(log_in, f"wrong {number}") for number in range(40)]
            assert log_in(PASSWORD) == 200
            assert {each.result(60) for each in wrong} == {401}
        with ThreadPoolExecutor(10) as pool:
            wrong = [pool.submit(log_in, f"more {number}") for number in range(20)]
            started = time.monotonic()
            assert log_in(PASSWORD) == 200
            assert time.monotonic() - started < 1, "known by now: it waits for no guess"
            assert {each.result(60) for each in wrong} == {401}


def test_a_checked_password_is_not_checked_again_for_a_while(ask: Api) -> None:
    assert ask.get("/v0/topics/t", basic("dba")).status == 200
    started = time.monotonic()
    for _ in range(100):
        assert ask.get("/v0/topics/t", basic("dba")).status == 200
    assert time.monotonic() - started < 2


# Settings and the command


def test_a_hash_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('[[users]]\nname = "u"\npassword_hash = "plain text"\n', encoding="utf-8")
    with pytest.raises(BadSettings, match="argon2id"):
        load_settings({"TOPICS_CONFIG": str(config)})


def test_topics_user_add_makes_a_user_the_server_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "server.toml"
    config.write_text("# mine\n[topics]\nmax_consume_timeout = 60", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    arguments = ["add", "ada", "--role", "dba", "--password-stdin"]
    assert topics_user([*arguments, "--file", str(config)]) == 0
    assert config.read_text(encoding="utf-8").startswith("# mine\n[topics]\nmax_consume_timeout = 60\n")
    settings = load_settings({"TOPICS_CONFIG": str(config)})
    assert [(user.name, user.role) for user in settings.users] == [("ada", "dba")]
    assert PASSWORD not in config.read_text(encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    assert topics_user([*arguments, "--file", str(config)]) == 1
    assert "already" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert topics_user(arguments) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    assert topics_user(arguments) == 0
    assert '[[users]]\nname = "ada"\npassword_hash = "$argon2id$' in capsys.readouterr().out
