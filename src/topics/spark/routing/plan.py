"""The plan of a routing query: from the records of a change topic to messages, in Spark SQL without a shuffle.

    event     parse the row, or the record where its row cannot be cut out, as a VARIANT; take out the columns that conditions read
    routes    the numbers of the routes that match, and codes for what could not be evaluated (`codes.py`)
    payload   `full` and `key` cut out of the event's own text, so that every byte is that of the source
    message   one row for each matching route, with its meta and partition

Routes of the form `column = constant` are found by one lookup in a hash table that is a literal of the plan. All other
conditions are evaluated for each change of their operation.

A text is cut out of the event only where it is proved to be the right one: the event is one line of the form that the server
writes, and its rows have no nested objects (`_FLAT_EVENT`), or its top-level names are the known ones and the names that
enclose the row occur once. Anything else, and `diff`, is left to Python in the sink (`payloads.py`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.types import BooleanType, DecimalType, StringType

from topics.client.values import RouteInfo
from topics.model.partitioning import hashed_partition
from topics.model.tables.change import change_topic
from topics.spark.pipeline.progress import observe_records
from topics.spark.routing import codes, conditions
from topics.spark.routing.conditions import Columns, Compiled, Equality, Path
from topics.spark.routing.targets import Target, Targets
from topics.sql.tokens import SqlError

OPS = ("insert", "update", "delete")
# Above this number of conditions Spark takes longer to compile Java for them than to interpret them.
MAX_COMPILED_CONDITIONS = 200
# The average number of constants that share a place of the hash table.
BUCKET_ENTRIES = 4

_FULL, _KEY, _NAMED_KEY, _IN_PYTHON = range(4)
# An event as the server writes it, whose rows hold no nested objects and no braces in texts. Groups: key, before, after.
_FLAT_EVENT = (
    r'^\{"op":"[a-z]+","ts":-?[0-9]+,"key":(\{[^{}]*\}),"before":(null|\{[^{}]*\}),'
    r'"after":(null|\{[^{}]*\}),"source":(?:null|\{[^{}]*\})\}$'
)
# A key of one column whose text is its canonical form, which is what is hashed.
_PLAIN_KEY = r'^\{"[^"\\]*":(?:0|-?[1-9][0-9]{0,17}|"[^"\\]*")\}$'
_NO_ROUTES = "CAST(array() AS ARRAY<INT>)"


def sql_text(text: str) -> str:
    """A literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sql_value(value: Any, schema: str) -> str:
    """A literal of any type. Spark parses it once, when it optimises the plan."""
    return f"from_json({sql_text(json.dumps(value))}, '{schema}')"


