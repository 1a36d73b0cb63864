"""Conditions: the expressions of routes as Spark SQL over rows whose columns may have no declared type.

A row of a change event is JSON. Every column that an expression names is taken out of it as a text (`r0`, `r1`, ...; NULL for null
and for a column that is not in the row), and gets its type here, in Spark:

- a column whose type the server knows (`topics table add --columns`) has that type;
- any other takes the type of the other operand, each time it is named: a number with a number (DECIMAL(38,18), so
  that no digit of an id is lost), a boolean where a condition is expected, a text with a text; two columns of unknown type
  compare as numbers when both are numbers and as texts otherwise.

Nothing else about the expression changes: Spark evaluates what the route holds, except that a whole number which does not
fit is NULL (`null_on_overflow`). A text that does not have the type it is read as is NULL, and `trouble` distinguishes a NULL result of
that kind from the NULL of a column.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, Inexact
from typing import Any

from msgspec import Struct

Path = tuple[str, ...]

_NUMBER = "DECIMAL(38, 18)"
_COMPARISONS = ("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "NullSafeEQ", "In", "Between")
_NUMERIC = ("Neg", "Add", "Sub", "Mul", "Div", "Mod", "Abs", "Ceil", "Floor", "Round", "Sign")
_TEXTUAL = ("Lower", "Upper", "Trim", "MD5", "Concat", "ConcatWs", "DPipe", "Substring", "Left", "Right")
_ABOUT_TEXT = ("Like", "ILike", "Contains", "StartsWith", "EndsWith")
_LOGICAL = ("And", "Or", "Not", "Is", *_ABOUT_TEXT, *_COMPARISONS)
# The functions of Spark that are NULL for a number which does not fit.
_OVERFLOWING = {"Add": "TRY_ADD", "Sub": "TRY_SUBTRACT", "Mul": "TRY_MULTIPLY"}
_WHOLE_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_CHOICES = ("Coalesce", "Greatest", "Least", "Nullif")
_KINDS_OF_TYPES = {"BOOLEAN": "boolean", "DATE": "time", "TIMESTAMP": "time", "TIMESTAMPTZ": "time"}
_KINDS_OF_TYPES |= {"TIMESTAMPNTZ": "time", "TEXT": "text", "VARCHAR": "text", "CHAR": "text"}
_DECLARED = (
    (r"tinyint|smallint|int|integer|bigint|long|short|byte|int[248]|(small|big)?serial", "number", "BIGINT"),
    (r"double( precision)?|float([48])?|real", "number", "DOUBLE"),
    (r"(?:decimal|numeric)\s*\(\s*(\d{1,2})\s*(?:,\s*(\d{1,2})\s*)?\)", "number", "DECIMAL"),
    (r"decimal|numeric|number", "number", _NUMBER),
    (r"bool(ean)?", "boolean", "BOOLEAN"),
    (r"date", "time", "DATE"),
    (r"timestamp(tz|_ltz|_ntz)?(\s*\(\d\))?( with(out)? time zone)?", "time", "TIMESTAMP"),
    (r"string|text|uuid|(var)?char(\s*\(\d+\))?|character( varying)?(\s*\(\d+\))?", "text", "STRING"),
)


class Compiled(Struct, frozen=True):
    """An expression over the columns of `Columns`."""

    text: str
    # The raw and the typed columns it reads, in pairs.
    reads: tuple[tuple[str, str], ...]
    # Whether it may be NULL although no column is NULL and nothing failed, because the expression contains NULL.
    may_be_null: bool
    # Whether it is a column and nothing else.
    bare: bool


class Equality(Struct, frozen=True):
    """A condition of the form `column = constant`: matches when the text of the typed column is `key`."""

    raw: str
    typed: str
    key: str


class Columns:
    """The columns that the expressions of a table's routes read: their place in a row and their type."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        self.paths: list[Path] = []
        # Name of the typed column -> what it is in Spark's SQL.
        self.typed: dict[str, str] = {}
        self._declared = {name.casefold(): (name, kind) for name, kind in declared.items()}

    def compiled(self, expression: str, expected: str) -> Compiled:
        """Compile an expression in normal form. `expected` is its type: "boolean" or "text". Raises SqlError."""
        from topics.sql.dialect import exp, parse, write
        from topics.sql.expressions import check_kept

        check_kept(expression)
        tree = parse(f"SELECT ({expression}\n)")[0].expressions[0]
        bare = _is_column(tree.this)
        typist = _Typist(self)
        typist.settle(tree, expected)
        overflows = [(node, checked) for node in tree.walk() if (checked := typist.null_on_overflow(node)) is not None]
        for leaf, name in typist.found:
            leaf.replace(exp.column(name, quoted=True))
        may_be_null = any(
            [
                isinstance(node, exp.Null | exp.Nullif)
                or (isinstance(node, exp.Case) and node.args.get("default") is None)
                or (isinstance(node, exp.If) and not isinstance(node.parent, exp.Case) and not node.args.get("false"))
                for node in tree.walk()
            ]
        )
        # The innermost first: the outer ones copy what is inside them.
        for node, checked in reversed(overflows):
            node.replace(checked(node))
        patterns = [
            node.expression
            for node in tree.find_all(exp.Like, exp.ILike)
            if not isinstance(_bare(node.expression), exp.Literal)
        ]
        # The innermost first: the outer ones copy what is inside them.
        for pattern in reversed(patterns):
            pattern.replace(_safe_pattern(pattern))
        return Compiled(write(tree.this), tuple(dict.fromkeys(typist.reads)), may_be_null, bare)

    def equality(self, expression: str) -> Equality | None:
        """The expression as an equality that can be looked up by the text of its constant; None for any other."""
        from topics.sql.dialect import parse
        from topics.sql.expressions import check_kept

        check_kept(expression)
        node = _bare(parse(f"SELECT ({expression}\n)")[0].expressions[0])
        if type(node).__name__ != "EQ":
            return None
        column, constant = _bare(node.this), _bare(node.expression)
        if not _is_column(column):
            column, constant = constant, column
        if not _is_column(column):
            return None
        declared = self.declared(_path(column))
        key: str | None = None
        if type(constant).__name__ == "Literal" and constant.is_string:
            kind, key = "text", (constant.this if declared is None or declared[1] == "STRING" else None)
        else:
            kind, key = "number", _number_key(constant, declared)
        return None if key is None else Equality(*self.column(_path(column), kind), key)

    def declared(self, path: Path) -> tuple[str, str] | None:
        """Kind and type of a column that the server knows the type of."""
        found = self._declared.get(path[0].casefold()) if len(path) == 1 else None
        return None if found is None else declared_type(found[1])

    def column(self, path: Path, kind: str) -> tuple[str, str]:
        """The names of the raw and the typed column for this place; adds them if they are new."""
        known = self._declared.get(path[0].casefold())
        if known is not None:
            # Names of columns are the same in any case, names in JSON are not.
            path = (known[0], *path[1:])
        if path not in self.paths:
            self.paths.append(path)
        raw = f"r{self.paths.index(path)}"
        declared = self.declared(path)
        name, sql = _typed(raw, kind) if declared is None else _cast(raw, declared[1])
        if name != raw:
            self.typed[name] = sql
        return raw, name


