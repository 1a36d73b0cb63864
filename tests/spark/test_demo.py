"""`make demo` ends by itself, prints what its documentation promises, and leaves no files or processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import python_path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


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
