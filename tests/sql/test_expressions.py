"""Expressions of routes: what passes, the form it is kept in, and everything that must not pass."""

import pytest

from topics.sql.expressions import FUNCTIONS, MAX_NODES
from topics.sql.parser import parse
from topics.sql.statements import AddSource
from topics.sql.tokens import SqlError


def kept(where: str) -> str:
    statement = parse(f"ALTER TOPIC t ADD SOURCE a.b ON INSERT WHERE ({where})")
    assert isinstance(statement, AddSource)
    assert statement.filter_expr is not None
    return statement.filter_expr


@pytest.mark.parametrize(
    ("where", "normal"),
    [
        ("is_visible = true AND channel_id = 42", "`is_visible` = TRUE AND `channel_id` = 42"),
        ("a=1 or b<>2 and not c", "`a` = 1 OR `b` <> 2 AND NOT `c`"),
        ("(a or b) and c", "(`a` OR `b`) AND `c`"),
        ("name = 'it''s'", r"`name` = 'it\'s'"),
        ("a != 1 and a == 2", "`a` <> 1 AND `a` = 2"),
        ("`odd name` is not null", "NOT `odd name` IS NULL"),
        ("row.inner.field > 1.5", "`row`.`inner`.`field` > 1.5"),
        ("a in (1, 2, 'x')", "`a` IN (1, 2, 'x')"),
        ("a not in (1)", "NOT `a` IN (1)"),
        ("a between 1 and 2", "`a` BETWEEN 1 AND 2"),
        ("a like 'x%' and b ilike '%y'", "`a` LIKE 'x%' AND `b` ILIKE '%y'"),
        ("coalesce(a, lower(b), '') = concat(c, 'd')", "COALESCE(`a`, LOWER(`b`), '') = CONCAT(`c`, 'd')"),
        ("case when a then 1 else -1 end > 0", "CASE WHEN `a` THEN 1 ELSE -1 END > 0"),
        ("cast(a as bigint) % 2 = 0", "CAST(`a` AS BIGINT) % 2 = 0"),
        ("a::string = 'x'", "CAST(`a` AS STRING) = 'x'"),
        ("ts >= timestamp '2026-01-01 00:00:00'", "`ts` >= CAST('2026-01-01 00:00:00' AS TIMESTAMP)"),
        ("a /* why */ = -- because\n 1", "`a` = 1"),
        ("substring(a, 1, 2) = 'ab' and length(trim(b)) > 0", "SUBSTRING(`a`, 1, 2) = 'ab' AND LENGTH(TRIM(`b`)) > 0"),
        ("SELECT_ = 1", "`SELECT_` = 1"),
        ("ünicode = 1", None),
    ],
)  # fmt: skip
def test_an_expression_is_kept_in_normal_form(where: str, normal: str | None) -> None:
    if normal is None:
        with pytest.raises(SqlError):
            kept(where)
        return
    assert kept(where) == normal
    assert kept(normal.replace(r"\'", "''")) == normal


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_listed_function_can_be_used(name: str) -> None:
    arguments = {
        "IF": "a, b, c",
        "ROUND": "a, 1",
        "SUBSTRING": "a, 1, 2",
        "SUBSTR": "a, 1, 2",
        "LTRIM": "a",
        "RTRIM": "a",
    }
    two = {
        "CONCAT_WS",
        "CONTAINS",
        "ENDSWITH",
        "STARTSWITH",
        "GREATEST",
        "LEAST",
        "LEFT",
        "RIGHT",
        "NULLIF",
        "NVL",
        "IFNULL",
        "COALESCE",
        "CONCAT",
    }
    text = arguments.get(name, "a, b" if name in two else "a")
    assert "`a`" in kept(f"{name.lower()}({text}) IS NULL")


HARMFUL = [
    "reflect('java.lang.Runtime', 'getRuntime')", "java_method('java.lang.System', 'exit', 1)", "a = (select 1)", "a in (select b from c)",
    "exists (select 1)", "a b", "a = 1; drop table x", "a) or (1 = 1", "rand() > 0.5", "current_timestamp() > a", "uuid() = a", "input_file_name() = 'x'",
    "a rlike '(a+)+$'", "regexp_replace(a, 'x', 'y') = 'z'", "transform(a, x -> x)", "a[0] = 1", "interval 1 day > a", "count(*) > 1", "sum(a) > 1",
    "row_number() over () = 1", "a = \"x\"", "a = ?", "a = $1", "a = :x", "a = @x", "a = ${x}", r"a = 'x\'", r"a = 'x\\y'", "a = 'x\0y'", "cast(a as array<int>) is null",
    "cast(a as struct<b int>) is null", "cast(a as binary) is null", "a in ()", "a = x'1F'", "a -> 'b' = 1", "a = 1 limit 1", "a = 1 union select 1", "a, b", "*", "a.*", "",
    "a like any ('x')", "a = all (select 1)", "/*+ hint */ broadcast(a)", "a is distinct from", "not", "=", "(", "1 +", "a and", "a = b = ", "from_json(a, 'x') is null",
    "sleep(5) = 1", "load_file('/etc/passwd') = 1", "a = 1 -- ) or (1=1", "python_udf(a)", "try_cast(a as map<int,int>) is null", "a::variant = 1", "`a``b` = 1", "`` = 1",
    "max(a) = 1", "explode(a) = 1", "stack(2, a, b) = 1", "version() = 'x'", "current_user() = 'x'", "raise_error('x')", "assert_true(a)", "monotonically_increasing_id() = 1",
]  # fmt: skip


@pytest.mark.parametrize("where", HARMFUL)
def test_what_could_do_harm_or_is_no_expression_is_refused(where: str) -> None:
    with pytest.raises(SqlError):
        kept(where)


def test_length_depth_and_size_are_bounded() -> None:
    assert kept(" and ".join(["a"] * 100))
    for text in (
        " and ".join(["a"] * MAX_NODES),
        "(" * 40 + "a" + ")" * 40,
        "not " * 2000 + "a",
        "a = '" + "x" * 5000 + "'",
        "-" * 1000 + "a",
        "case when a then " * 200 + "1" + " end" * 200,
    ):
        with pytest.raises(SqlError):
            kept(text)


@pytest.mark.parametrize("text", ["(a, b)", "()", "(a desc)", "(count(a))", "a", "(*)"])
def test_a_partition_key_is_one_expression(text: str) -> None:
    with pytest.raises(SqlError):
        parse(f"ALTER TOPIC t ADD SOURCE a.b ON INSERT PARTITION BY {text}")


def test_a_partition_key_may_be_computed() -> None:
    statement = parse("ALTER TOPIC t ADD SOURCE a.b ON INSERT PARTITION BY (concat_ws(':', tenant, user_id))")
    assert isinstance(statement, AddSource)
    assert statement.partition_key_expr == "CONCAT_WS(':', `tenant`, `user_id`)"


@pytest.mark.parametrize(
    "key", ["", "a,", "a b", "a,,b", "a,a", "`a`", "1a", "a;b", ",".join([f"c{n}" for n in range(65)])]
)
def test_key_columns_are_plain_names(key: str) -> None:
    with pytest.raises(SqlError):
        parse(f"ALTER TOPIC t ADD SOURCE a.b ON INSERT WITH (key = '{key}')")
