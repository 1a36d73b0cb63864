"""Conditions against another database: the same expressions over the same rows, in Spark and in DuckDB."""

import json
import random
from typing import Any

import pytest

from topics.client.values import RouteInfo
from topics.sql.dialect import parse, write

pytest.importorskip("pyspark")

from topics.spark.routing.conditions import Columns, declared_type
from topics.spark.routing.plan import MAX_COMPILED_CONDITIONS, RoutePlan

ROWS = [
    {"n": n, "m": m, "t": t, "u": u, "b": b}
    for n, m, t, u, b in [
        (1, 2, "a", "b", True),
        (2.5, -1, "b", "a", False),
        (-3, 2.5, "", "é", True),
        (0, 0, "it's", "10", None),
        (10, 9, "10", "9", False),
        (None, 1, None, "a", True),
        (7, None, "z", None, False),
        (None, None, None, None, None),
        (123456789012, 0.25, "Zürich", "zürich", True),
        (100, 99.75, "%", "_", False),
    ]
]

TEXTS = ["'a'", "'10'", "'é'", "''"]
PATTERNS = ["'%a%'", "'1_'", "'Z%'", "'it''s'"]


def expression(chance: random.Random, depth: int) -> str:
    """A condition over numbers n and m, texts t and u, and the boolean b."""
    kind = chance.randrange(12 if depth else 7)
    number, text = _number(chance, depth), _text(chance, depth)
    if kind == 0:
        return f"{number} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {chance.choice(['0', '2.5', '9', '-3'])}"
    if kind == 1:
        return f"{text} {chance.choice(['=', '<>', '<', '>='])} {chance.choice(TEXTS)}"
    if kind == 2:
        return chance.choice(["b", "b = true", "b = false", "b IS NULL", "NOT b"])
    if kind == 3:
        return f"{chance.choice(['n', 't', 'u', 'm'])} IS {chance.choice(['', 'NOT '])}NULL"
    if kind == 4:
        return f"n {chance.choice(['', 'NOT '])}IN (1, 2.5, 10{chance.choice(['', ', NULL'])})"
    if kind == 5:
        return f"m {chance.choice(['', 'NOT '])}BETWEEN 0 AND {chance.choice(['2', '99.75'])}"
    if kind == 6:
        return f"t {chance.choice(['', 'NOT '])}LIKE {chance.choice(PATTERNS)}"
    if kind == 7:
        return f"NOT ({expression(chance, depth - 1)})"
    if kind in (8, 9):
        joined = chance.choice(["AND", "OR"])
        return f"({expression(chance, depth - 1)}) {joined} ({expression(chance, depth - 1)})"
    if kind == 10:
        return f"CASE WHEN {expression(chance, depth - 1)} THEN n ELSE m END > {chance.choice(['0', '5'])}"
    return f"COALESCE({expression(chance, depth - 1)}, {chance.choice(['true', 'false'])})"


def _number(chance: random.Random, depth: int) -> str:
    return chance.choice(["n", "m", "n + m", "n - 1", "m * 2", "-n", "ABS(m)", "COALESCE(n, 0)", "LENGTH(t)"])


def _text(chance: random.Random, depth: int) -> str:
    return chance.choice(["t", "u", "t || u", "LOWER(t)", "UPPER(u)", "CONCAT(t, 'x')", "COALESCE(t, u)", "TRIM(u)"])


def matches(
    spark: Any, rows: list[dict[str, Any]], texts: list[str], declared: dict[str, str] | None = None
) -> list[dict[int, bool]]:
    """Of each row the conditions that it matches, by number, and, as False, those that could not be evaluated."""
    plan, messages = planned(spark, rows, texts, declared)
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if plan.is_interpreted else "FALLBACK")
    try:
        found = messages.select("route", "src_seq").collect()
    finally:
        spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    results: list[dict[int, bool]] = [{} for _ in rows]
    for row in found:
        routes_of = [row.route - 1] if row.route > 0 else plan.targets.conditions[-row.route - 1]
        results[row.src_seq] |= dict.fromkeys(routes_of, row.route > 0)
    return results


