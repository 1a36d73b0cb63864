"""Where a key with prefixes may have topics archived: inside the roots, however the location is spelled."""

from pathlib import Path

import pytest

from tests.server.house import House, error_of, in_house
from topics.model.errors import Forbidden, InvalidRequest
from topics.server.auth.archive_roots import ArchiveRoots
from topics.server.auth.authorization import EVERYONE, Caller
from topics.testing.broker import BrokerBench

KEYS = "full,tenant::t42:"
RECORDS = {"records": [{"data": 1}]}
TENANT = Caller("tenant", prefixes=("t42:",))


def allowed(roots: ArchiveRoots, uri: str, caller: Caller = TENANT, broker: BrokerBench | None = None) -> bool:
    bench = broker or BrokerBench()
    try:
        roots.check(bench.broker, caller, "t42:a", uri)
    except (Forbidden, InvalidRequest):
        return False
    return True


def local_roots(tmp_path: Path) -> ArchiveRoots:
    (tmp_path / "lake").mkdir()
    (tmp_path / "secret").mkdir()
    return ArchiveRoots([str(tmp_path / "lake"), "s3://Lake/archives/"], str(tmp_path / "data"))


def test_locations_inside_the_roots_are_allowed_in_every_spelling(tmp_path: Path) -> None:
    roots = local_roots(tmp_path)
    for uri in (
        f"{tmp_path}/lake/orders",
        f"{tmp_path}//lake/./orders/",
        f"file://{tmp_path}/lake/orders",
        f"FILE://localhost{tmp_path}/lake/or%64ers",
        f"{tmp_path}/lake/a/b/c",
        "s3://lake/archives/orders",
        "S3A://LAKE//archives/orders/",
        "s3://lake/%61rchives/orders",
    ):
        assert allowed(roots, uri), uri


def test_everything_else_is_refused_to_a_key_with_prefixes(tmp_path: Path) -> None:
    roots = local_roots(tmp_path)
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "lake" / "up").symlink_to("..")
    for uri in (
        f"{tmp_path}/secret",
        f"{tmp_path}/lake",
        f"{tmp_path}/lake/",
        f"{tmp_path}/lakeside",
        f"{tmp_path}/lake_quarantine",
        f"{tmp_path}/lake/../secret",
        f"{tmp_path}/lake/x/../../secret/y",
        f"{tmp_path}/lake/link/y",
        f"{tmp_path}/lake/up/secret",
        f"file://{tmp_path}/lake/%2e%2e/secret",
        f"file://{tmp_path}/lake/..%2fsecret",
        f"file://elsewhere{tmp_path}/lake/orders",
        f"file://{tmp_path}/lake/orders?x=1",
        f"file://{tmp_path}/lake/link/y",
        "lake/orders",
        "./orders",
        "/etc/topics",
        "s3://lake",
        "s3://lake/archives",
        "s3://lake/archivesx/orders",
        "s3://lake/archives/../orders",
        "s3://lake/archives/%2e%2e/orders",
        "s3://lake/archives/orders#x",
        "s3://other/archives/orders",
        "gs://lake/archives/orders",
        "https://lake/archives/orders",
        "memory://x/archives",
    ):
        assert not allowed(roots, uri), uri
        if not uri.startswith(f"{tmp_path}/data"):
            assert allowed(roots, uri, EVERYONE), f"a key without prefixes may name {uri}"


def test_a_root_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "disk")
    roots = ArchiveRoots([str(tmp_path / "lake")], str(tmp_path / "data"))
    assert allowed(roots, f"{tmp_path}/lake/orders")
    assert allowed(roots, f"{tmp_path}/disk/orders")


def test_the_default_root_is_archive_in_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    roots = ArchiveRoots([], "./data")
    assert allowed(roots, f"{tmp_path}/data/archive/orders")
    assert not allowed(roots, f"{tmp_path}/elsewhere")
    # Not when roots are configured.
    assert not allowed(ArchiveRoots(["/lake"], "./data"), f"{tmp_path}/data/archive/orders")