class RoutePlan:
    """The routes of one job as a Spark query. Routes that Spark refuses are left out and listed in `broken`."""

    def __init__(
        self,
        session: SparkSession,
        table: str,
        routes: Sequence[RouteInfo],
        columns: Mapping[str, str],
        broken: Mapping[int, str] | None = None,
    ) -> None:
        self.all_routes = list(routes)
        self.broken = dict(broken or {})
        self._session = session
        self._table = table
        self.declared = dict(columns)
        self.routes = self._usable([route for route in routes if route.version not in self.broken])
        self._columns = Columns(self.declared)
        # By condition, the numbers of its routes from 0.
        self._conditions: list[list[int]] = []
        self._generic: dict[tuple[str, str | None], int] = {}
        self._compiled: dict[str, list[tuple[int, Compiled | None]]] = {op: [] for op in OPS}
        self._lookups: dict[tuple[str, str, str], _Lookup] = {}
        self._places: list[str] = []
        self._keys: list[tuple[str, ...]] = []
        self._infos = [self._add(index, route) for index, route in enumerate(self.routes)]
        self._targets = [_target(route) for route in self.routes]

    @property
    def targets(self) -> Targets:
        return Targets(self._targets, self._conditions)

    @property
    def evaluated_conditions(self) -> int:
        """Conditions that are evaluated for each change of their operation. Those found by lookup are not among them."""
        return len(self._generic)

    @property
    def is_interpreted(self) -> bool:
        """Whether it has too many conditions for Spark to compile them."""
        return self.evaluated_conditions > MAX_COMPILED_CONDITIONS

    def only(self, routes: Sequence[RouteInfo]) -> "RoutePlan":
        return RoutePlan(self._session, self._table, routes, self.declared, self.broken)

    def messages(self, changes: DataFrame) -> DataFrame:
        """The rows of the sink, from rows of the source."""
        observed = observe_records(changes, F.col("ts"))
        return self._exploded(self._with_payloads(self._matched(self._events(observed))))

    # Routes

    def _add(self, index: int, route: RouteInfo) -> dict[str, Any]:
        self._add_condition(index, route)
        place = -1
        if route.partition_key_expr is not None and route.partitions > 1:
            compiled = self._columns.compiled(route.partition_key_expr, "text")
            text = compiled.text if compiled.bare else _as_text(self._session, self._columns, compiled)
            sql = f"CAST(pmod(xxhash64(COALESCE({text}, '')), {route.partitions}) AS INT)"
            if sql not in self._places:
                self._places.append(sql)
            place = self._places.index(sql)
        named = tuple(route.key_columns)
        mode = {"full": _FULL, "key": _NAMED_KEY if named else _KEY}.get(route.payload_mode.lower(), _IN_PYTHON)
        key = -1
        if mode == _NAMED_KEY:
            if named not in self._keys:
                self._keys.append(named)
            key = self._keys.index(named)
        meta = {"source_table": route.table_id, "op": route.op, "payload_mode": route.payload_mode}
        start = route.starts_at
        return {
            "meta": f'{route.version}",{json.dumps(meta)[1:-1]}',
            "mode": mode,
            "key": key,
            "partitions": route.partitions,
            "place": place,
            "epoch": None if start is None else start.epoch,
            "seqs": None if start is None else list(start.seqs),
        }

    def _add_condition(self, index: int, route: RouteInfo) -> None:
        op = route.op.lower()
        equality = None if route.filter_expr is None else self._columns.equality(route.filter_expr)
        if equality is not None:
            group = self._lookups.get((op, equality.raw, equality.typed))
            if group is None:
                self._conditions.append([])
                group = self._lookups[op, equality.raw, equality.typed] = _Lookup(equality, len(self._conditions) - 1)
            group.routes.setdefault(equality.key, []).append(index + 1)
            self._conditions[group.condition].append(index)
            return
        condition = self._generic.get((op, route.filter_expr))
        if condition is None:
            self._conditions.append([])
            condition = self._generic[op, route.filter_expr] = len(self._conditions) - 1
            compiled = None if route.filter_expr is None else self._columns.compiled(route.filter_expr, "boolean")
            self._compiled[op].append((condition, compiled))
        self._conditions[condition].append(index)

    def _usable(self, routes: Sequence[RouteInfo]) -> list[RouteInfo]:
        def problem(some: Sequence[RouteInfo]) -> str | None:
            try:
                return _check(self._session, some, self.declared)
            except (AnalysisException, PySparkException, SqlError) as error:
                return first_line(error)
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                return f"{type(error).__name__}: {error}"

        self.broken |= {route.version: why for route, why in broken_ones(routes, problem)}
        return [route for route in routes if route.version not in self.broken]

    # Steps of the query

    def _events(self, changes: DataFrame) -> DataFrame:
        before = _flat(2)
        event = changes.selectExpr(
            *("partition", "seq", "epoch", "tasks", "data"),
            f'CASE WHEN NOT startswith(data, \'{{"op":"delete"\') THEN {_flat(3)} '
            f"WHEN {before} = 'null' THEN {_flat(1)} ELSE {before} END AS flat",
        )
        event = event.selectExpr(
            *("partition", "seq", "epoch", "tasks", "data", "flat"),
            f"IF(flat <> '', {_parsed('flat')}, NULL) AS parsed_row",
            f"IF(flat <> '', NULL, {_parsed('data')}) AS v",
        )
        op = "IF(flat <> '', substring_index(substring(data, 8, 20), '\"', 1), try_variant_get(v, '$.op', 'string'))"
        ts = "IF(flat <> '', substring_index(substring_index(data, ',', 2), ':', -1), try_variant_get(v, '$.ts', 'string'))"
        event = event.selectExpr("*", f"{op} AS op", f"{ts} AS ts")
        key, before, after = [_at("v", name) for name in ("key", "before", "after")]
        event = event.selectExpr(
            *("partition", "seq", "epoch", "tasks", "data", "flat", "v", "op", "ts"),
            f"CASE WHEN flat <> '' THEN parsed_row WHEN op <> 'delete' THEN {after} "
            f"WHEN COALESCE(is_variant_null({before}), TRUE) THEN {key} ELSE {before} END AS image",
        )
        kind = (
            "CASE WHEN data IS NULL THEN 'lost' WHEN op = 'truncate' THEN op "
            "WHEN op IN ('insert', 'update', 'delete') AND (flat <> '' OR COALESCE(is_variant_null(image), TRUE) "
            "OR schema_of_variant(image) LIKE 'OBJECT<%') THEN op ELSE 'unreadable' END"
        )
        raws = [f"{_value_at('image', path)} AS r{index}" for index, path in enumerate(self._columns.paths)]
        return event.selectExpr("*", f"{kind} AS kind", *raws)

    def _matched(self, events: DataFrame) -> DataFrame:
        typed = events.selectExpr("*", *[f"{sql} AS {name}" for name, sql in self._columns.typed.items()])
        cases = []
        for op in OPS:
            evaluated = [self._code(condition, compiled) for condition, compiled in self._compiled[op]]
            parts = [f"array_remove(array({', '.join(evaluated)}), 0)"] if evaluated else []
            parts += [self._found(group) for (of, _, _), group in self._lookups.items() if of == op]
            if parts:
                cases.append(f"WHEN '{op}' THEN {parts[0] if len(parts) == 1 else 'concat(' + ', '.join(parts) + ')'}")
        cases += [
            f"WHEN 'truncate' THEN array({codes.TRUNCATE})",
            f"WHEN 'unreadable' THEN array({codes.UNREADABLE})",
            f"WHEN 'lost' THEN array({codes.LOST})",
        ]
        places = f"array({', '.join(self._places)})" if self._places else "CAST(NULL AS ARRAY<INT>)"
        routes = self._expanded(f"CASE kind {' '.join(cases)} END")
        return typed.selectExpr(
            *("partition", "seq", "epoch", "tasks", "data", "op", "ts", "v", "image", "flat"),
            f"{routes} AS routes",
            f"{places} AS places",
        )

    def _code(self, condition: int, compiled: Compiled | None) -> str:
        """SQL: the number of the route (or of the shared condition) for a match, 0 for none, a code when it has no result."""
        routes = self._conditions[condition]
        number = routes[0] + 1 if len(routes) == 1 else len(self.routes) + 1 + condition
        if compiled is None:
            return str(number)
        paths = [self._columns.paths[int(raw[1:])] for raw in dict.fromkeys([raw for raw, _ in compiled.reads])]
        cases = f"WHEN {conditions.trouble(compiled)} THEN -{condition + 1}"
        if paths:
            missing = " OR ".join([_is_missing("image", path) for path in paths])
            cases = f"WHEN {missing} THEN -{condition + 1 + codes.MISSING} {cases}"
        # Multiplied, so that the condition is evaluated once.
        return f"COALESCE(CAST(({compiled.text}) AS INT) * {number}, CASE {cases} ELSE 0 END)"

    def _found(self, group: "_Lookup") -> str:
        """SQL: the routes whose constant is the value of the column."""
        raw, typed = group.equality.raw, group.equality.typed
        key = raw if raw == typed else f"CAST({typed} AS STRING)"
        missing = _is_missing("image", self._columns.paths[int(raw[1:])])
        return (
            f"CASE WHEN {typed} IS NOT NULL THEN COALESCE({group.lookup(key)}, {_NO_ROUTES}) "
            f"WHEN {missing} THEN array(-{group.condition + 1 + codes.MISSING}) "
            f"WHEN {raw} IS NOT NULL THEN array(-{group.condition + 1}) ELSE {_NO_ROUTES} END"
        )

    def _expanded(self, routes: str) -> str:
        """SQL: the numbers with those of shared conditions replaced by the numbers of their routes."""
        if not any([len(self._conditions[condition]) > 1 for condition in self._generic.values()]):
            return routes
        of_condition = sql_value([[route + 1 for route in each] for each in self._conditions], "ARRAY<ARRAY<INT>>")
        first = len(self.routes)
        each = f"IF(n > {first}, element_at({of_condition}, n - {first}), array(n))"
        return f"flatten(transform({routes}, n -> {each}))"

    def _with_payloads(self, matched: DataFrame) -> DataFrame:
        full = "CAST(NULL AS STRING)"
        if any([info["mode"] == _FULL for info in self._infos]):
            full = f"CASE WHEN flat <> '' THEN flat WHEN op <> 'delete' THEN {_enclosed('after', 'source')} END"
        named = ", ".join([_named_key(columns) for columns in self._keys])
        keys = f"array({named})" if named else "CAST(NULL AS ARRAY<STRING>)"
        # Not for changes that no route is for.
        is_routed = "array_max(routes) > 0"
        return matched.selectExpr(
            *("partition", "seq", "epoch", "tasks", "data", "ts", "routes", "places"),
            *[f"IF({is_routed}, {sql}, NULL) AS {name}" for name, sql in (("full", full), ("keys", keys))],
        )

    def _key(self) -> str:
        """SQL: the key of the event as it is written there, for the messages that need it."""
        uses = []
        if any([info["mode"] == _KEY for info in self._infos]):
            uses.append(f"info.mode = {_KEY}")
        if any([info["partitions"] > 1 and info["place"] < 0 for info in self._infos]):
            uses.append("(info.partitions > 1 AND info.place < 0)")
        if not uses:
            return "CAST(NULL AS STRING)"
        return f"IF({' OR '.join(uses)}, COALESCE(nullif({_flat(1)}, ''), {_enclosed('key', 'before')}), NULL)"

    def _exploded(self, events: DataFrame) -> DataFrame:
        schema = (
            "ARRAY<STRUCT<meta: STRING, mode: INT, key: INT, partitions: INT, place: INT, epoch: BIGINT, "
            "seqs: ARRAY<BIGINT>>>"
        )
        infos = sql_value(self._infos, schema)
        # With `explode` Spark adds a filter on the size of `routes`, moves it down to the source, and so evaluates all conditions
        # twice: the second time with every column replaced by its whole expression, which takes minutes to plan.
        rows = events.selectExpr("*", "explode_outer(routes) AS route").drop("routes").where("route IS NOT NULL")
        rows = rows.selectExpr("*", f"IF(route > 0, element_at({infos}, route), NULL) AS info")
        # A route starts with the changes that were made after it was created.
        rows = rows.where(
            "route < 0 OR info.epoch IS NULL OR epoch > info.epoch OR (epoch = info.epoch AND "
            "seq >= COALESCE(try_element_at(info.seqs, partition + 1), 1))"
        )
        rows = rows.selectExpr("*", f"{self._key()} AS key")
        data = (
            f"CASE info.mode WHEN {_FULL} THEN full WHEN {_KEY} THEN IF(key = '{{}}', NULL, key) "
            f"WHEN {_NAMED_KEY} THEN element_at(keys, info.key + 1) END"
        )
        place = (
            "CASE WHEN route < 0 OR info.partitions = 1 THEN 0 "
            "WHEN info.place >= 0 THEN element_at(places, info.place + 1) "
            f"WHEN key RLIKE r'{_PLAIN_KEY}' THEN CAST(pmod(xxhash64(key), info.partitions) AS INT) END"
        )
        table = json.dumps(self._table)[1:-1]
        topic = json.dumps(change_topic(self._table))
        ts = "IF(ts RLIKE '^-?[0-9]+$', ts, 'null')"
        message_id = sql_text('{"message_id":"' + table + ":")
        source = sql_text(f',"src_topic":{topic},"src_partition":')
        meta = (
            f"concat({message_id}, epoch, ':', partition, ':', seq, ':', info.meta, "
            f"',\"ts\":', COALESCE({ts}, 'null'), {source}, partition, ',\"src_seq\":', seq, '}}')"
        )
        rows = rows.selectExpr(
            *("route", "partition", "seq", "epoch", "tasks", "data AS event"),
            f"{place} AS place",
            f"{data} AS payload",
            f"IF(route > 0, {meta}, NULL) AS meta",
        )
        in_python = "route > 0 AND (payload IS NULL OR place IS NULL)"
        return rows.selectExpr(
            "CAST(route AS INT) AS route",
            "place AS partition",
            "payload AS data",
            "meta",
            f"IF({in_python}, event, NULL) AS event",
            "partition AS src_partition",
            "seq AS src_seq",
            "epoch",
            "tasks",
        )


