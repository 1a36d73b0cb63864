"""Unusual statements: valid ones, mutated. The same seed gives the same statements."""

import random
from collections.abc import Iterator

SEEDS = [
    "CREATE TOPIC IF NOT EXISTS app.t PARTITIONS 3 WITH (alias = 'x', retention_seconds = 5, durability = 'fsync')",
    "CREATE TOPIC t WITH (type = 'queue', retention_max_bytes = 100, discard = 'reject', priority = -5, durable = true)",
    "DROP TOPIC IF EXISTS app.t",
    "CLEAR TOPIC t",
    "ALTER TOPIC t ADD SOURCE chat.messages ON INSERT WHERE (a = 1 AND b IN (1, 2)) PARTITION BY (c) WITH (payload = 'key')",
    "ALTER TOPIC t ADD SOURCE a.b ON UPDATE WHERE (coalesce(x, lower(y)) LIKE 'it''s%' OR z BETWEEN 1 AND 2.5e3)",
    "ALTER TOPIC t ADD SOURCE a.b ON DELETE WHERE (CASE WHEN `a b` THEN CAST(c AS INT) ELSE -1 END <=> d::date)",
    "ALTER TOPIC t DROP SOURCE chat.messages ON INSERT WHERE (a = 1)",
    "ALTER TOPIC t SET RETENTION WITH (retention_seconds = 60)",
    "ALTER TOPIC t CLEAR RETENTION",
    "ALTER TOPIC t SET ARCHIVE WITH (uri = 's3://lake/t', freshness_ms = 1000, compact_interval_ms = 0, vacuum_hours = 24)",
    "ALTER TOPIC t CLEAR ARCHIVE",
    "ALTER TABLE c.m SET MATERIALIZED WITH (uri = 's3://lake/m', mode = 'scd2')",
    "ALTER TABLE c.m CLEAR MATERIALIZED",
    "ALTER TOPIC t SET ALIAS 'other'",
    "ALTER TOPIC t CLEAR ALIAS",
    "CONSUME FROM t GROUP 'g' PARTITION 0 FROM OFFSET 3 LIMIT 10",
    "CONSUME FROM app.t FROM LATEST;",
    "ACK t GROUP 'g' PARTITION 0 UPTO OFFSET 2",
    "RESET CONSUMER GROUP 'g' ON t PARTITION 0 TO TIMESTAMP '2026-01-01T00:00:00Z' DRY RUN",
    'RESET CONSUMER GROUP "g" ON t TO EARLIEST',
    "DROP CONSUMER GROUP IF EXISTS 'g' ON t",
    "SHOW TOPICS",
    "SHOW CONSUMER GROUPS ON t",
    "DESCRIBE TOPIC t",
    "SELECT name, count(*) FROM system.topics t JOIN system.topic_offsets o USING (topic_id) WHERE name = ? GROUP BY 1 LIMIT 5",
    "WITH x AS (SELECT * FROM system.settings) SELECT * FROM x -- comment\n;",
]
PIECES = [
    "", " ", "\n", "\t", ";", ";;", "(", ")", "((((", "))))", "'", "''", '"', "`", "--", "/*", "*/", "/* x */", "\0", "\x1f",
    "\u00a0", "\u200b", "\u202e", "ſ", "İ", "ß", "Ω", "\U0001f600", "\ud7ff", "\\", "\\'", "$", "$1", "$99", "?", "??", "0", "-1", "1.5",
    "1e999", "99999999999999999999999", "18446744073709551615", "18446744073709551616", ".", "..", ",", "=", "==", "<=>", "||",
    "::", "@", "#", "%", "NULL", "TRUE", "SELECT", "FROM", "WHERE", "NOT", "IN", "EXISTS", "UNION", "INTERVAL 1 DAY", "x -> x",
    "reflect('a')", "java_method", "a[0]", "{}", "[]", "count(*)", "OVER ()", "system", "system.topics", "main.topics", "WITH (",
    "PARTITION", "PARTITIONS", "GROUP", "OFFSET", "LIMIT", "TO", "ON", "SOURCE", "ALIAS", "ARCHIVE", "TABLE", "MATERIALIZED", "uri", "'" + "x" * 300 + "'", "NOT " * 60,
    "(" * 120, "a." * 40, "t", "g", "app.t", "CAST(a AS ARRAY<INT>)", "X'1F'", "r'x'", "1L", "DATE '2020-01-01'", "LIKE ANY ('a')",
]  # fmt: skip
VALUES: list[str | int | float | bool | None] = [
    "",
    "x",
    "it's",
    0,
    1,
    -1,
    2**63,
    2**64,
    1.5,
    True,
    None,
    "\0",
    "ü" * 300,
]


def statements(seed: int, count: int) -> Iterator[tuple[str, list[str | int | float | bool | None]]]:
    chance = random.Random(seed)
    for _ in range(count):
        words = chance.choice(SEEDS).split(" ")
        for _ in range(chance.choice([0, 1, 1, 2, 3, 8])):
            at = chance.randrange(len(words) + 1)
            match chance.randrange(6):
                case 0:
                    words.insert(at, chance.choice(PIECES))
                case 1:
                    words[at : at + 1] = [chance.choice(PIECES)]
                case 2:
                    del words[at : at + chance.randint(1, 3)]
                case 3:
                    words[at:at] = chance.choice(SEEDS).split(" ")[chance.randrange(4) :][: chance.randint(1, 6)]
                case 4:
                    words[at : at + 1] = ["".join(chance.sample(PIECES, 2))]
                case _:
                    chance.shuffle(words)
        text = chance.choice([" ", " ", " ", "", "\n", "  "]).join(words)
        if chance.random() < 0.1 and text:
            cut = chance.randrange(len(text))
            text = text[:cut] + chance.choice(PIECES) + text[cut + chance.randrange(3) :]
        yield text, [chance.choice(VALUES) for _ in range(chance.choice([0, 0, 1, 2]))]
