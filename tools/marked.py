"""Parts of documents that a program writes, between `<!-- NAME -->` and `<!-- /NAME -->`."""

from pathlib import Path


def marked(text: str, name: str) -> str:
    """The text between the markers. Raises ValueError when they are missing."""
    start, end = text.index(f"<!-- {name} -->\n"), text.index(f"<!-- /{name} -->")
    return text[start + len(f"<!-- {name} -->\n") : end]


def write_marked(path: Path, name: str, content: str) -> None:
    """Replace what is between the markers of the file."""
    text = path.read_text(encoding="utf-8")
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    path.write_text(text.replace(start + marked(text, name) + end, start + content + end), encoding="utf-8")
