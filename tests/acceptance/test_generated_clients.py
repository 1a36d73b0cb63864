"""Clients that stock generators make from /openapi.json compile, and a program that uses them works.

    TypeScript  openapi-typescript and openapi-fetch, from npm
    Go          oapi-codegen, from the Go module proxy

The generators are downloaded, so these tests are for `make test-clients`. They are skipped where node or go is not installed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

SOURCES = Path(__file__).parent / "generated_clients"
NPM_PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3")
OAPI_CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
# Downloads and compilers on a slow machine.
MAX_SECONDS = 600

pytestmark = [pytest.mark.clients, pytest.mark.timeout(2 * MAX_SECONDS)]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as address:
        with Api(address) as api:
            (tmp_path / "openapi.json").write_bytes(api.get("/openapi.json").body)
        yield address


def run(directory: Path, *command: str, **environment: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.skipif(shutil.which("npm") is None, reason="node and npm are not installed")
def test_typescript_client_compiles_and_works(url: str, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "smoke", "private": true, "type": "module"}')
    shutil.copy(SOURCES / "smoke.ts", tmp_path)
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund", *NPM_PACKAGES)
    run(tmp_path, "npx", "openapi-typescript", "openapi.json", "-o", "schema.d.ts")
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom")
    run(tmp_path, "npx", "tsc", *options, "smoke.ts")
    assert run(tmp_path, "node", "smoke.js", url) == "ok\n"


@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed")
def test_go_client_compiles_and_works(url: str, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module smoke\n\ngo 1.22\n")
    (tmp_path / "api").mkdir()
    run(tmp_path, "go", "run", OAPI_CODEGEN, "-package", "api", "-generate", "types,client", "-o", "api/client.go",
        "openapi.json")  # fmt: skip
    shutil.copy(SOURCES / "main.go", tmp_path)
    run(tmp_path, "go", "mod", "tidy")
    run(tmp_path, "go", "vet", "./...")
    assert run(tmp_path, "go", "run", ".", url) == "ok\n"
