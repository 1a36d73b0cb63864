"""The lanes of `make test`: nothing that goes wrong in one of them is lost in the sum."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSES = "def test_it(): pass\ndef test_too(): pass\n"
FAILS = "def test_it(): assert 1 + 1 == 3\n"
DIES = "import os\ndef test_it(): os._exit(0)\n"
BREAKS = "import pytest\n@pytest.fixture\ndef broken(): raise RuntimeError('no such luck')\ndef test_it(broken): pass\n"
STAYS = "import time, pathlib\ndef test_it():\n    pathlib.Path({!r}).touch()\n    time.sleep(60)\n"
PROGRAM = "import sys\nfrom tests.lanes import run\nsys.exit(run({{'one': [{!r}], 'two': [{!r}]}}, sys.argv[1:]))"

pytestmark = pytest.mark.slow


class Lanes:
    """Two lanes with a file of tests each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self, one: str, two: str, *options: str) -> "subprocess.Popen[str]":
        paths = []
        for name, text in (("one", one), ("two", two)):
            path = self._directory / name / f"test_{name}.py"
            path.parent.mkdir()
            path.write_text(text)
            paths.append(str(path))
        command = [sys.executable, "-c", PROGRAM.format(*paths), f"--rootdir={self._directory}", *options]
        command += ["-p", "no:cacheprovider", "-c", os.devnull]
        # Plugins that are installed take seconds to import, and these tests use none of them.
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        }
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, one: str, two: str, *options: str) -> tuple[int, str, str]:
        """Exit status, everything shown, and the last line without its frame and its time."""
        process = self.start(one, two, *options)
        output, _ = process.communicate(timeout=60)
        found = re.fullmatch(r"=+ (.*) in [\d.]+s \(\d:\d\d:\d\d\) =+", output.splitlines()[-1])
        assert found, output
        return process.returncode, output, found.group(1)


@pytest.fixture
def lanes(tmp_path: Path) -> Lanes:
    return Lanes(tmp_path)


def test_two_lanes_that_pass_are_counted_together(lanes: Lanes) -> None:
    status, output, total = lanes.run(PASSES, PASSES)
    assert (status, total) == (0, "4 passed")
    assert output.count("2 passed in") == 2, "each is shown"


@pytest.mark.parametrize("pair", [(PASSES, FAILS), (FAILS, PASSES)], ids=["second", "first"])
def test_one_failing_lane_fails_the_whole_and_is_shown(lanes: Lanes, pair: tuple[str, str]) -> None:
    status, output, total = lanes.run(*pair)
    assert (status, total) == (1, "1 failed, 2 passed")
    assert "assert (1 + 1) == 3" in output


def test_what_breaks_around_a_test_is_an_error_of_the_whole(lanes: Lanes) -> None:
    status, output, total = lanes.run(PASSES, BREAKS)
    assert (status, total) == (1, "2 passed, 1 error")
    assert "no such luck" in output


def test_a_lane_that_dies_is_an_error_though_it_said_0(lanes: Lanes) -> None:
    status, output, total = lanes.run(PASSES, DIES)
    assert (status, total) == (1, "2 passed, 1 error")
    assert "lane two ended with status 0 and without a summary" in output


def test_options_go_to_both_and_may_leave_one_lane_empty_but_not_both(lanes: Lanes, tmp_path: Path) -> None:
    status, _, total = lanes.run(PASSES, FAILS, "-k", "too")
    assert (status, total) == (0, "1 passed, 2 deselected")
    (tmp_path / "again").mkdir()
    status, _, total = Lanes(tmp_path / "again").run(PASSES, FAILS, "-k", "nowhere")
    assert (status, total) == (1, "3 deselected")


def test_no_lane_outlives_the_runner(lanes: Lanes, tmp_path: Path) -> None:
    marks = [tmp_path / "begun-one", tmp_path / "begun-two"]
    process = lanes.start(*[STAYS.format(str(mark)) for mark in marks])
    try:
        deadline = time.monotonic() + 60
        while not all([mark.exists() for mark in marks]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        # The end of what they write is the end of all that could write it.
        process.communicate(timeout=60)
        assert process.returncode != 0
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
