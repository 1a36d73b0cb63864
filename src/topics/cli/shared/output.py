"""Output: rows, single objects, outcomes and records, each in the format that `-o` names.

    table   for people: the default on a terminal
    json    one JSON document
    jsonl   one JSON value a line: the default in a pipe
    raw     values without names: the payloads of records, tab-separated columns of rows
    csv     with a header

Lines are flushed as they are written: a reader of a pipe must not wait for a buffer to fill. Characters that a terminal
would obey are replaced in tables, because names and errors come from elsewhere.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from topics.cli.shared.times import show_size, show_time
from topics.client import Record, Tombstone
from topics.model.errors import InvalidRequest

# Rich breaks lines at the width of the terminal; in a pipe there is none.
PIPE_WIDTH = 100_000


def is_terminal() -> bool:
    """Whether a person, not a program, reads the output."""
    return sys.stdout.isatty()


def chosen_format(output: str | None) -> str:
    return output or ("table" if is_terminal() else "jsonl")


def print_line(value: Any) -> None:
    """One JSON value on a line."""
    write_line(encode(value))


def write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: str | None = None) -> None:
    """Print rows that all have these columns."""
    match chosen_format(output):
        case "table":
            _print_table(columns, rows)
        case "json":
            print_line([dict(zip(columns, row, strict=True)) for row in rows])
        case "jsonl":
            for row in rows:
                print_line(dict(zip(columns, row, strict=True)))
        case "raw":
            for row in rows:
                write_line("\t".join([raw_text(value) for value in row]))
        case "csv":
            _print_csv([columns, *[[_cell(value) for value in row] for row in rows]])


def print_object(fields: Mapping[str, Any], output: str | None = None) -> None:
    """Print one object: its fields below each other in a table."""
    chosen = chosen_format(output)
    if chosen in ("json", "jsonl"):
        print_line(fields)
        return
    flat = dict(_flat(fields))
    if chosen == "table":
        _print_table(("field", "value"), [[name, table_text(name, value)] for name, value in flat.items()])
    elif chosen == "raw":
        for name, value in flat.items():
            write_line(f"{name}\t{raw_text(value)}")
    else:
        _print_csv([list(flat), [_cell(value) for value in flat.values()]])


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def print_outcome(kind: str, name: str, outcome: str, output: str | None = None) -> None:
    """What became of something: a sentence on a terminal, an object elsewhere."""
    match chosen_format(output):
        case "table":
            write_line(f"{kind} {printable(name)} {outcome}")
        case "raw":
            write_line(name)
        case "csv":
            _print_csv([[kind, "outcome"], [name, outcome]])
        case _:
            print_line({kind: name, "outcome": outcome})


class RecordPrinter:
    """Print records and gaps as they come, in one format. Use it as a context: it ends a JSON document."""

    COLUMNS = ("seq", "ts", "node", "tag", "data")

    def __init__(self, output: str, *, data_only: bool = False, with_topic: bool = False) -> None:
        self._output = output
        self._data_only = data_only
        self._with_topic = with_topic
        self._first = True

    def __enter__(self) -> "RecordPrinter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._output == "json":
            write_line("[]" if self._first else "\n]")

    def record(self, record: Record, topic: str = "", **more: Any) -> None:
        fields = {"topic": topic} if self._with_topic else {}
        if self._data_only and self._output in ("json", "jsonl"):
            self._value(record.data)
        elif self._output == "raw":
            write_line(raw_text(record.data))
        elif self._output in ("json", "jsonl"):
            self._value({**fields, **record_fields(record), **more, "data": record.data})
        else:
            values = [getattr(record, column) for column in self.COLUMNS]
            self._row([*fields, *more, *self.COLUMNS], [*fields.values(), *more.values(), *values])

    def tombstone(self, lost: Tombstone, topic: str = "") -> None:
        """Report lost records on standard error, and as a value in the JSON formats."""
        print(f"topics: {f'{topic}: ' if self._with_topic else ''}{loss_text(lost)}", file=sys.stderr)
        if self._output in ("json", "jsonl") and not self._data_only:
            self._value({**({"topic": topic} if self._with_topic else {}), "tombstone": lost})

    def _value(self, value: Any) -> None:
        if self._output == "jsonl":
            print_line(value)
            return
        sys.stdout.write(("[\n" if self._first else ",\n") + encode(value))
        sys.stdout.flush()
        self._first = False

    def _row(self, columns: Sequence[str], values: Sequence[Any]) -> None:
        """A row of a table whose later rows are not known yet: columns have fixed widths."""
        if self._output == "csv":
            _print_csv([*([columns] if self._first else []), [_cell(value) for value in values]])
        else:
            if self._first:
                write_line(_aligned(columns, columns))
            write_line(
                _aligned(columns, [table_text(name, value) for name, value in zip(columns, values, strict=True)])
            )
        self._first = False


_WIDTHS = {"topic": 20, "partition": 9, "seq": 8, "offset": 8, "ts": 20, "node": 10, "tag": 12}


def _aligned(columns: Sequence[str], texts: Sequence[str]) -> str:
    pairs = zip(columns, texts, strict=True)
    return "  ".join([text.ljust(_WIDTHS.get(name, 10)) for name, text in pairs]).rstrip()


def record_fields(record: Record) -> dict[str, Any]:
    """A record without its payload, as the API writes it; absent fields are left out."""
    fields = {"$seq": record.seq, "$ts": record.ts, "$node": record.node, "$tag": record.tag, "meta": record.meta}
    return {name: value for name, value in fields.items() if value is not None}


def loss_text(lost: Tombstone) -> str:
    records = f"records {lost.gap_from} to {lost.gap_to} are lost"
    if lost.reason != "recreated":
        return f"{records} ({lost.reason})"
    again = "the topic was deleted and created again since; reading it from its beginning"
    return f"{again}, {records}" if lost.gap_to else again


def raw_text(value: Any) -> str:
    """Texts as they are, everything else as JSON."""
    return "" if value is None else value if isinstance(value, str) else encode(value)


def table_text(name: str, value: Any) -> str:
    """One cell for people: sizes and times in the units that the column's name implies."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    last = name.rpartition(".")[2]
    if isinstance(value, int) and value >= 0:
        if last in ("bytes", "size") or last.endswith("_bytes"):
            return show_size(value)
        if value > 1 << 36 and (last == "ts" or last.endswith(("_ts", "_at"))):
            return show_time(value)
    if isinstance(value, float):
        return f"{value:g}" if value < 1000 else f"{value:.0f}"
    return printable(raw_text(value))


def printable(text: str) -> str:
    """The text on one line, without characters that a terminal obeys."""
    return text if text.isprintable() else "".join([sign if sign.isprintable() else "?" for sign in text])


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float) else encode(value)


def _print_csv(rows: Iterable[Sequence[Any]]) -> None:
    import csv

    csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
    sys.stdout.flush()


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    kept = list(rows)
    table = rich_table(columns, kept)
    console().print(table)


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> Any:
    """A table of rich; numbers are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=title, title_justify="left"
    )
    for index, name in enumerate(columns):
        numbers = bool(rows) and all([isinstance(row[index], int | float | None) for row in rows])
        table.add_column(Text(printable(name)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text(table_text(name, value)) for name, value in zip(columns, row, strict=True)])
    return table


def console(*, stderr: bool = False) -> Any:
    """A console of rich for standard output or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else PIPE_WIDTH)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask on a terminal, unless `yes` says not to. Raises InvalidRequest when there is no terminal to ask on."""
    if yes:
        return True
    if not sys.stdin.isatty() or not is_terminal():
        raise InvalidRequest(f"{question} There is no terminal to ask on: add --yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
