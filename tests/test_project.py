"""What holds for the files of the project themselves."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import topics

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "src").rglob("*.py"))

# Written so that no pattern matches its own text.
INDEX_ADDRESS = re.compile(
    rb"pypi[.](?:org|python[.]org)"
    rb"|python[h]osted[.]org"
    rb"|(?:^|\s)-{2}(?:index-url|extra-index-url|find-links|trusted-host)\b"
    rb"|https?:/[/]\S+/simple(?:/|\b)"
)
HOME_PATH = re.compile(rb"(?<![\w.~-])/(?:(?:home|Users)/\w|root[/])")


def test_no_file_names_a_package_index() -> None:
    assert list(lines_matching(INDEX_ADDRESS)) == []


def test_no_file_names_somebodys_home_directory() -> None:
    assert list(lines_matching(HOME_PATH)) == []


def test_no_file_installs_this_package_by_name_while_it_is_not_published() -> None:
    """`topics` on PyPI is another project, and `topics-engine` could become one."""
    assert "It is not on PyPI yet" in (ROOT / "docs/operate/install.md").read_text(encoding="utf-8")
    assert list(lines_matching(re.compile(rb"pip install [\"']?topics\b"))) == []


@pytest.mark.parametrize(
    ("pattern", "guilty", "innocent"),
    [
        (INDEX_ADDRESS, "see https://" + "pypi" + ".org/project/x", "a pypi package"),
        (INDEX_ADDRESS, "--" + "index-url https://x", "--no-emit-index-url"),
        (INDEX_ADDRESS, "--" + "extra-index-url=https://x", "the index url"),
        (INDEX_ADDRESS, "--" + "find-links wheels", "--no-emit-find-links"),
        (INDEX_ADDRESS, "https:" + "//mirror.example/" + "simple", "a simple answer"),
        (HOME_PATH, "cd /" + "home/ada/topics", "GET /v0/home/ada"),
        (HOME_PATH, "cd /" + "root/topics", "the root/leaf"),
        (HOME_PATH, "cd /" + "Users/ada", "a /user/ada"),
    ],
)
def test_the_patterns_tell_guilty_from_innocent(pattern: re.Pattern[bytes], guilty: str, innocent: str) -> None:
    assert pattern.search(guilty.encode())
    assert not pattern.search(innocent.encode())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_every_module_opens_with_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_every_package_has_an_init_that_says_what_it_is() -> None:
    packages = {path.parent for path in MODULES}
    assert {package for package in packages if not (package / "__init__.py").exists()} == set()


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-build.txt", "requirements-dev.txt"])
def test_every_requirement_is_pinned_to_one_version(lock: str) -> None:
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    requirements = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    assert requirements
    assert [line for line in requirements if not re.fullmatch(r"[a-z0-9-]+==[\w.]+(?: ; .+)?", line)] == []


def test_every_dependency_of_the_package_is_in_the_pinned_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert names(project["dependencies"]) <= names(locked("requirements.txt"))
    assert names(project["optional-dependencies"]["dev"]) <= names(locked("requirements-dev.txt"))
    for lock in ("requirements.txt", "requirements-build.txt"):
        assert set(locked(lock)) <= set(locked("requirements-dev.txt")), "run make lock"


def test_changelog_knows_the_version_or_says_unreleased() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{topics.__version__}]" in changelog or "## [Unreleased]" in changelog


def locked(lock: str) -> list[str]:
    """The `name==version` lines of a requirements file."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if re.match(r"[a-z0-9]", line)]


def names(requirements: list[str]) -> set[str]:
    """The distribution names, in the normal form of the lock files."""
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower().replace("_", "-") for line in requirements}


def lines_matching(pattern: re.Pattern[bytes]) -> Iterator[str]:
    """`file:line` of every line of the project's files that the pattern matches."""
    for path in project_files():
        for number, line in enumerate(path.read_bytes().splitlines(), start=1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}"


def project_files() -> list[Path]:
    """The files that are in version control or would be; in an unpacked archive, all that are not hidden or built."""
    git = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True, timeout=30).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and not is_hidden_or_built(path.relative_to(ROOT))]
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def is_hidden_or_built(path: Path) -> bool:
    """Whether a part of the path is a dot directory other than .ci, or holds build output or a server's data."""
    return any(
        (part.startswith(".") and part != ".ci") or part in {"build", "dist", "__pycache__", "topics-data"}
        for part in path.parts[:-1]
    )


def test_the_changelog_has_one_line_for_each_change() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    entries = lines[lines.index("## [Unreleased]") :]
    assert [line for line in entries if line and not line.startswith(("- ", "## ", "### ", "The first release."))] == []
    assert [line for line in entries if len(line) > 240] == []


# Every module of these packages has a test file of its name: src/topics/engine/leases/lease.py has tests/engine/leases/test_lease.py.
MIRRORED = ("model", "wire", "engine", "storage", "segments", "runtime", "maintenance", "broker")


@pytest.mark.parametrize("package", MIRRORED)
def test_every_module_has_a_test_file_of_its_name(package: str) -> None:
    source = ROOT / "src" / "topics"
    modules = [path.relative_to(source) for path in (source / package).rglob("*.py") if path.name != "__init__.py"]
    assert modules
    tests = [ROOT / "tests" / module.parent / f"test_{module.name}" for module in modules]
    assert [str(path.relative_to(ROOT)) for path in tests if not path.exists()] == []