def declared_type(text: str) -> tuple[str, str] | None:
    """Kind and Spark type for the declared type of a column; None when the type is not known here."""
    for pattern, kind, sql in _DECLARED:
        found = re.fullmatch(pattern, text.strip().lower())
        if found is None:
            continue
        if sql == "DECIMAL":
            precision, scale = int(found[1]), int(found[2] or 0)
            return (kind, f"DECIMAL({precision}, {scale})") if 0 < precision <= 38 and scale <= precision else None
        return kind, sql
    return None


def trouble(compiled: Compiled) -> str:
    """SQL: true when a result that is NULL is so because something could not be evaluated."""
    wrong = [f"({raw} IS NOT NULL AND {typed} IS NULL)" for raw, typed in compiled.reads if raw != typed]
    if not compiled.may_be_null:
        # No column is NULL and the expression has no NULL: a cast, a division or an overflow gave it.
        raws = dict.fromkeys([raw for raw, _ in compiled.reads])
        wrong.append("(" + " AND ".join(["TRUE", *[f"{raw} IS NOT NULL" for raw in raws]]) + ")")
    return " OR ".join(wrong) or "FALSE"


def _typed(raw: str, kind: str) -> tuple[str, str]:
    number = f"CAST({raw} AS {_NUMBER})"
    if kind == "number":
        return f"n_{raw}", number
    if kind == "boolean":
        return f"b_{raw}", f"CAST({raw} AS BOOLEAN)"
    if kind == "any":
        # Structs compare field by field: numbers with numbers, texts with texts.
        fields = f"named_struct('n', {number}, 't', IF({number} IS NULL, {raw}, NULL))"
        return f"a_{raw}", f"IF({raw} IS NULL, NULL, {fields})"
    return raw, raw


