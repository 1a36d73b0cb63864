"""The formats of -o."""

import csv
import io
import json

import pytest

from topics.cli.shared.output import RecordPrinter, print_object, print_outcome, print_rows
from topics.client import Record, Tombstone

ROWS = [["orders", 1200, None, {"a": 1}], ['odd,"name', 7, "\x1b[31mred", True]]
COLUMNS = ("topic", "bytes", "tag", "more")


def test_rows_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    objects = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    print_rows(COLUMNS, ROWS, "jsonl")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == objects
    print_rows(COLUMNS, ROWS, "json")
    assert json.loads(capsys.readouterr().out) == objects
    print_rows(COLUMNS, ROWS, "csv")
    header, first, second = csv.reader(io.StringIO(capsys.readouterr().out))
    assert (header, first) == (list(COLUMNS), ["orders", "1200", "", '{"a":1}'])
    assert second[0] == 'odd,"name'
    print_rows(COLUMNS, ROWS, "raw")
    assert capsys.readouterr().out.splitlines()[0] == 'orders\t1200\t\t{"a":1}'
    print_rows(COLUMNS, ROWS, "table")
    out = capsys.readouterr().out
    assert out.split()[:4] == list(COLUMNS)
    assert "1.2 KB" in out
    assert "\x1b" not in out, "a name cannot control the terminal"


def test_an_object_and_an_outcome_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    print_object({"topic": "t", "config": {"ttl_ms": 5}}, "table")
    assert "config.ttl_ms  5" in capsys.readouterr().out
    print_object({"topic": "t", "config": {"ttl_ms": 5}}, "csv")
    assert capsys.readouterr().out == "topic,config.ttl_ms\nt,5\n"
    print_object({"topic": "t", "config": {"ttl_ms": 5}}, "raw")
    assert capsys.readouterr().out == "topic\tt\nconfig.ttl_ms\t5\n"
    for output, text in (("table", "topic t created\n"), ("raw", "t\n"), ("csv", "topic,outcome\nt,created\n")):
        print_outcome("topic", "t", "created", output)
        assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("jsonl", '{"$seq":1,"$ts":5,"$tag":"x","data":"text"}\n{"$seq":2,"$ts":6,"data":{"n":1}}\n'),
        ("json", '[\n{"$seq":1,"$ts":5,"$tag":"x","data":"text"},\n{"$seq":2,"$ts":6,"data":{"n":1}}\n]\n'),
        ("raw", 'text\n{"n":1}\n'),
        ("csv", 'seq,ts,node,tag,data\n1,5,,x,text\n2,6,,,"{""n"":1}"\n'),
    ],
)
def test_records_in_every_format(output: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with RecordPrinter(output) as printer:
        printer.record(Record(1, 5, "text", tag="x"))
        printer.record(Record(2, 6, {"n": 1}))
    assert capsys.readouterr().out == expected


def test_a_gap_is_reported_on_standard_error_and_as_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    with RecordPrinter("json") as printer:
        printer.tombstone(Tombstone(1, 3, "cap"))
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["tombstone"]["gap_to"] == 3
    assert err == "topics: records 1 to 3 are lost (cap)\n"
    with RecordPrinter("json"):
        pass
    assert json.loads(capsys.readouterr().out) == []
