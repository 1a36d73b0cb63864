"""The parser: one statement from its text, strictly, with its parameters bound.

Top-down over the tokens, one method per statement. Anything after a complete statement except one semicolon is an error. Keywords are
reserved only where the grammar has them: a topic may be called `topic`.
"""

from collections.abc import Sequence

from topics.model.errors import InvalidRequest
from topics.model.tables.route import Op, PayloadMode, RouteStart
from topics.sql.expressions import column_list, normal_form
from topics.sql.statements import (
    TABLES_SCHEMA,
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
    Options,
    ResetGroup,
    Select,
    SetAlias,
    SetArchive,
    SetMaterialized,
    SetRetention,
    ShowGroups,
    ShowTopics,
    Start,
    Statement,
    Target,
    Value,
)
from topics.sql.tokens import SqlError, Token, tokenize

U64_MAX = 2**64 - 1
MAX_PARTITIONS = 1024
MAX_PARAMS = 1000
MAX_NESTING = 100
MAX_NAME_CHARS = 255
STATEMENTS = ("CREATE", "DROP", "CLEAR", "ALTER", "CONSUME", "ACK", "RESET", "SHOW", "DESCRIBE", "SELECT")

_OPS: dict[str, Op] = {"INSERT": "Insert", "UPDATE": "Update", "DELETE": "Delete"}
_PAYLOADS: dict[str, PayloadMode] = {"key": "Key", "full": "Full", "diff": "Diff"}
_STARTS: dict[str, RouteStart] = {"latest": "Latest", "earliest": "Earliest"}
_SOURCE_OPTIONS = {
    "payload": "'key', 'full' or 'diff'",
    "key": "'column, ...'",
    "start": "'latest' or 'earliest'",
}


def parse(text: str, params: Sequence[Value] = ()) -> Statement:
    """The one statement of the text. Raises InvalidRequest, mostly SqlError, for anything else."""
    if len(params) > MAX_PARAMS:
        raise InvalidRequest(f"a statement has at most {MAX_PARAMS} parameters")
    for number, value in enumerate(params, start=1):
        if isinstance(value, int) and not -(2**63) <= value <= U64_MAX:
            raise InvalidRequest(f"parameter {number} is larger than 64 bits hold")
    return _Parser(text, tokenize(text), params).statement()


