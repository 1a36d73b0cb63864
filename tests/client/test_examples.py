"""The examples in docstrings and in docs/python.md run as they are printed, sync and async."""

import ast
import asyncio
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topics.client
from topics.client import Client, RecordIn, values

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "docs" / "python.md"
# Classes whose methods send requests.
HANDLES = [
    f"{prefix}{name}"
    for prefix in ("", "Async")
    for name in ("Client", "Topic", "Consumer", "Producer", "Sent", "Worker")
]


def names() -> dict[str, Any]:
    return {name: getattr(topics.client, name) for name in topics.client.__all__}


def run(source: str, space: dict[str, Any]) -> None:
    """Run code, also code with `await` at its top level."""
    code = compile(source, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, space)
    if inspect.iscoroutine(result):
        asyncio.run(_awaited(result))


async def _awaited(coroutine: Any) -> None:
    await coroutine


def examples() -> Iterator[tuple[str, str]]:
    """Every example of a public class, function or method, with where it is."""
    for name in topics.client.__all__:
        value = getattr(topics.client, name)
        members = [(name, value)]
        if name in HANDLES:
            members += [(f"{name}.{each}", getattr(value, each)) for each in dir(value) if not each.startswith("_")]
        for where, member in members:
            doc = inspect.getdoc(member) or "" if callable(member) else ""
            before, _, example = doc.partition("Example:\n")
            if example and before:
                yield where, textwrap.dedent(example).strip("\n")


EXAMPLES = dict(examples())
# Their examples need what other tests have: users, and a handler that ends the worker.
ELSEWHERE = {"Client.login", "AsyncClient.login", "Client.request_token", "AsyncClient.request_token", "Retry"}


def prepare(url: str) -> None:
    """What the examples find on the server."""
    with Client(url) as client:
        for name in ("orders", "audit", "chat.messages"):
            client.drop(name)
            client.create(name)
            client.append(name, [{"sku": "AEROPRESS"}, RecordIn({"sku": "MUG"}, tag="customer-7")])
        client.drop("jobs")
        client.create("jobs", type="queue")
        client.create("jobs.dead")
        client.topic("jobs").append_many([{"url": "a.png"}])
        client.create_router("orders", "audit")
        client.put_table("shop.orders", key_columns=["id"], columns={"id": "bigint"})
        client.set_archive("orders", "s3://lake/orders")
        client.report_pipeline("main", "running", started_ts=1767225600000)
        client.consume("orders", "billing", timeout_seconds=0)
        client.commit(writes=[{"topic": "audit", "records": [{"data": 1}]}], producer="loader", batch=8 - 1)


def prepared(name: str, example: str, url: str) -> str:
    """Examples that name an id of something get one that exists."""
    with Client(url) as client:
        if "stage_5f0c" in example:
            example = example.replace("stage_5f0c", client.stage("orders", [{"id": 1}]).stage_id)
        if name.endswith(".group_ack") or "upto_offset" in example:
            client.consume("orders", "billing", timeout_seconds=0)
        if "epoch" in example:
            example = re.sub(r'"epoch": \d+', f'"epoch": {client.info("orders").epoch}', example)
            example = re.sub(r'"next_seq": \d+', '"next_seq": 1', example)
        if ".commit(" in example:
            example = re.sub(r"batch=8", f"batch={next(_batches)}", example)
    return example


_batches = itertools.count(100)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ELSEWHERE])
def test_example_of_a_docstring_runs(name: str, url: str) -> None:
    prepare(url)
    example = prepared(name, EXAMPLES[name], url)
    space = names()
    if name.startswith("Async"):
        source = f"client = AsyncClient({url!r})\n{example}\nawait client.close()"
    else:
        source = f"client = Client({url!r})\n{example}\nclient.close()"
    run(source.replace("http://127.0.0.1:4000", url), space)


def test_every_public_class_and_method_has_an_example() -> None:
    """Except the values that operations answer: the examples of the operations show them."""
    without = [name for name in topics.client.__all__ if needs_example(name) and name not in EXAMPLES]
    for name in HANDLES:
        kind = getattr(topics.client, name)
        methods = [each for each in dir(kind) if not each.startswith("_") and callable(getattr(kind, each))]
        without += [f"{name}.{each}" for each in methods if f"{name}.{each}" not in EXAMPLES]
    assert without == []


def needs_example(name: str) -> bool:
    return inspect.isclass(getattr(topics.client, name)) and name not in values.__all__


def test_the_first_program_runs_as_it_is_printed(kind: str, url: str) -> None:
    """On a server without its topics. Only the address is another one; Ctrl-C ends the statements that have no end."""
    with Client(url) as client:
        for name in ("orders", "jobs", "jobs.dead"):
            client.drop(name)
        asynchronous = kind == "async"
        (source,) = [
            block for block in guide_blocks() if is_first_program(block) and ("await" in block) is asynchronous
        ]
        done = subprocess.run(
            [sys.executable, "-m", "tests.client.first_program", url],
            input=source, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        follow, handled, finished = done.stdout.splitlines()
        assert follow.startswith("left ")
        assert ".follow(from_seq=0)" in follow
        assert (handled, finished) == ("handled {'sku': 'AEROPRESS'}", "the job is finished")
        assert [item.data for item in client.read("orders")] == [{"sku": "AEROPRESS"}, {"sku": "FILTERS"}]
        (partition,) = client.seek_group("orders", "billing", "earliest", dry_run=True).partitions
        assert partition.previous_offset == 2, "the message is acknowledged"
        assert client.info("jobs").config.dead_letter == "jobs.dead"


def guide_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def is_first_program(block: str) -> bool:
    """The overview at the beginning and its async version. Their loops have no end, so they are not run with the rest."""
    return ".follow(from_seq=0)" in block


def test_the_programs_of_the_guide_run(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order, in one program. Workers end after their first jobs, and endless loops are not entered."""
    monkeypatch.setenv("TOPICS_URL", url)
    space: dict[str, Any] = {"__name__": "__main__"}
    for block in guide_blocks():
        if not is_first_program(block):
            run(block, space)
    for client in (space["client"], space["careful"]):
        client.close()
    assert "resized a.png" in capsys.readouterr().out
