"""Keys and users are read again while the server runs."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.server.house import House, in_house, raw
from topics.server.auth.reload import CredentialReload
from topics.server.ops.settings import BadSettings, Settings, load_settings
from topics.testing.http import Api
from topics.testing.process import ServerProcess

RECORDS = {"records": [{"data": 1}]}
KEYS = "old,stays:read+write:t"


def reload(house: House, **environment: str) -> None:
    loaded = load_settings({f"TOPICS_{name}": value for name, value in environment.items()})
    # As if all of it came from the file: a key of the environment does not change.
    CredentialReload(house.service, Settings(), lambda: loaded, house.listener, house.runtime).run()


@in_house(API_KEYS=KEYS)
async def test_removed_key_is_refused_on_a_connection_that_it_has_used(house: House) -> None:
    client = await house.connect()
    for _ in range(3):
        assert (await client.ask(raw("POST", "/v0/topics/t", RECORDS, key="old"))).status in (200, 201)
    reload(house, API_KEYS="new,stays:read+write:t")
    assert (await client.ask(raw("POST", "/v0/topics/t", RECORDS, key="old"))).status == 401
    assert (await client.ask(raw("POST", "/v0/topics/t", RECORDS, key="new"))).status == 200
    assert (await client.ask(raw("POST", "/v0/topics/t", RECORDS, key="stays"))).status == 200


@in_house(API_KEYS=KEYS)
async def test_streams_of_a_removed_key_end_and_those_of_the_others_go_on(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS, key="old")
    streams = {}
    for key in ("old", "stays"):
        wid = (await house.ask("POST", "/v0/watch", {"topics": {"t": {}}}, key=key)).json["wid"]
        client = await house.connect()
        await client.send(raw("GET", f"/v0/watch/{wid}", key=key))
        assert (await client.reader.readuntil(b"caught-up")).startswith(b"HTTP/1.1 200")
        streams[key] = (client, wid)
    reload(house, API_KEYS="new,stays:read+write:t")
    await streams["old"][0].reader.readuntil(b"0\r\n\r\n")
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": "after the reload"}]}, key="new")
    await streams["stays"][0].reader.readuntil(b"after the reload")
    assert house.service.streams.open == 1
    # The session belongs to its key as before.
    streams["stays"][0].abort()
    client = await house.connect()
    await client.send(raw("GET", f"/v0/watch/{streams['stays'][1]}", key="stays"))
    assert (await client.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")


@in_house(API_KEYS=KEYS)
async def test_key_with_fewer_permissions_is_checked_again(house: House) -> None:
    client = await house.connect()
    assert (await client.ask(raw("POST", "/v0/topics/t", RECORDS, key="stays"))).status == 201
    reload(house, API_KEYS="old,stays:read:t")
    assert (await client.ask(raw("POST", "/v0/topics/t", RECORDS, key="stays"))).status == 403


@pytest.mark.parametrize("wrong", ["key:unknown-scope", ""])
@in_house(API_KEYS=KEYS)
async def test_wrong_settings_change_nothing(house: House, wrong: str) -> None:
    def load() -> Settings:
        return load_settings({"TOPICS_API_KEYS": wrong})

    CredentialReload(house.service, Settings(), load, house.listener, house.runtime).run()
    assert (await house.ask("POST", "/v0/topics/t", RECORDS, key="old")).status == 201
    assert (await house.ask("POST", "/v0/topics/t", RECORDS)).status == 401
    if wrong:
        with pytest.raises(BadSettings):
            load()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def write_config(path: Path, keys: list[str], user: str) -> None:
    path.write_text(
        f"[auth]\napi_keys = {keys!r}\n\n[[users]]\nname = '{user}'\nrole = 'dba'\npassword = 'secret'\n", "utf-8"
    )


def test_sighup_reads_the_file_again_and_drops_no_connection(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    write_config(config, ["one"], "ada")
    with ServerProcess(tmp_path, TOPICS_CONFIG=str(config)) as server, Api(server.url, bearer("one")) as api:
        assert api.post("/v0/topics/t", RECORDS).status == 201
        login = {"username": "ada", "password": "secret"}
        token = api.post("/api/auth/login", login).json["access_token"]
        write_config(config, ["one", "two"], "ada")
        os.kill(server.pid, signal.SIGHUP)
        wait_for_log(server, "keys and users reloaded: 2 api keys, 1 users")
        assert api.post("/v0/topics/t", RECORDS).status == 200
        with Api(server.url, bearer("two")) as second, Api(server.url, bearer(token)) as ada:
            assert second.post("/v0/topics/t", RECORDS).status == 200
            # A token that was issued before the reload is still valid.
            assert ada.post("/v0/topics/t", RECORDS).status == 200
            write_config(config, ["two"], "grace")
            os.kill(server.pid, signal.SIGHUP)
            wait_for_log(server, "keys and users reloaded: 1 api keys, 1 users; 2 removed")
            assert second.post("/v0/topics/t", RECORDS).status == 200
            assert api.post("/v0/topics/t", RECORDS).status == 401
            assert ada.post("/v0/topics/t", RECORDS).status == 401
            config.write_text("[auth]\napi_keys = 7\n")
            os.kill(server.pid, signal.SIGHUP)
            wait_for_log(server, "keys and users not reloaded")
            assert second.post("/v0/topics/t", RECORDS).status == 200


def wait_for_log(server: ServerProcess, text: str) -> None:
    deadline = time.monotonic() + 20
    while text not in server.logs:
        assert time.monotonic() < deadline, server.logs
        time.sleep(0.02)
