"""Expressions of routes: WHERE and PARTITION BY, checked when the route is made and kept in the form that runs.

A route is run by Spark, together with others, over rows that the server has not seen. Only these are allowed: columns, literals,
comparisons, arithmetic, CASE, and a short list of scalar functions with known cost and effect. There are no subqueries, no
parameters, and no function that reaches the JVM, Python, files, the network, the clock or random numbers.

The stored text is written from the checked tree, with every identifier quoted: no part of the client's text is copied. Strings
contain no backslash, because a setting of Spark decides whether it escapes.

Not supported, and refused by name: regular expressions (one can stop a whole micro-batch), intervals, lambdas, array and
map access, window and aggregate functions.
"""

from typing import Any

from topics.sql.tokens import SqlError, Token

MAX_EXPRESSION_CHARS = 4000
MAX_DEPTH = 32
MAX_NODES = 400

FUNCTIONS = {
    "ABS", "CEIL", "CEILING", "COALESCE", "CONCAT", "CONCAT_WS", "CONTAINS", "ENDSWITH", "FLOOR", "GREATEST", "IF",
    "IFNULL", "LEAST", "LEFT", "LENGTH", "LOWER", "LTRIM", "MD5", "NULLIF", "NVL", "RIGHT", "ROUND", "RTRIM", "SIGN",
    "STARTSWITH", "SUBSTR", "SUBSTRING", "TRIM", "UPPER",
}  # fmt: skip
# Words that may precede a bracket without being functions.
_BEFORE_BRACKET = {
    "AND",
    "OR",
    "NOT",
    "IN",
    "WHEN",
    "THEN",
    "ELSE",
    "CASE",
    "BETWEEN",
    "LIKE",
    "ILIKE",
    "CAST",
    "TRY_CAST",
}
_SIGNS = {"(", ")", ",", ".", "=", "==", "<", ">", "<=", ">=", "<>", "!=", "<=>", "+", "-", "*", "/", "%", "||", "::"}
_TYPES = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "TEXT", "VARCHAR", "CHAR", "DATE",
    "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ",
}  # fmt: skip
_NODES = {
    "And", "Or", "Not", "Paren", "EQ", "NEQ", "GT", "GTE", "LT", "LTE", "NullSafeEQ", "Is", "In", "Between", "Like",
    "ILike", "Column", "Identifier", "Literal", "Boolean", "Null", "Neg", "Add", "Sub", "Mul", "Div", "Mod", "DPipe",
    "Case", "If", "Cast", "TryCast", "DataType", "DataTypeParam", "Dot",
    # The functions above, as the parser calls them.
    "Abs", "Ceil", "Coalesce", "Concat", "ConcatWs", "Contains", "EndsWith", "Floor", "Greatest", "Least", "Left",
    "Length", "Lower", "MD5", "Nullif", "Right", "Round", "Sign", "StartsWith", "Substring", "Trim", "Upper",
}  # fmt: skip


def normal_form(tokens: list[Token], what: str, at: Token) -> str:
    """The expression made of these tokens, written the one way it is kept. Raises SqlError, naming `what`."""
    if not tokens:
        raise SqlError(f"{what} is empty", at.line, at.column, "an expression")
    text = _checked_text(tokens, what)
    return _written(_tree(text, what, at), what, at)


def check_kept(text: str) -> None:
    """Check a stored expression before it is run: `normal_form` must return it unchanged. Raises SqlError."""
    at = Token("word", text, text, 0, 1, 1)
    if len(text) > 2 * MAX_EXPRESSION_CHARS or _written(_tree(text, "it", at), "it", at) != text:
        raise SqlError("the expression is not in the form in which it is kept", 1, 1)


def column_list(text: str, at: Token) -> tuple[str, ...]:
    """The names in `key = 'a, b'`."""
    names = tuple([name.strip() for name in text.split(",")])
    if len(names) > 64 or not all([name.isidentifier() and name.isascii() and len(name) <= 255 for name in names]):
        raise SqlError("key takes column names with commas between them", at.line, at.column, "column names")
    if len(set(names)) != len(names):
        raise SqlError("key names a column twice", at.line, at.column)
    return names


def columns_in(expression: str) -> list[str]:
    """The columns that an expression in normal form names; of a field in a column, the column."""
    from topics.sql.dialect import exp, parse

    tree = parse(f"SELECT ({expression}\n)")[0]
    return list(dict.fromkeys([column.parts[0].name for column in tree.find_all(exp.Column)]))


