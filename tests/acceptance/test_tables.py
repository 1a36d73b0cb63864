"""/api/tables, system.tables, and routes that are checked against a known schema."""

from typing import Any

import pytest

from topics.testing.http import Answer, Api


def sql(api: Api, statement: str) -> Answer:
    return api.post("/api/sql", {"sql": statement})


def rows(api: Api, table: str) -> list[dict[str, Any]]:
    answer = sql(api, f"SELECT * FROM system.tables WHERE table_id = '{table}'")
    assert answer.status == 200, answer
    return [dict(zip(answer.json["columns"], row, strict=True)) for row in answer.json["rows"]]


def test_a_table_is_made_known_changed_listed_and_forgotten(api: Api, name: str) -> None:
    path = f"/api/tables/{name}"
    assert (api.get(path).status, api.get(path).code) == (404, "not_found")
    added = api.put(path, {"kind": "delta", "location": "s3://lake/x", "key_columns": ["id"]})
    assert (added.status, added.json["created"]) == (201, True)
    changed = api.put(path, {"key_columns": ["a", "b"], "columns": ["a", "b"]})
    assert (changed.status, changed.json["created"]) == (200, False)
    fields = {"table": name, "kind": "push", "location": None, "key_columns": ["a", "b"], "columns": {"a": "", "b": ""}}
    for got in (api.get(path).json, *api.get(f"/v1/api/tables?prefix={name}").json["tables"]):
        assert {field: got[field] for field in fields} == fields
        assert got["topic"] == f"changes:{name}"
        assert got["created_at"] == added.json["created_at"]
    (row,) = rows(api, name)
    assert (row["kind"], row["key_columns"], row["topic_id"], row["count"]) == ("push", "a,b", f"changes:{name}", 0)
    assert api.delete(path).json["deleted"] is True
    assert (api.delete(path).status, rows(api, name)) == (404, [])


