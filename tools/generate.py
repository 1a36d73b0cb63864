"""Write the files that are made from the code: the API reference, the pages of docs/reference and the clients (`make generate`).

`tests/api/test_generated.py` fails when one of them is not current.
"""

import subprocess
import sys
from pathlib import Path

from tools.clients import client_files, formatted
from tools.reference_pages import reference_pages
from tools.sync import sync_sources
from topics.api.documents.reference import markdown

ROOT = Path(__file__).resolve().parent.parent


def files() -> dict[str, str]:
    """The generated files with their contents, by path."""
    clients = client_files()
    sync = {path: formatted(path, source) for path, source in sync_sources(clients).items()}
    return {"docs/api.md": markdown(), **reference_pages(), **clients, **sync}


def main() -> None:
    written = []
    for path, text in files().items():
        target = ROOT / path
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
            written.append(path)
            print(f"wrote {path}")
    if any([path.startswith("src/topics/client/") for path in written]):
        # The page of the Python methods is made from the clients, which this process has imported as they were.
        subprocess.run([sys.executable, "-m", "tools.generate"], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
