"""The sync client from the async one: the same text without `async` and `await`, and with the names of the sync parts."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/topics/client/asynchronous"
TARGET = "src/topics/client/sync"
# Modules that exist twice by hand: they are where asyncio and threads differ.
BY_HAND = frozenset({"__init__.py", "concurrency.py", "connection.py", "worker.py"})
NOTE = "Generated from topics.client.asynchronous by `make generate`; do not edit."
REPLACEMENTS = (
    (r"topics\.client\.asynchronous", "topics.client.sync"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    # A generator of threads has two type parameters more.
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync([A-Z]\w+)", r"\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"for asyncio programs", "for ordinary programs"),
    (r"many tasks of one event loop", "many threads"),
)


def sync_source(text: str) -> str:
    """The sync version of a module."""
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    first, rest = text.split("\n", 1)
    if "Generated" in first:
        return f"{first}\n{rest}"
    return f"{first.removesuffix(chr(34) * 3)} {NOTE}{chr(34) * 3}\n{rest}"


def sync_sources(changed: dict[str, str]) -> dict[str, str]:
    """The sync modules by path. `changed` holds async modules that are about to be written, by path."""
    found = {}
    for path in sorted(SOURCE.glob("*.py")):
        if path.name not in BY_HAND:
            relative = str(path.relative_to(ROOT))
            found[f"{TARGET}/{path.name}"] = sync_source(changed.get(relative, path.read_text()))
    return found