def test_the_list_of_tables_goes_on_page_by_page(api: Api, name: str) -> None:
    names = [f"{name}.t{number}" for number in range(5)]
    for each in names:
        assert api.put(f"/api/tables/{each}", {}).status == 201
    found: list[str] = []
    cursor = ""
    for _ in range(3):
        page = api.get(f"/api/tables?prefix={name}.&page_size=2&cursor={cursor}").json
        found += [table["table"] for table in page["tables"]]
        cursor = page["next_cursor"]
    assert (found, cursor) == (names, None)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "mysql"},
        {"kind": "delta"},
        {"key_columns": "id"},
        {"unknown": 1},
        {"kind": "postgres", "location": "postgresql://ada:secret@db/chat"},
    ],
)
def test_what_is_wrong_about_a_table_is_refused(api: Api, name: str, body: Any) -> None:
    answer = api.put(f"/api/tables/{name}", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "secret" not in str(answer.json)


def test_key_columns_of_a_known_table_are_the_key_of_its_events(api: Api, name: str) -> None:
    event = {"op": "insert", "after": {"id": 7, "text": "x"}, "position": 5}
    assert len(api.post(f"/api/tables/{name}/changes", {"changes": [event]}).json["refused"]) == 1
    api.put(f"/api/tables/{name}", {"key_columns": ["id"]})
    assert api.post(f"/api/tables/{name}/changes", {"changes": [event]}).json["appended"] == 1
    (row,) = rows(api, name)
    assert (row["count"], row["positions"]) == (1, '{"":[5]}')


def test_a_table_that_was_only_sent_changes_is_shown_too(api: Api, name: str) -> None:
    api.post(f"/api/tables/{name}/changes", [{"op": "delete", "key": {"id": 1}}])
    (row,) = rows(api, name)
    assert (row["kind"], row["key_columns"], row["count"], row["created_at"]) == ("push", None, 1, None)


@pytest.mark.parametrize(
    ("clauses", "missing"),
    [
        ("WHERE (id > 5 AND Text LIKE 'a%')", None),
        ("WHERE (room.name = 'x') PARTITION BY (id)", None),
        ("WHERE (id > 5 AND nope = 1)", "nope"),
        ("WHERE (lower(coalesce(nope, text)) = 'x')", "nope"),
        ("WHERE (`odd name` = 1)", "odd name"),
        ("WHERE (nope.name = 'x')", "nope"),
        ("PARTITION BY (nope)", "nope"),
        ("WITH (key = 'id, nope')", "nope"),
    ],
)
def test_a_source_names_only_columns_that_a_known_table_has(api: Api, name: str, clauses: str, missing: str) -> None:
    assert sql(api, f'CREATE TOPIC "{name}"').status == 200
    statement = f'ALTER TOPIC "{name}" ADD SOURCE "{name}.t" ON INSERT {clauses}'
    api.put(f"/api/tables/{name}.t", {"columns": {"id": "bigint", "text": "string", "room": "struct<name:string>"}})
    answer = sql(api, statement)
    if missing is None:
        assert answer.status == 200, answer
        return
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["error"]["detail"]["column"] == missing
    api.put(f"/api/tables/{name}.t", {"key_columns": ["id"]})
    assert sql(api, statement).status == 200, "without a schema columns are not checked"


def test_a_table_is_set_to_be_materialised_and_keeps_that_when_it_is_put_again(api: Api, name: str) -> None:
    path = f"/api/tables/{name}"
    assert sql(api, f"ALTER TABLE \"{name}\" SET MATERIALIZED WITH (uri = 's3://lake/{name}')").status == 404
    assert api.put(path, {"key_columns": ["id"]}).json["materialized"] is None
    version = api.get("/api/tables").json["version"]
    assert (
        sql(api, f"ALTER TABLE \"{name}\" SET MATERIALIZED WITH (uri = 's3://lake/{name}', mode = 'scd2')").status
        == 200
    )
    assert api.get("/api/tables").json["version"] > version
    wanted = {"uri": f"s3://lake/{name}", "mode": "scd2"}
    assert api.get(path).json["materialized"] == wanted
    assert api.put(path, {"key_columns": ["id", "part"]}).json["materialized"] == wanted
    (row,) = rows(api, name)
    assert (row["materialized_uri"], row["materialized_mode"]) == (f"s3://lake/{name}", "scd2")
    assert sql(api, f'ALTER TABLE "{name}" CLEAR MATERIALIZED').status == 200
    assert api.get(path).json["materialized"] is None


@pytest.mark.parametrize(
    "options",
    ["mode = 'scd1'", "uri = 's3://lake/x', mode = 'scd3'", "uri = 's3://lake/x', other = 1", "uri = ''", "uri = 7"],
)
def test_wrong_options_of_a_materialised_table_are_refused(api: Api, name: str, options: str) -> None:
    api.put(f"/api/tables/{name}", {})
    answer = sql(api, f'ALTER TABLE "{name}" SET MATERIALIZED WITH ({options})')
    assert (answer.status, answer.code) == (400, "invalid_request")


def test_two_tables_or_an_archive_are_not_written_to_one_location(api: Api, name: str) -> None:
    # One that is not registered, and one that is.
    insert = {"op": "insert", "key": {"id": 1}, "after": {"id": 1}}
    assert api.post(f"/api/tables/{name}.a/changes", {"changes": [insert]}).status == 200
    api.put(f"/api/tables/{name}.b", {})
    uri = f"s3://lake/{name}"
    assert sql(api, f"ALTER TABLE \"{name}.a\" SET MATERIALIZED WITH (uri = '{uri}')").status == 200
    assert sql(api, f"ALTER TABLE \"{name}.b\" SET MATERIALIZED WITH (uri = '{uri}/')").status == 409
    api.put(f"/v0/topics/{name}", {})
    assert sql(api, f"ALTER TOPIC \"{name}\" SET ARCHIVE WITH (uri = '{uri}/inside')").status == 409
    source = api.put(f"/api/tables/{name}.c", {"kind": "delta", "location": f"{uri}-source"})
    assert source.status == 201
    assert sql(api, f"ALTER TABLE \"{name}.c\" SET MATERIALIZED WITH (uri = '{uri}-source')").status == 400
