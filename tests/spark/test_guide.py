"""docs/guides/tables-with-spark.md: its commands exist, its SQL runs, and its read works. `test_demo.py` runs the whole path."""

import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tools.reference_pages import SPARK_COMMANDS
from topics.cli.main import COMMANDS
from topics.client import Client

GUIDE = (Path(__file__).resolve().parents[2] / "docs/guides/tables-with-spark.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def test_its_commands_have_these_arguments() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 3
    for line in lines:
        _, command, *arguments = shlex.split(line)
        module = SPARK_COMMANDS.get(f"topics {command} {arguments[0]}")
        if module is None:
            module, _ = COMMANDS[command]
        else:
            del arguments[0]
        import_module(module).build_parser().parse_args(arguments)


def test_its_statements_add_the_route(client: Client) -> None:
    client.put_table("shop.orders", key_columns=["id"])
    (statements,) = blocks("sql")
    for statement in [text.strip() for text in statements.split(";") if text.strip()]:
        client.sql(statement)
    assert [route.topic_id for route in client.routes(table="shop.orders").routes] == ["orders:large"]


@pytest.mark.spark
@pytest.mark.slow
def test_its_read_runs(spark: Any, client: Client) -> None:
    client.append("orders:large", [{"id": 1, "total": 1500}])
    (read,) = blocks("python")
    rows = eval(read.strip().replace("http://127.0.0.1:4000", client.url), {"spark": spark})
    assert [row.data for row in rows.collect()] == ['{"id":1,"total":1500}']