def _cast(raw: str, sql: str) -> tuple[str, str]:
    if sql == "STRING":
        return raw, raw
    name = f"d_{raw}"
    if sql == "BIGINT":
        # 42.7 is no whole number; Spark would take it for 42.
        whole = f"CAST({raw} AS BIGINT)"
        return name, f"CASE WHEN {whole} = CAST({raw} AS {_NUMBER}) THEN {whole} END"
    return name, f"CAST({raw} AS {sql})"


def _safe_pattern(pattern: Any) -> Any:
    """The pattern of a LIKE, or NULL where Spark would fail: a backslash before anything but `%`, `_` and itself.

    One such row would fail the batch of the whole table. A pattern that is a literal of the route has no backslash.
    """
    from topics.sql.dialect import exp

    backslash = exp.func("CHR", exp.Literal.number(92), dialect="spark")
    rest = pattern.copy()
    # Pairs first: the last of an odd run of backslashes then belongs to the character behind it.
    for escaped in (backslash, exp.Literal.string("%"), exp.Literal.string("_")):
        pair = exp.Concat(expressions=[backslash.copy(), escaped.copy()])
        rest = exp.Anonymous(this="REPLACE", expressions=[rest, pair, exp.Literal.string("")])
    wrong = exp.Anonymous(this="CONTAINS", expressions=[rest, backslash])
    return exp.Case(ifs=[exp.If(this=exp.not_(wrong), true=pattern.copy())])


def _tried(node: Any) -> Any:
    from topics.sql.dialect import exp

    return exp.Anonymous(this=_OVERFLOWING[type(node).__name__], expressions=[node.this.copy(), node.expression.copy()])


def _tried_cast(node: Any) -> Any:
    return _try_cast(node.this.copy(), node.to.copy())


def _in_decimals(node: Any) -> Any:
    """Evaluate with decimals, which have space for one digit more."""
    from topics.sql.dialect import exp

    wide = node.copy()
    wide.set("this", exp.cast(node.this.copy(), "DECIMAL(20, 0)", dialect="spark"))
    return _try_cast(wide, exp.DataType.build("BIGINT", dialect="spark"))


def _try_cast(node: Any, to: Any) -> Any:
    from topics.sql.dialect import exp

    # To the parser every CAST of Spark is one that may fail; without the flag that is what is written.
    return exp.TryCast(this=node, to=to, safe=True)


def _name_of_type(cast: Any) -> str:
    kind = cast.to.this
    return str(kind.name if hasattr(kind, "name") else kind)


def _is_column(node: Any) -> bool:
    return type(node).__name__ in ("Column", "Dot")


def _path(node: Any) -> Path:
    if type(node).__name__ == "Dot":
        return (*_path(node.this), node.expression.name)
    return tuple([part.name for part in node.parts])


