"""A browser of a test runs scripts in its page, and what goes wrong in one is raised."""

from pathlib import Path

import pytest

from topics.testing.chromium import Chromium


@pytest.mark.slow
def test_scripts_run_in_the_page_and_their_errors_are_raised(tmp_path: Path) -> None:
    with Chromium(tmp_path / "profile") as browser:
        browser.go_to("data:text/html,<title>found</title>")
        assert browser.run("document.title") == "found"
        assert browser.run("new Promise(done => setTimeout(() => done([1, null, 'x']), 1))") == [1, None, "x"]
        with pytest.raises(AssertionError, match="no such thing"):
            browser.run("throw new Error('no such thing')")
        browser.run("setTimeout(() => { window.ready = true }, 30)")
        browser.wait_for("window.ready === true")