def planned(
    spark: Any, rows: list[dict[str, Any]], texts: list[str], declared: dict[str, str] | None = None
) -> tuple[RoutePlan, Any]:
    """A route for each condition, and the messages that they make of the rows."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    routes = [RouteInfo("t", 1, "x", "Insert", "Key", index, normal(text)) for index, text in enumerate(texts)]
    plan = RoutePlan(spark, "x", routes, declared or {})
    assert plan.broken == {}
    data = [json.dumps({"op": "insert", "key": {"id": 1}, "after": row}) for row in rows]
    changes = spark.createDataFrame(
        [(0, seq, 1, 1, text, None) for seq, text in enumerate(data)],
        "partition INT, seq BIGINT, epoch BIGINT, tasks INT, data STRING, ts TIMESTAMP",
    )
    return plan, plan.messages(changes)


def normal(text: str) -> str:
    return write(parse(f"SELECT ({text}\n)")[0].expressions[0].this)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("count", [60, MAX_COMPILED_CONDITIONS + 100], ids=["compiled", "interpreted"])
def test_spark_and_another_database_agree_on_generated_conditions(spark: Any, count: int) -> None:
    chance = random.Random(count)
    texts = [expression(chance, 2) for _ in range(count)]
    ours = [{index for index, hit in each.items() if hit} for each in matches(spark, ROWS, texts)]

    # Only here: loading it takes its time, and at the end of the process it complains.
    import duckdb

    database = duckdb.connect()
    database.execute("CREATE TABLE r (k INT, n DECIMAL(30, 6), m DECIMAL(30, 6), t VARCHAR, u VARCHAR, b BOOLEAN)")
    database.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?)", [[k, *row.values()] for k, row in enumerate(ROWS)])
    theirs: list[set[int]] = [set() for _ in ROWS]
    for index, text in enumerate(texts):
        # Spark's || and CONCAT are NULL with a NULL; DuckDB's CONCAT is not.
        asked = text.replace("CONCAT(t, 'x')", "(t || 'x')")
        for (k,) in database.execute(f"SELECT k FROM r WHERE {asked}").fetchall():
            theirs[k].add(index)
    database.close()
    wrong = [
        (texts[index], ROWS[k], "Spark" if index in ours[k] else "DuckDB")
        for k in range(len(ROWS))
        for index in ours[k] ^ theirs[k]
    ]
    assert wrong == []
    assert sum(map(len, ours)) > count, "conditions that never match prove nothing"


MOST = 2**63 - 1
# Right of the first row, which has n = 7 and d = 1.5; of the second, with the most or least a BIGINT holds, a number that is none.
OVERFLOWS = [
    "n + 1 > 0",
    "n - -1 > 0",
    "n * 2 > 0",
    "(n + 1) + 1 - 1 > 0",
    "2147483647 + n * 2 > 0",
    "-(-n - 2) > 0",
    "ABS(-n - 1) + n > 0",
    "CAST(n AS INT) = 7",
    "CAST(n + 0 AS SMALLINT) = 7",
    "CAST(d * n AS INT) = 10",
    "ROUND(n, -1) = 10",
    "LENGTH(CAST(n * 10 AS STRING)) = 2",
    "COALESCE(n, 1) * 2 = 14",
    "CASE WHEN n > 1 THEN n ELSE 1 END * 2 = 14",
]
FITTING = [
    "-n < 0",
    "ABS(n) > 0",
    "n + 0 = n",
    "ROUND(n, 0) = n",
    "d + 0.5 > 1",
    "-d < 0",
    "day + 1 > day",
    "w + 1 > 1",
]


@pytest.mark.spark
@pytest.mark.slow
def test_a_condition_is_in_the_plan_once(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark would otherwise evaluate it again in a filter below; with many columns that takes minutes to plan."""
    _, messages = planned(spark, ROWS, ["t LIKE 'needle%' AND n > 1", "u LIKE '%haystack%'"])
    spark.conf.set("spark.sql.debug.maxToStringFields", "1000")
    try:
        messages.explain()
    finally:
        spark.conf.unset("spark.sql.debug.maxToStringFields")
    printed = capsys.readouterr().out
    assert (printed.count("needle"), printed.count("haystack")) == (1, 1), printed


@pytest.mark.spark
@pytest.mark.slow
def test_overflow_is_counted_and_does_not_match(spark: Any) -> None:
    rows = [{"n": 7, "d": 1.5, "day": "2026-01-01", "w": "5"}, {"n": MOST, "d": 1.5, "day": "2026-01-01", "w": "5"}]
    declared = {"n": "bigint", "d": "double", "day": "date", "w": "text"}
    texts = [*OVERFLOWS, *FITTING]
    fits, too_large = [
        {texts[index]: hit for index, hit in each.items()} for each in matches(spark, rows, texts, declared)
    ]
    assert fits == dict.fromkeys(texts, True)
    assert too_large == dict.fromkeys(OVERFLOWS, False) | dict.fromkeys(FITTING, True)


@pytest.mark.spark
@pytest.mark.slow
def test_the_least_whole_number_has_no_opposite(spark: Any) -> None:
    rows = [{"n": -MOST}, {"n": -MOST - 1}]
    declared = {"n": "bigint"}
    found = matches(spark, rows, ["-n > 0", "ABS(n) > 0"], declared)
    assert found == [{0: True, 1: True}, {0: False, 1: False}]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("bigint", ("number", "BIGINT")),
        ("INTEGER", ("number", "BIGINT")),
        ("numeric(10, 2)", ("number", "DECIMAL(10, 2)")),
        ("numeric(99,2)", None),
        ("double precision", ("number", "DOUBLE")),
        ("boolean", ("boolean", "BOOLEAN")),
        ("timestamp with time zone", ("time", "TIMESTAMP")),
        ("varchar(20)", ("text", "STRING")),
        ("geometry", None),
        ("", None),
    ],
)
def test_declared_types_are_known_or_ignored(declared: str, kind: tuple[str, str] | None) -> None:
    assert declared_type(declared) == kind


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("amount > 9.5", "`n_r0` > 9.5"),
        ("name = '10'", "`r0` = '10'"),
        ("is_visible = true", "`b_r0` = TRUE"),
        ("is_visible", "`b_r0`"),
        ("a = b", "`a_r0` = `a_r1`"),
        ("a = b AND a > 1", "`a_r0` = `a_r1` AND `n_r0` > 1"),
        ("a.b.c = 'x'", "`r0` = 'x'"),
        ("known > 5", "`d_r0` > 5"),
        ("COALESCE(x, 0) = y", "COALESCE(`n_r0`, 0) = `n_r1`"),
        ("CASE x WHEN 1 THEN y ELSE 'z' END = 'z'", "CASE `n_r0` WHEN 1 THEN `r1` ELSE 'z' END = 'z'"),
        ("SUBSTRING(s, n, 2) = 'ab'", "SUBSTRING(`r0`, `n_r1`, 2) = 'ab'"),
        ("x > 60 * 1000", "`n_r0` > TRY_MULTIPLY(60, 1000)"),
        ("known > -5", "`d_r0` > -5"),
        ("CAST(x AS INT) = 1", "CAST(`r0` AS INT) = 1"),
    ],
)
def test_untyped_column_takes_the_type_of_the_other_operand(text: str, written: str) -> None:
    assert Columns({"KNOWN": "bigint"}).compiled(normal(text), "boolean").text == written