def test_no_archive_lies_among_the_servers_own_files(tmp_path: Path) -> None:
    (tmp_path / "data" / "wal").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data" / "wal")
    roots = ArchiveRoots([str(tmp_path)], str(tmp_path / "data"))
    for uri in ("data", "data/wal", "data/segments/x", "data/archive", "data/archive/../wal", "link", "link/x"):
        assert not allowed(roots, f"{tmp_path}/{uri}", EVERYONE), uri
        assert not allowed(roots, f"{tmp_path}/{uri}"), uri
    assert allowed(roots, f"{tmp_path}/data/archive/orders", EVERYONE)
    assert allowed(roots, f"{tmp_path}/database", EVERYONE)


@in_house(API_KEYS=KEYS, ARCHIVE_ROOTS="s3://lake/tenants")
async def test_a_key_with_prefixes_sets_archives_inside_the_roots_only(house: House) -> None:
    for name in ("t42:a", "t42:b"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")

    async def put(uri: str, key: str = "tenant", name: str = "t42:a", **more: int) -> int:
        return (await house.ask("PUT", f"/v0/topics/{name}/archive", {"uri": uri, **more}, key=key)).status

    async def alter(uri: str, key: str = "tenant") -> int:
        statement = f"ALTER TOPIC \"t42:a\" SET ARCHIVE WITH (uri = '{uri}')"
        return (await house.ask("POST", "/api/sql", {"sql": statement}, key=key)).status

    refused = await house.ask("PUT", "/v0/topics/t42:a/archive", {"uri": "s3://other/x"}, key="tenant")
    assert (refused.status, error_of(refused)["code"]) == (403, "forbidden")
    assert "TOPICS_ARCHIVE_ROOTS" in error_of(refused)["message"]
    assert await alter("/etc") == 403
    assert house.broker.state.archived == {}
    assert await put("s3://lake/tenants/a") == 201
    assert await alter("s3://lake/tenants/other") == 200
    # What a key without prefixes has set stays the tenant's to tune, in any spelling.
    assert await put("s3://other/x", "full") == 200
    assert await put("S3://Other//x/", freshness_ms=5000) == 200
    assert await put("s3://other/x", name="t42:b") == 403
    assert await put("s3://lake/tenants/b", name="t42:b") == 201


@in_house(API_KEYS=KEYS)
async def test_two_topics_are_not_archived_to_one_directory_however_it_is_spelled(house: House) -> None:
    for name in ("a", "b"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")
    assert (await house.ask("PUT", "/v0/topics/a/archive", {"uri": "/lake/orders"}, key="full")).status == 201
    for uri in (
        "/lake/orders/",
        "/lake//orders",
        "/lake/x/../orders",
        "file:///lake/orders",
        "file:///lake/%6frders",
        "/lake/orders/inner",
        "/lake",
        "/lake/orders_quarantine",
    ):
        answer = await house.ask("PUT", "/v0/topics/b/archive", {"uri": uri}, key="full")
        assert answer.status == 409, uri
    assert (await house.ask("PUT", "/v0/topics/b/archive", {"uri": "/lake/orders2"}, key="full")).status == 201
    # Another spelling of the topic's own table is the same table.
    again = await house.ask("PUT", "/v0/topics/a/archive", {"uri": "file:///lake/orders"}, key="full")
    assert (again.status, again.json["created"]) == (200, False)


@in_house(API_KEYS=KEYS)
async def test_a_uri_that_cannot_be_decoded_is_refused(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", RECORDS, key="full")
    for uri in ("s3://lake/%ff", "file:///lake/%c3%28"):
        answer = await house.ask("PUT", "/v0/topics/a/archive", {"uri": uri}, key="full")
        assert (answer.status, error_of(answer)["code"]) == (400, "invalid_request")
