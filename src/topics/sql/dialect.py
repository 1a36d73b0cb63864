"""Spark's SQL as routes are written in it: the parser's own Spark dialect, corrected where Spark reads otherwise.

A quote in a string may be doubled or follow a backslash, and a double-quoted text is not a string. What is written has
backslashes, which every Spark reads the same way.
"""

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot import parse as _parse
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

__all__ = ["SqlglotError", "exp", "parse", "write"]


class RouteSpark(Spark):
    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'"]


def parse(text: str) -> list[Any]:
    return list(_parse(text, dialect=RouteSpark))


def write(tree: Any) -> str:
    text: str = tree.sql(dialect=RouteSpark, identify=True, comments=False)
    return text
