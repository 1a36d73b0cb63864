"""Each statement as it is written, and everything near it that is none."""

import msgspec
import pytest

from topics.model.errors import InvalidRequest
from topics.sql.parser import parse
from topics.sql.statements import (
    Ack,
    AddSource,
    AtOffset,
    AtTime,
    ClearArchive,
    ClearMaterialized,
    ClearRetention,
    ClearTopic,
    Consume,
    CreateTopic,
    DescribeTopic,
    DropGroup,
    DropSource,
    DropTopic,
    Earliest,
    Latest,
    ResetGroup,
    Select,
    SetAlias,
    SetArchive,
    SetMaterialized,
    SetRetention,
    ShowGroups,
    ShowTopics,
    Statement,
)

STATEMENTS: list[tuple[str, Statement]] = [
    ("CREATE TOPIC app.new_messages;", CreateTopic("app.new_messages")),
    ("create topic if not exists t partitions 4", CreateTopic("t", True, 4)),
    (
        "CREATE TOPIC t WITH (alias = 'x', retention_seconds = 60, durable = true, dead_letter = null, priority = -5)",
        CreateTopic("t", options=(
            ("alias", "x"), ("retention_seconds", 60), ("durable", True), ("dead_letter", None), ("priority", -5),
        )),
    ),
    ('CREATE TOPIC "a:b-c"', CreateTopic("a:b-c")),
    ("CREATE TOPIC `a`.\"b\".c", CreateTopic("a.b.c")),
    ("CREATE TOPIC topic", CreateTopic("topic")),
    ("DROP TOPIC t", DropTopic("t")),
    ("DROP TOPIC IF EXISTS t", DropTopic("t", True)),
    ("CLEAR TOPIC t", ClearTopic("t")),
    ("ALTER TOPIC t ADD SOURCE chat.messages ON INSERT", AddSource("t", "chat.messages", "Insert")),
    (
        "ALTER TOPIC t ADD SOURCE c.m ON UPDATE WHERE (a = 1) PARTITION BY (b) WITH (payload = 'DIFF', key = 'x,y')",
        AddSource("t", "c.m", "Update", "Diff", "`a` = 1", "`b`", ("x", "y")),
    ),
    (
        "ALTER TOPIC t ADD SOURCE c.m ON INSERT WITH (start = 'EARLIEST')",
        AddSource("t", "c.m", "Insert", start="Earliest"),
    ),
    ("ALTER TOPIC t ADD SOURCE c.m ON INSERT WITH (start = 'latest')", AddSource("t", "c.m", "Insert")),
    ("ALTER TOPIC t DROP SOURCE c.m", DropSource("t", "c.m")),
    ("ALTER TOPIC t DROP SOURCE c.m ON DELETE WHERE (a=1)", DropSource("t", "c.m", "Delete", "`a` = 1")),
    ("ALTER TOPIC t SET RETENTION WITH (retention_seconds = 1)", SetRetention("t", (("retention_seconds", 1),))),
    ("ALTER TOPIC t CLEAR RETENTION", ClearRetention("t")),
    (
        "alter topic a.t set archive with (URI = 's3://lake/t', vacuum_hours = 0)",
        SetArchive("a.t", (("uri", "s3://lake/t"), ("vacuum_hours", 0))),
    ),
    ('ALTER TOPIC "archive" CLEAR ARCHIVE', ClearArchive("archive")),
    (
        "alter table c.m set materialized with (uri = 's3://lake/m', mode = 'scd2')",
        SetMaterialized("c.m", (("uri", "s3://lake/m"), ("mode", "scd2"))),
    ),
    ("ALTER TABLE c.m CLEAR MATERIALIZED", ClearMaterialized("c.m")),
    ("ALTER TOPIC t SET ALIAS 'x'", SetAlias("t", "x")),
    ("ALTER TOPIC t SET ALIAS x.y", SetAlias("t", "x.y")),
    ("ALTER TOPIC t CLEAR ALIAS", SetAlias("t", None)),
    ("CONSUME FROM t", Consume("t")),
    (
        "CONSUME FROM t GROUP 'g' PARTITION 2 FROM OFFSET 12345 LIMIT 100",
        Consume("t", "g", 2, AtOffset(12345), 100),
    ),
    ("CONSUME FROM t GROUP g FROM EARLIEST", Consume("t", "g", 0, Earliest())),
    ("CONSUME FROM t FROM LATEST", Consume("t", start=Latest())),
    ("ACK t GROUP 'ai-service' PARTITION 1 UPTO OFFSET 220;", Ack("t", "ai-service", 220, 1)),
    ("RESET CONSUMER GROUP 'g' ON t TO EARLIEST", ResetGroup("t", "g", Earliest())),
    ("RESET CONSUMER GROUP 'g' ON t PARTITION 3 TO 7 DRY RUN", ResetGroup("t", "g", AtOffset(7), 3, True)),
    ("RESET CONSUMER GROUP 'g' ON t TO OFFSET 7", ResetGroup("t", "g", AtOffset(7))),
    ("RESET CONSUMER GROUP 'g' ON t TO TIMESTAMP '2026-01-01'", ResetGroup("t", "g", AtTime("2026-01-01"))),
    ("RESET CONSUMER GROUP 'g' ON t TO TIMESTAMP 1700000000000", ResetGroup("t", "g", AtTime(1700000000000))),
    ("DROP CONSUMER GROUP 'g' ON t", DropGroup("t", "g")),
    ("DROP CONSUMER GROUP IF EXISTS 'g' ON t", DropGroup("t", "g", True)),
    ("SHOW TOPICS", ShowTopics()),
    ("SHOW CONSUMER GROUPS", ShowGroups()),
    ("SHOW CONSUMER GROUPS ON t", ShowGroups("t")),
    ("DESCRIBE TOPIC t", DescribeTopic("t")),
    ("DESC TOPIC t", DescribeTopic("t")),
    ("SELECT 1", Select("SELECT 1", ())),
    ("select * from SYSTEM.Topics;", Select("select * from main.Topics", ("topics",))),
    (
        "SELECT 'system.topics', system.topics.name FROM system . topics -- system.queues",
        Select("SELECT 'system.topics', main.topics.name FROM main . topics -- system.queues", ("topics",)),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_a_statement_is_read(text: str, statement: Statement) -> None:
    assert parse(text) == statement


@pytest.mark.parametrize("text", [text for text, statement in STATEMENTS if not isinstance(statement, Select)])
def test_keywords_may_be_written_in_any_case_and_comments_anywhere(text: str) -> None:
    spread = " /* x */ ".join(text.rstrip(";").split(" ")) + " -- end\n;"
    assert parse(spread) == parse(text)


@pytest.mark.parametrize("text", [text for text, _ in STATEMENTS])
def test_no_beginning_of_a_statement_raises_anything_but_a_refusal(text: str) -> None:
    for end in range(len(text)):
        try:
            parse(text[:end])
        except InvalidRequest:
            pass


@pytest.mark.parametrize("text", [text for text, statement in STATEMENTS if not isinstance(statement, Select)])
def test_words_behind_a_statement_are_an_error(text: str) -> None:
    for more in (" please", " 1", ";;", "; SHOW TOPICS", " )"):
        with pytest.raises(InvalidRequest):
            parse(text.rstrip(";") + more)


@pytest.mark.parametrize(
    "text",
    ["", ";", "x", "CREATE", "CREATE TABLE t", "CREATE TOPIC 't'", "CREATE TOPIC t.", "CREATE TOPIC .t", "CREATE TOPIC t PARTITIONS 0",
     "CREATE TOPIC t PARTITIONS 1025", "CREATE TOPIC t PARTITIONS 1.5", "CREATE TOPIC t PARTITIONS '4'", "CREATE TOPIC t WITH ()",
     "CREATE TOPIC t WITH (a = 1", "CREATE TOPIC t WITH (a = 1,)", "CREATE TOPIC t WITH (a = 1, A = 2)", "CREATE TOPIC t WITH (a = b)",
     "CREATE TOPIC t WITH (a = -'x')", "CREATE TOPIC \"\"", "ALTER TOPIC t", "ALTER TOPIC t ADD SOURCE a.b", "ALTER TOPIC t ADD SOURCE a.b.c.d ON INSERT",
     "ALTER TOPIC t ADD SOURCE a.b ON MERGE", "ALTER TOPIC t ADD SOURCE a.b ON INSERT WHERE (a", "ALTER TOPIC t SET ALIAS", "ALTER TOPIC t SET RETENTION (a=1)",
     "ALTER TOPIC t SET ARCHIVE", "ALTER TOPIC t SET ARCHIVE (uri='x')", "ALTER TOPIC t SET ARCHIVE WITH ()", "ALTER TOPIC t CLEAR ARCHIVE WITH (a=1)",
     "ALTER TABLE", "ALTER TABLE t", "ALTER TABLE t SET", "ALTER TABLE t SET ARCHIVE WITH (uri='x')", "ALTER TABLE t SET MATERIALIZED",
     "ALTER TABLE t CLEAR MATERIALIZED WITH (uri='x')", "ALTER TABLE a.b.c.d CLEAR MATERIALIZED",
     "CONSUME t", "CONSUME FROM t LIMIT 0", "CONSUME FROM t LIMIT -1", "CONSUME FROM t FROM 5", "CONSUME FROM t FROM OFFSET 18446744073709551616",
     "CONSUME FROM t LIMIT 5 GROUP 'g'", "ACK t UPTO OFFSET 1", "ACK t GROUP 'g' UPTO 1", "ACK t GROUP 'g' UPTO OFFSET 'x'",
     "RESET CONSUMER GROUP 'g' ON t", "RESET CONSUMER GROUP 'g' ON t TO", "RESET CONSUMER GROUP 'g' ON t TO TIMESTAMP true",
     "RESET CONSUMER GROUP 'g' ON t TO LATEST DRY", "SHOW", "SHOW TABLES", "DESCRIBE t", "SELECT 1; SELECT 2", "INSERT INTO t VALUES (1)"],
)  # fmt: skip
def test_what_is_nearly_a_statement_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse(text)


def test_parameters_stand_for_values_only() -> None:
    assert parse("ACK t GROUP ? PARTITION ? UPTO OFFSET ?", ["g", 1, 9]) == Ack("t", "g", 9, 1)
    assert parse("ACK t GROUP $2 UPTO OFFSET $1", [9, "g"]) == Ack("t", "g", 9)
    assert parse("CREATE TOPIC t WITH (alias = ?)", ["x"]) == CreateTopic("t", options=(("alias", "x"),))
    for text, params in (
        ("CREATE TOPIC ?", ["t"]),
        ("SHOW ?", ["TOPICS"]),
        ("ACK t GROUP ? UPTO OFFSET 1", []),
        ("ACK t GROUP $0 UPTO OFFSET 1", ["g"]),
        ("ACK t GROUP $99999999999999999999 UPTO OFFSET 1", ["g"]),
        ("ACK t GROUP 'g' UPTO OFFSET 1", ["g"]),
        ("ACK t GROUP ? UPTO OFFSET 1", [1]),
        ("ACK t GROUP 'g' UPTO OFFSET ?", [True]),
        ("ACK t GROUP 'g' UPTO OFFSET ?", [1.0]),
        ("ACK t GROUP 'g' UPTO OFFSET ?", [1 << 64]),
        ("SHOW TOPICS", list(range(2000))),
    ):
        with pytest.raises(InvalidRequest):
            parse(text, params)


def test_statements_are_values() -> None:
    for text, statement in STATEMENTS:
        assert hash(parse(text)) == hash(statement)
        assert msgspec.structs.replace(statement) == statement
