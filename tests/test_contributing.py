"""CONTRIBUTING.md names symbols, packages and commands that exist; tests/docs/test_paths.py checks its paths."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# By symbol, the file that has it.
SYMBOLS = {
    "AppendBody": "src/topics/model/records/batch.py",
    "Batch": "src/topics/model/records/batch.py",
    "batch_of": "src/topics/model/records/batch.py",
    "decide_append": "src/topics/broker/topics/append.py",
    "APPEND_VALUES": "tests/server/test_decoders.py",
    "_write_batch": "src/topics/server/topics/stages.py",
    "OPERATIONS": "src/topics/api/ops.py",
    "CALLS": "tests/server/test_authorization.py",
    "Fact": "src/topics/model/facts.py",
    "_FREEING": "src/topics/model/facts.py",
    "APPLY": "src/topics/broker/log/apply.py",
    "FactCommit": "src/topics/broker/log/commit.py",
    "Settings": "src/topics/server/ops/settings.py",
    "OPTIONS": "src/topics/server/ops/options.py",
    "GROUPS": "src/topics/cli/main.py",
    "CASES": "tests/cli/cases.py",
    "SCREENS": "src/topics/console/app.js",
    "NAVIGATION": "src/topics/console/app.js",
}


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_named_symbol_is_where_the_recipe_says(symbol: str) -> None:
    assert f"`{symbol}`" in TEXT
    assert f"`{SYMBOLS[symbol]}`" in TEXT
    assert re.search(
        rf"^(class |const |def |async def )?{symbol}\b",
        (ROOT / SYMBOLS[symbol]).read_text(encoding="utf-8"),
        re.MULTILINE,
    )


def test_every_package_has_a_place_in_the_table() -> None:
    packages = [path.name for path in (ROOT / "src/topics").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in packages if f"`src/topics/{name}`" not in TEXT] == []


def test_every_make_target_that_is_named_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [name for name in re.findall(r"make ([a-z-]+)", TEXT) if name not in targets] == []
