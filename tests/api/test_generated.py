"""Generated files are current: `make generate` writes them."""

from tools.generate import ROOT, files


def test_generated_files_are_current() -> None:
    outdated = [path for path, text in files().items() if (ROOT / path).read_text() != text]
    assert outdated == [], "run `make generate`"
