"""The wheel and the source distribution: built from this tree, installed into a bare environment, and used."""

import os
import subprocess
import sys
import tarfile
import time
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist of this tree."""
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return directory


def test_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"topics", "pyspark_topics"}
    assert "topics/py.typed" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_source_distribution_can_be_tested(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    assert "tests/test_packaging.py" in names


@pytest.fixture(scope="module")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` directory of a virtual environment with the pinned requirements and without this package."""
    directory = tmp_path_factory.mktemp("venv")
    venv.create(directory, with_pip=True)
    requirements = ["-r", ROOT / "requirements.txt", "-r", ROOT / "requirements-build.txt"]
    subprocess.run([*pip_install(directory / "bin"), "--no-compile", *requirements], check=True, cwd=directory)
    return directory / "bin"


def pip_install(programs: Path) -> list[str | Path]:
    return [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"], ids=["wheel", "sdist"])
def test_distribution_serves_from_a_bare_environment(
    built: Path, bare_environment: Path, tmp_path: Path, kind: str
) -> None:
    (distribution,) = built.glob(kind)
    install = [*pip_install(bare_environment), "--no-build-isolation", "--force-reinstall", distribution]
    subprocess.run(install, check=True, cwd=tmp_path)
    # The pinned requirements are all that the package asks for.
    subprocess.run([bare_environment / "python", "-m", "pip", "check"], check=True, cwd=tmp_path)
    port_file = tmp_path / "port"
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("TOPICS_", "PYTHON"))}
    settings = {"TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(port_file), "TOPICS_DATA_DIR": str(tmp_path / "data")}
    with subprocess.Popen([bare_environment / "topics", "serve"], env={**bare, **settings}, cwd=tmp_path) as server:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not port_file.exists():
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            url = f"http://{port_file.read_text().strip()}"
            with urllib.request.urlopen(f"{url}/readyz", timeout=PATIENCE_S) as response:
                assert response.status == 200
            wrote = [bare_environment / "topics", "append", "t", '{"a": 1}']
            subprocess.run(wrote, env={**bare, "TOPICS_URL": url}, check=True, capture_output=True, cwd=tmp_path)
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
    assert server.returncode == 0