def _checked_text(tokens: list[Token], what: str) -> str:
    depth = 0
    pieces: list[str] = []
    for number, token in enumerate(tokens):
        following = tokens[number + 1] if number + 1 < len(tokens) else None
        if token.kind == "sign":
            if token.text not in _SIGNS:
                raise SqlError(f"{token.text} is not allowed in {what}", token.line, token.column)
            if token.text == "(":
                depth += 1
                if depth > MAX_DEPTH:
                    raise SqlError(f"{what} is nested too deeply", token.line, token.column)
            elif token.text == ")":
                depth -= 1
        elif token.kind == "word":
            word = token.text.upper()
            if following is not None and following.is_sign("(") and word not in FUNCTIONS | _BEFORE_BRACKET | _TYPES:
                raise SqlError(
                    f"{token.shown()} is not a function that can be used in {what}",
                    token.line,
                    token.column,
                    "one of " + ", ".join(sorted(FUNCTIONS)).lower(),
                )
        elif token.kind == "string":
            if "\\" in token.value or "\0" in token.value:
                raise SqlError("a text in an expression holds no backslash and no NUL", token.line, token.column)
        elif token.kind == "quoted":
            if token.text[0] == '"':
                raise SqlError("write names as `name` and texts as 'text' here", token.line, token.column)
            if not token.value or "\0" in token.value or "`" in token.value or "\\" in token.value:
                raise SqlError("this is not the name of a column", token.line, token.column, "a column")
        elif token.kind == "parameter":
            raise SqlError(f"{what} takes no parameters", token.line, token.column)
        pieces.append(token.text)
    text = " ".join(pieces)
    if len(text) > MAX_EXPRESSION_CHARS:
        raise SqlError(f"{what} has more than {MAX_EXPRESSION_CHARS} characters", tokens[0].line, tokens[0].column)
    return text


def _tree(text: str, what: str, at: Token) -> Any:
    """The tree of exactly one expression, all of whose nodes are known."""
    # Imported when the first route is made: the import takes a quarter of a second, and most servers have no routes.
    from topics.sql.dialect import SqlglotError, exp, parse

    try:
        parsed = parse(f"SELECT ({text}\n)")
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise SqlError(f"{what} is not an expression: {_reason(error)}", at.line, at.column, "an expression") from None
    select = parsed[0] if len(parsed) == 1 else None
    if (
        not isinstance(select, exp.Select)
        or [name for name, value in select.args.items() if value] != ["expressions"]
        or len(select.expressions) != 1
        or not isinstance(select.expressions[0], exp.Paren)
    ):
        raise SqlError(f"{what} must be one expression", at.line, at.column, "one expression")
    tree = select.expressions[0].this
    for nodes, node in enumerate(tree.walk(), start=1):
        name = type(node).__name__
        if name not in _NODES or nodes > MAX_NODES:
            trouble = "is too long" if nodes > MAX_NODES else f"cannot use {name.lower()}"
            raise SqlError(f"{what} {trouble}", at.line, at.column)
        _check_node(node, exp, what, at)
    return tree


def _check_node(node: Any, exp: Any, what: str, at: Token) -> None:
    """Check what the kind of a node does not determine."""
    if isinstance(node, exp.In) and (not node.expressions or node.args.get("query") or node.args.get("unnest")):
        raise SqlError(f"IN takes a list of values in {what}", at.line, at.column, "a list of values")
    if (
        isinstance(node, exp.DataType)
        and (node.this.name if hasattr(node.this, "name") else str(node.this)) not in _TYPES
    ):
        raise SqlError(f"{what} casts to a type that is not allowed", at.line, at.column, "a scalar type")
    if isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Identifier):
        raise SqlError(f"{what} has something other than a name after a dot", at.line, at.column, "a name")
    if isinstance(node, exp.Trim) and node.args.get("collation"):
        raise SqlError(f"{what} cannot use collations", at.line, at.column)
    if isinstance(node, exp.Cast) and any([node.args.get(name) for name in ("format", "action", "default")]):
        raise SqlError(f"{what} casts in a way that is not allowed", at.line, at.column)


def _written(tree: Any, what: str, at: Token) -> str:
    """The text of the tree. Raises SqlError unless parsing the text gives the same text again."""
    from topics.sql.dialect import SqlglotError, parse, write

    try:
        text = write(tree)
        again = write(parse(f"SELECT ({text}\n)")[0].expressions[0].this)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise SqlError(f"{what} cannot be written for Spark: {_reason(error)}", at.line, at.column) from None
    if again != text:
        raise SqlError(f"{what} does not mean the same when it is written down", at.line, at.column)
    return text


def _reason(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if errors:
        return str(errors[0].get("description", "it cannot be read"))[:200]
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it cannot be read"