class _Parser:
    def __init__(self, text: str, tokens: list[Token], params: Sequence[Value]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._params = params
        self._used: set[int] = set()
        self._next_param = 0

    def statement(self) -> Statement:
        first = self._token
        if first.is_word("SELECT", "WITH"):
            return self._select()
        statement = self._parse_statement()
        self._end()
        if len(self._used) != len(self._params):
            raise InvalidRequest(f"{len(self._params)} parameters were given, but the statement has {len(self._used)}")
        return statement

    def _parse_statement(self) -> Statement:
        match self._word(*STATEMENTS, "DESC"):
            case "CREATE":
                return self._create()
            case "DROP":
                return self._drop()
            case "CLEAR":
                self._word("TOPIC")
                return ClearTopic(self._name())
            case "ALTER":
                return self._alter()
            case "CONSUME":
                return self._consume()
            case "ACK":
                return self._ack()
            case "RESET":
                return self._reset()
            case "SHOW":
                return self._show()
            case _:
                self._word("TOPIC")
                return DescribeTopic(self._name())

    # Statements

    def _create(self) -> Statement:
        self._word("TOPIC")
        if_not_exists = self._maybe("IF", "NOT", "EXISTS")
        name = self._name()
        partitions = None
        if self._maybe("PARTITIONS"):
            partitions = self._number("the number of partitions", 1, MAX_PARTITIONS)
        options = self._options() if self._maybe("WITH") else ()
        return CreateTopic(name, if_not_exists, partitions, options)

    def _drop(self) -> Statement:
        if self._word("TOPIC", "CONSUMER") == "TOPIC":
            if_exists = self._maybe("IF", "EXISTS")
            return DropTopic(self._name(), if_exists)
        self._word("GROUP")
        if_exists = self._maybe("IF", "EXISTS")
        group = self._group()
        self._word("ON")
        return DropGroup(self._name(), group, if_exists)

    def _alter(self) -> Statement:
        if self._word("TOPIC", "TABLE") == "TABLE":
            return self._alter_table()
        topic = self._name()
        match self._word("ADD", "DROP", "SET", "CLEAR"):
            case "ADD":
                return self._add_source(topic)
            case "DROP":
                return self._drop_source(topic)
            case "SET":
                what = self._word("RETENTION", "ALIAS", "ARCHIVE")
                if what == "ALIAS":
                    return SetAlias(topic, self._alias())
                self._word("WITH")
                options = self._options()
                return SetRetention(topic, options) if what == "RETENTION" else SetArchive(topic, options)
            case _:
                match self._word("RETENTION", "ALIAS", "ARCHIVE"):
                    case "ALIAS":
                        return SetAlias(topic, None)
                    case "ARCHIVE":
                        return ClearArchive(topic)
                    case _:
                        return ClearRetention(topic)

    def _alter_table(self) -> Statement:
        table = self._table()
        action = self._word("SET", "CLEAR")
        self._word("MATERIALIZED")
        if action == "CLEAR":
            return ClearMaterialized(table)
        self._word("WITH")
        return SetMaterialized(table, self._options())

    def _add_source(self, topic: str) -> AddSource:
        self._word("SOURCE")
        table = self._table()
        self._word("ON")
        op = _OPS[self._word(*_OPS)]
        filter_expr = self._expression("WHERE") if self._maybe("WHERE") else None
        partition_expr = self._expression("PARTITION BY") if self._maybe("PARTITION", "BY") else None
        payload: PayloadMode = "Key"
        key_columns: tuple[str, ...] = ()
        start: RouteStart = "Latest"
        if self._maybe("WITH"):
            opening = self._token
            for name, value in self._options():
                if name == "payload" and isinstance(value, str) and value.lower() in _PAYLOADS:
                    payload = _PAYLOADS[value.lower()]
                elif name == "key" and isinstance(value, str):
                    key_columns = column_list(value, opening)
                elif name == "start" and isinstance(value, str) and value.lower() in _STARTS:
                    start = _STARTS[value.lower()]
                else:
                    wrong = (
                        f"must be {_SOURCE_OPTIONS[name]}"
                        if name in _SOURCE_OPTIONS
                        else "is not an option of a source"
                    )
                    expected = " or ".join([f"{option} = {values}" for option, values in _SOURCE_OPTIONS.items()])
                    raise SqlError(f"{name} {wrong}", opening.line, opening.column, expected)
        return AddSource(topic, table, op, payload, filter_expr, partition_expr, key_columns, start)

    def _drop_source(self, topic: str) -> DropSource:
        self._word("SOURCE")
        table = self._table()
        op = _OPS[self._word(*_OPS)] if self._maybe("ON") else None
        return DropSource(topic, table, op, self._expression("WHERE") if self._maybe("WHERE") else None)

    def _consume(self) -> Consume:
        self._word("FROM")
        topic = self._name()
        group = self._group() if self._maybe("GROUP") else None
        partition = self._partition() or 0
        start: Start | None = None
        if self._maybe("FROM"):
            match self._word("EARLIEST", "LATEST", "OFFSET"):
                case "EARLIEST":
                    start = Earliest()
                case "LATEST":
                    start = Latest()
                case _:
                    start = AtOffset(self._offset())
        limit = self._number("a limit", 1, U64_MAX) if self._maybe("LIMIT") else None
        return Consume(topic, group, partition, start, limit)

    def _ack(self) -> Ack:
        topic = self._name()
        self._word("GROUP")
        group = self._group()
        partition = self._partition() or 0
        self._word("UPTO")
        self._word("OFFSET")
        return Ack(topic, group, self._offset(), partition)

    def _reset(self) -> ResetGroup:
        self._word("CONSUMER")
        self._word("GROUP")
        group = self._group()
        self._word("ON")
        topic = self._name()
        partition = self._partition()
        self._word("TO")
        target: Target
        if self._maybe("EARLIEST"):
            target = Earliest()
        elif self._maybe("LATEST"):
            target = Latest()
        elif self._maybe("TIMESTAMP"):
            target = self._time()
        else:
            self._maybe("OFFSET")
            target = AtOffset(self._offset("EARLIEST, LATEST, TIMESTAMP or an offset"))
        return ResetGroup(topic, group, target, partition, self._maybe("DRY", "RUN"))

    def _show(self) -> Statement:
        if self._word("TOPICS", "CONSUMER") == "TOPICS":
            return ShowTopics()
        self._word("GROUPS")
        return ShowGroups(self._name() if self._maybe("ON") else None)

    def _select(self) -> Select:
        """Find the tables that it names, and check that it is one statement. The engine parses the rest."""
        tokens = self._tokens
        if tokens[-2].is_sign(";"):
            tokens = [*tokens[:-2], tokens[-1]]
        depth = 0
        tables: dict[str, None] = {}
        pieces: list[str] = []
        written = 0
        for number, token in enumerate(tokens[:-1]):
            if token.is_sign(";"):
                raise SqlError("one statement at a time", token.line, token.column, "the end of the statement")
            depth += token.is_sign("(") - token.is_sign(")")
            if depth > MAX_NESTING:
                raise SqlError("the statement is nested too deeply", token.line, token.column)
            named = self._system_table(tokens, number)
            if named is not None:
                tables[named] = None
                pieces += [self._text[written : token.start], TABLES_SCHEMA]
                written = token.start + len(token.text)
        pieces.append(self._text[written : tokens[-1].start if tokens is self._tokens else self._tokens[-2].start])
        return Select("".join(pieces), tuple(tables), tuple(self._params))

    @staticmethod
    def _system_table(tokens: list[Token], number: int) -> str | None:
        """The table, if `system.table` begins here."""
        token = tokens[number]
        if token.kind not in ("word", "quoted") or token.value.lower() != "system" or number + 2 >= len(tokens):
            return None
        if number and tokens[number - 1].is_sign("."):
            return None
        table = tokens[number + 2]
        if not tokens[number + 1].is_sign(".") or table.kind not in ("word", "quoted"):
            return None
        return table.value.lower()

    # Parts

    def _expression(self, what: str) -> str:
        """The text in brackets, in normal form."""
        opening = self._token
        self._sign("(")
        depth = 1
        inside: list[Token] = []
        while True:
            token = self._token
            if token.kind == "end":
                raise SqlError(f"the ) that ends {what} is missing", opening.line, opening.column, ")")
            self._at += 1
            depth += token.is_sign("(") - token.is_sign(")")
            if not depth:
                return normal_form(inside, what, opening)
            inside.append(token)

    def _options(self) -> Options:
        self._sign("(")
        options: dict[str, Value] = {}
        while True:
            token = self._token
            if token.kind not in ("word", "quoted"):
                raise self._expected("the name of an option")
            self._at += 1
            name = token.value.lower()
            if name in options:
                raise SqlError(f"{token.shown()} is given twice", token.line, token.column)
            self._sign("=")
            options[name] = self._value()
            token = self._token
            if token.is_sign(","):
                self._at += 1
            elif token.is_sign(")"):
                self._at += 1
                return tuple(options.items())
            else:
                raise self._expected(", or )")

    def _name(self, what: str = "the name of a topic") -> str:
        """`a.b.c`, each part plain or quoted."""
        parts = [self._name_part(what)]
        while self._token.is_sign("."):
            self._at += 1
            parts.append(self._name_part(what))
        return ".".join(parts)

    def _name_part(self, what: str) -> str:
        token = self._token
        if token.kind not in ("word", "quoted") or not token.value:
            raise self._expected(what)
        if len(token.value) > MAX_NAME_CHARS:
            raise SqlError("this name is too long", token.line, token.column)
        self._at += 1
        return token.value

    def _table(self) -> str:
        token = self._token
        name = self._name("the name of a table")
        if name.count(".") > 2 or not all([part.isprintable() for part in name.split(".")]):
            raise SqlError("this is not the name of a table", token.line, token.column, "namespace.table")
        return name

    def _alias(self) -> str:
        if self._token.kind in ("string", "parameter"):
            return self._string("an alias")
        return self._name("an alias")

    def _group(self) -> str:
        if self._token.kind in ("word", "quoted"):
            token = self._token
            self._at += 1
            return token.value
        return self._string("the name of a group")

    def _partition(self) -> int | None:
        return self._number("a partition", 0, 2**31) if self._maybe("PARTITION") else None

    def _offset(self, expected: str = "an offset") -> int:
        return self._number(expected, 0, U64_MAX)

    def _time(self) -> AtTime:
        token = self._token
        value = self._value("a time")
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX):
            return AtTime(value)
        raise SqlError("this is not a time", token.line, token.column, "'2026-01-31T12:00:00Z' or milliseconds")

    def _string(self, what: str) -> str:
        token = self._token
        if token.kind == "parameter":
            value = self._parameter()
            if isinstance(value, str):
                return value
            raise SqlError(f"the parameter for {what} must be a text", token.line, token.column, what)
        if token.kind != "string":
            raise self._expected(what)
        self._at += 1
        return token.value

    def _number(self, what: str, low: int, high: int) -> int:
        token = self._token
        value = self._value(what) if token.kind in ("number", "parameter") else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise (
                self._expected(what)
                if value is None
                else SqlError(f"{what} is a whole number", token.line, token.column, what)
            )
        if not low <= value <= high:
            raise SqlError(f"{what} must be from {low} to {high}", token.line, token.column, what)
        return value

    def _value(self, what: str = "a value") -> Value:
        token = self._token
        negative = token.is_sign("-")
        if negative:
            self._at += 1
            token = self._token
        if token.kind == "number":
            self._at += 1
            number = _number(token)
            return -number if negative else number
        if negative:
            raise self._expected("a number")
        if token.kind == "string":
            self._at += 1
            return token.value
        if token.kind == "parameter":
            return self._parameter()
        if token.is_word("TRUE", "FALSE", "NULL"):
            self._at += 1
            return {"TRUE": True, "FALSE": False, "NULL": None}[token.text.upper()]
        raise self._expected(what)

    def _parameter(self) -> Value:
        """The value bound to the parameter at this position."""
        token = self._token
        self._at += 1
        if token.text == "?":
            index = self._next_param
            self._next_param += 1
        else:
            index = int(token.text[1:8]) - 1
        if not 0 <= index < len(self._params):
            raise SqlError(f"no value was given for {token.shown()}", token.line, token.column, "a parameter")
        self._used.add(index)
        return self._params[index]

    # Tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _word(self, *words: str) -> str:
        """The next token must be one of these keywords."""
        token = self._token
        if not token.is_word(*words):
            raise self._expected(" or ".join(words) if len(words) < 3 else ", ".join(words[:-1]) + " or " + words[-1])
        self._at += 1
        return token.text.upper()

    def _maybe(self, *words: str) -> bool:
        """Take these keywords if the next token is the first one; then the others must follow."""
        if not self._token.is_word(words[0]):
            return False
        for word in words:
            self._word(word)
        return True

    def _sign(self, sign: str) -> None:
        if not self._token.is_sign(sign):
            raise self._expected(sign)
        self._at += 1

    def _end(self) -> None:
        if self._token.is_sign(";"):
            self._at += 1
        if self._token.kind != "end":
            raise self._expected("the end of the statement")

    def _expected(self, what: str) -> SqlError:
        token = self._token
        return SqlError(f"expected {what}, found {token.shown()}", token.line, token.column, what)


def _number(token: Token) -> int | float:
    if token.text.isdigit():
        if len(token.text) > 20:
            raise SqlError("this number is larger than 64 bits hold", token.line, token.column)
        return int(token.text)
    return float(token.text)
