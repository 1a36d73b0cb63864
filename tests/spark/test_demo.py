"""`make demo` ends by itself, prints what its documentation promises, and leaves no files or processes."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.spark.conftest import python_path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEMO = Path(__file__).resolve().parents[2] / "tools" / "demo.py"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_demo_ends_by_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": python_path(), "TMPDIR": str(tmp_path)}
    # PostgreSQL runs as another user and keeps its files there, too.
    for path in (tmp_path, *list(tmp_path.parents)[:2]):
        path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(DEMO)], env=environment, capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    for words in (
        "each message once",
        "to its reader:",
        "DuckDB says:",
        "every batch finished",
        "Nothing is left running",
    ):
        assert words in done.stdout
    assert re.search(r"search-index: one \d+ .*two \d+ .*each message once", done.stdout), done.stdout
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("topics-demo")]
    assert left == []


class SilentReader:
    """A client whose group never gets a message."""

    def consume(self, *arguments: Any, **options: Any) -> Any:
        return SimpleNamespace(messages=[])


def test_measuring_prints_what_it_waits_for_and_fails_when_nothing_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = runpy.run_path(str(DEMO))
    settings = demo["measure"].__globals__
    monkeypatch.setitem(settings, "NOTICE_SECONDS", 0)
    monkeypatch.setitem(settings, "MAX_STALL_SECONDS", 0.2)
    (tmp_path / "log").write_text("the pipeline's last line")
    chat = SimpleNamespace(write=lambda messages: None)
    pipeline = SimpleNamespace(ended=False, activity=lambda: (0, 0), log=tmp_path / "log")
    with pytest.raises(demo["Failed"], match=r"message 1001 at its reader(.|\n)*the pipeline's last line"):
        demo["measure"](SilentReader(), chat, pipeline)
    assert "waiting for message 1001 at its reader" in capsys.readouterr().out
