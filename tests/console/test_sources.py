"""The sources of the console: format, size, and nothing that turns text into HTML or names another host."""

import re
import subprocess
from pathlib import Path

import pytest

import topics

FOLDER = Path(topics.__file__).parent / "console"
ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = sorted(FOLDER.rglob("*.js"))
FILES = [*SCRIPTS, FOLDER / "styles.css", FOLDER / "index.html"]
# Prettier breaks code after 120 characters; texts are not broken.
MAX_LINE = 240
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function|javascript:"
)


def test_all_files_together_are_small() -> None:
    assert sum([path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()]) < 300_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_file_is_formatted(path: Path) -> None:
    text = path.read_text()
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    for number, line in enumerate(text.split("\n"), start=1):
        assert "\t" not in line, number
        assert line == line.rstrip(), number
        assert len(line) <= MAX_LINE, number


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_file_makes_no_html_from_text_and_names_no_other_host(path: Path) -> None:
    text = path.read_text()
    assert UNSAFE.findall(text) == []
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    assert "var " not in re.sub(r"//.*|/\*.*?\*/", "", text, flags=re.DOTALL) or path.suffix != ".js"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_module_imports_what_it_uses_and_uses_what_it_imports(path: Path) -> None:
    text = path.read_text()
    code = re.sub(r"^import .*?;$", "", text, flags=re.MULTILINE | re.DOTALL)
    for names, source in re.findall(r"import \{([^}]*)\} from \"([^\"]+)\"", text):
        target = (path.parent / source).resolve()
        assert target.is_file(), source
        for name in [each.strip() for each in names.split(",") if each.strip()]:
            assert re.search(rf"\b{re.escape(name)}\b", code), f"{name} is not used"
            assert re.search(rf"export .*\b{re.escape(name)}\b", target.read_text()), f"{name} is not exported"


@pytest.mark.slow
def test_prettier_and_eslint_accept_the_sources() -> None:
    if not (ROOT / "build" / "lint" / "node_modules").is_dir():
        pytest.skip("prettier and eslint are not installed; `make lint-console` installs them with npm")
    done = subprocess.run(["make", "lint-console"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