class _Lookup:
    """Routes of the form `column = constant` over one column: the constant decides which of them match."""

    def __init__(self, equality: Equality, condition: int) -> None:
        self.equality = equality
        # The condition that a value counts for which cannot be read as the type of the column.
        self.condition = condition
        self.routes: dict[str, list[int]] = {}

    def lookup(self, key: str) -> str:
        """SQL: the routes for the key, NULL when there are none."""
        size = max(1, len(self.routes) // BUCKET_ENTRIES)
        if size == 1:
            return f"element_at({sql_value(self.routes, 'MAP<STRING, ARRAY<INT>>')}, {key})"
        buckets: list[dict[str, list[int]]] = [{} for _ in range(size)]
        for text, routes in self.routes.items():
            buckets[hashed_partition(text, size)][text] = routes
        table = sql_value(buckets, "ARRAY<MAP<STRING, ARRAY<INT>>>")
        return f"element_at(element_at({table}, CAST(pmod(xxhash64({key}), {size}) AS INT) + 1), {key})"


def broken_ones(
    routes: Sequence[RouteInfo], problem: Callable[[Sequence[RouteInfo]], str | None]
) -> list[tuple[RouteInfo, str]]:
    """The routes that have a problem by themselves, found by halving: one check when there is none."""
    why = problem(routes) if routes else None
    if why is None:
        return []
    if len(routes) == 1:
        return [(routes[0], why)]
    middle = len(routes) // 2
    return broken_ones(routes[:middle], problem) + broken_ones(routes[middle:], problem)


def first_line(error: BaseException) -> str:
    """The message of an error of Spark, without its plans and stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:500]


def _target(route: RouteInfo) -> Target:
    return Target(
        route.topic_id,
        route.payload_mode.lower(),
        tuple(route.key_columns),
        route.partitions,
        route.version,
        route.starts_at,
    )


def _at(value: str, name: str) -> str:
    """SQL: a field of an object, as a VARIANT; NULL when it is not there."""
    quote = "'" if "'" not in name else '"'
    if name and quote not in name and "?" not in name:
        return f"try_variant_get({value}, {sql_text(f'$[{quote}{name}{quote}]')}, 'variant')"
    # A name that no path can hold.
    return f"element_at(from_json(CAST({value} AS STRING), 'MAP<STRING, VARIANT>'), {sql_text(name)})"


def _field(value: str, path: Path) -> str:
    for name in path:
        value = _at(value, name)
    return value


def _value_at(value: str, path: Path) -> str:
    """SQL: a field as a text. Spark reads it without making a VARIANT of it first."""
    found = _field(value, path)
    direct = found.removesuffix(", 'variant')")
    return f"CAST({found} AS STRING)" if direct == found else f"{direct}, 'string')"


def _parsed(text: str) -> str:
    """SQL: the text as a VARIANT, NULL when it is no JSON."""
    # A lone surrogate is no character that Spark can hold; conditions see the replacement character in its place.
    covered = f"regexp_replace({text}, r'(?i)\\\\ud[89a-f][0-9a-f]{{2}}', r'\\\\ufffd')"
    return f"COALESCE(try_parse_json({text}), IF(contains(lower({text}), r'\\ud'), try_parse_json({covered}), NULL))"


def _flat(group: int) -> str:
    """SQL: a value of an event of the form that the server writes, '' for any other event. Groups: key, before, after."""
    return f"regexp_extract(data, r'{_FLAT_EVENT}', {group})"


def _is_missing(value: str, path: Path) -> str:
    return f"({_field(value, path)} IS NULL)"


def _enclosed(name: str, following: str) -> str:
    """SQL: the text of a top-level value of the event; NULL where it is not proved to be that.

    The top-level names are the known ones in their order, and both names occur once in the whole text: so the text between
    them is the value.
    """
    first, last = sql_text(f',"{name}":'), sql_text(f',"{following}":')

    def once(separator: str, length: int) -> str:
        before, behind = f"substring_index(data, {separator}, 1)", f"substring_index(data, {separator}, -1)"
        return f"length({before}) + {length} + length({behind}) = length(data)"

    known = "json_object_keys(data) = array('op', 'ts', 'key', 'before', 'after', 'source')"
    proved = f"{known} AND {once(first, len(name) + 4)} AND {once(last, len(following) + 4)}"
    return f"IF({proved}, substring_index(substring_index(data, {first}, -1), {last}, 1), NULL)"


def _named_key(columns: tuple[str, ...]) -> str:
    """SQL: the payload with these columns of the row; NULL where its texts may have another form in the event.

    Whole numbers, booleans, and texts of events without a backslash have only one form.
    """
    parts = []
    for index, name in enumerate(columns):
        key = f"IF(flat <> '', {_parsed(_flat(1))}, {_at('v', 'key')})"
        value = f"COALESCE({_at('image', name)}, {_at(key, name)})"
        text = f"CAST({value} AS STRING)"
        start = ("{" if index == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        parts.append(sql_text(start))
        parts.append(
            f"CASE schema_of_variant({value}) WHEN 'BIGINT' THEN {text} WHEN 'BOOLEAN' THEN {text} "
            f"WHEN 'STRING' THEN concat('\"', {text}, '\"') END"
        )
    return f"IF(contains(data, r'\\'), NULL, concat({', '.join(parts)}, '}}'))"


def _check(session: SparkSession, routes: Sequence[RouteInfo], columns: Mapping[str, str]) -> str | None:
    """Whether Spark accepts the expressions of these routes. Raises Spark's errors, or returns what else is wrong."""
    found = Columns(columns)
    texts: list[tuple[str, bool]] = []
    for route in routes:
        if route.filter_expr is not None and found.equality(route.filter_expr) is None:
            texts.append((found.compiled(route.filter_expr, "boolean").text, True))
        if route.partition_key_expr is not None:
            texts.append((found.compiled(route.partition_key_expr, "text").text, False))
    if not texts:
        return None
    schema = _analysed(session, found, [text for text, _ in texts])
    for (text, is_filter), field in zip(texts, schema, strict=True):
        if is_filter and not isinstance(field.dataType, BooleanType):
            return f"WHERE ({text}) is {field.dataType.simpleString()}, not true or false"
    return None


def _analysed(session: SparkSession, columns: Columns, texts: list[str]) -> Any:
    raw = session.range(0).selectExpr(*[f"'' AS r{index}" for index in range(len(columns.paths))], "1 AS one")
    typed = raw.selectExpr("*", *[f"{sql} AS {name}" for name, sql in columns.typed.items()])
    return typed.selectExpr(*[f"({text}) AS x{index}" for index, text in enumerate(texts)]).schema


def _as_text(session: SparkSession, columns: Columns, compiled: Compiled) -> str:
    """The expression as the text that is hashed: numbers without trailing zeros, 5 and not 5.000."""
    (field,) = _analysed(session, columns, [compiled.text])
    if isinstance(field.dataType, StringType):
        return f"({compiled.text})"
    value = f"({compiled.text})"
    if isinstance(field.dataType, DecimalType) and field.dataType.scale > 0:
        # Spark writes a decimal zero as 0E-18.
        whole = f"CAST(CAST({value} AS DECIMAL(38, 0)) AS STRING)"
        return f"IF({value} = FLOOR({value}), {whole}, RTRIM('0', CAST({value} AS STRING)))"
    return f"CAST({value} AS STRING)"