class _Typist:
    """Decides for every column of one expression as which type it is read."""

    def __init__(self, columns: Columns) -> None:
        self.found: list[tuple[Any, str]] = []
        self.reads: list[tuple[str, str]] = []
        self._columns = columns

    def kind(self, node: Any) -> str | None:
        """The type of the node by itself: number, text, boolean or time; None when that depends on its neighbours."""
        name = type(node).__name__
        if _is_column(node):
            known = self._columns.declared(_path(node))
            return None if known is None else known[0]
        if name == "Paren":
            return self.kind(node.this)
        if name == "Literal":
            return "text" if node.is_string else "number"
        if name in _NUMERIC or name == "Length":
            return "number"
        if name in _TEXTUAL:
            return "text"
        if name in _LOGICAL or name == "Boolean":
            return "boolean"
        if name in ("Cast", "TryCast"):
            return _KINDS_OF_TYPES.get(_name_of_type(node), "number")
        if name in _CHOICES:
            return self._first([node.this, node.args.get("expression"), *node.expressions])
        if name in ("Case", "If"):
            return self._first(_results(node))
        return None

    def null_on_overflow(self, node: Any) -> Callable[[Any], Any] | None:
        """The rewrite that makes the node NULL where Spark, without ANSI, gives a wrong whole number."""
        name = type(node).__name__
        if name in _OVERFLOWING:
            return _tried
        is_cast = name in ("Cast", "TryCast")
        if is_cast and _name_of_type(node) in _WHOLE_TYPES and self.kind(node.this) == "number":
            # Not of a text: a text that does not fit is NULL already.
            return _tried_cast
        if (
            name in ("Neg", "Abs", "Round")
            and type(_bare(node.this)).__name__ != "Literal"
            and self._is_whole(node.this)
        ):
            return _in_decimals
        return None

    def _is_whole(self, node: Any) -> bool:
        name = type(node).__name__
        if _is_column(node):
            return self._columns.declared(_path(node)) == ("number", "BIGINT")
        if name == "Literal":
            return bool(node.is_int)
        if name in ("Cast", "TryCast"):
            return _name_of_type(node) in _WHOLE_TYPES
        if name in ("Case", "If"):
            return all([self._is_whole(each) for each in _results(node) if each is not None])
        if name in ("Paren", "Neg", "Abs", "Round", "Mod", *_OVERFLOWING, *_CHOICES):
            parts = [node.this, node.args.get("expression"), *node.expressions]
            return all([self._is_whole(each) for each in parts if each is not None])
        return name == "Length"

    def settle(self, node: Any, expected: str) -> None:
        """Decide for every column in the node, which is expected to be `expected`."""
        name = type(node).__name__
        if _is_column(node):
            raw, typed = self._columns.column(_path(node), expected)
            self.reads.append((raw, typed))
            self.found.append((node, typed))
        elif name == "Paren":
            self.settle(node.this, expected)
        elif name in _COMPARISONS:
            self._compare([node.this, *_operands(node)])
        elif name in ("And", "Or", "Not"):
            self._all([node.this, node.args.get("expression")], "boolean")
        elif name == "Is":
            self.settle(node.this, "boolean" if type(node.expression).__name__ == "Boolean" else "text")
        elif name in _NUMERIC:
            self._all([node.this, node.args.get("expression"), node.args.get("decimals")], "number")
        elif name in ("Left", "Right", "Substring"):
            self.settle(node.this, "text")
            self._all([node.args.get(part) for part in ("expression", "start", "length")], "number")
        elif name in (*_TEXTUAL, *_ABOUT_TEXT, "Length", "Cast", "TryCast"):
            self._all([node.this, node.args.get("expression"), *node.expressions], "text")
        elif name in _CHOICES:
            parts = [node.this, node.args.get("expression"), *node.expressions]
            self._all(parts, self._first(parts) or expected)
        elif name in ("Case", "If"):
            self._choose(node, expected)

    def _choose(self, node: Any, expected: str) -> None:
        results = _results(node)
        if type(node).__name__ == "If":
            self.settle(node.this, "boolean")
        elif node.this is not None:
            self._compare([node.this, *[each.this for each in node.args["ifs"]]])
        else:
            self._all([each.this for each in node.args["ifs"]], "boolean")
        self._all(results, self._first(results) or expected)

    def _compare(self, nodes: list[Any]) -> None:
        known = self._first(nodes)
        if known is None:
            known = "any" if len(nodes) > 1 and all([_is_column(_bare(node)) for node in nodes]) else "text"
        self._all(nodes, known)

    def _all(self, nodes: Iterable[Any], expected: str) -> None:
        for node in nodes:
            if node is not None and not isinstance(node, str):
                self.settle(node, expected)

    def _first(self, nodes: Iterable[Any]) -> str | None:
        kinds = [self.kind(node) for node in nodes if node is not None and not isinstance(node, str)]
        return next((kind for kind in kinds if kind is not None), None)


def _operands(node: Any) -> list[Any]:
    name = type(node).__name__
    if name == "In":
        return list(node.expressions)
    return [node.args["low"], node.args["high"]] if name == "Between" else [node.expression]


def _results(node: Any) -> list[Any]:
    if type(node).__name__ == "If":
        return [node.args.get("true"), node.args.get("false")]
    return [*[each.args.get("true") for each in node.args["ifs"]], node.args.get("default")]


def _number_key(node: Any, declared: tuple[str, str] | None) -> str | None:
    """A numeric constant as Spark writes the typed column that equals it; None when it cannot equal one exactly."""
    negative = type(node).__name__ == "Neg"
    literal = _bare(node.this) if negative else node
    if type(literal).__name__ != "Literal" or literal.is_string:
        return None
    value = Decimal(("-" if negative else "") + literal.this)
    if declared == ("number", "BIGINT"):
        return str(int(value)) if value == value.to_integral_value() and abs(value) < 1 << 63 else None
    if declared is not None or abs(value) >= Decimal(10) ** 20:
        return None
    try:
        # Java and Python write a decimal alike, 0E-18 for zero. -0 is 0 in Java.
        return str((value + 0).quantize(Decimal(1).scaleb(-18), context=Context(prec=60, traps=[Inexact])))
    except Inexact:
        return None


def _bare(node: Any) -> Any:
    return _bare(node.this) if type(node).__name__ == "Paren" else node
