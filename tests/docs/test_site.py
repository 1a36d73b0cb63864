"""The documentation site: every page is in it, no link is broken, and nothing is loaded from another host."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.test_project import ROOT, project_files

DOCS = ROOT / "docs"
DOCUMENTS = sorted([path for path in project_files() if path.suffix == ".md"])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
EXTERNAL = re.compile(r"""(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""")
# Anchors to other sites in the text are links, not assets.
ASSET = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*>")


def pages_in(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        return [page for value in entry.values() for page in pages_in(value)]
    assert isinstance(entry, list)
    return [page for each in entry for page in pages_in(each)]


def anchor(heading: str) -> str:
    text = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading)).strip().lower()
    return re.sub(r"[\s]+", "-", text)


def anchors_of(page: Path) -> set[str]:
    return {anchor(line.lstrip("#")) for line in FENCE.sub("", page.read_text()).splitlines() if line.startswith("#")}


def test_every_page_is_in_the_navigation() -> None:
    listed = pages_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    decisions = {page for page in written if re.match(r"decisions/\d", page)}
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) == written - decisions
    index = (DOCS / "decisions" / "index.md").read_text()
    assert {f"decisions/{target}" for target in re.findall(r"\((\d[^)]*)\)", index)} == decisions


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for match in LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (fragment and found.suffix == ".md" and fragment not in anchors_of(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.slow
def test_site_builds_without_warnings_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert (site / "index.html").exists()
    external = {
        found.group()
        for page in site.rglob("*.html")
        for tag in ASSET.findall(page.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in tag and (found := EXTERNAL.search(tag))
    }
    assert external == set()
    assert broken_links(site) == set()


def broken_links(site: Path) -> set[str]:
    """Links of the built pages to a file or a heading that the site does not have."""
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    headings = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    broken = set()
    for page, text in pages.items():
        for link in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if re.match(r"[a-z]+:|//", link):
                continue
            if not target.exists() or (heading and target in headings and heading not in headings[target]):
                broken.add(f"{page.relative_to(site)}: {link}")
    return broken


def test_decisions_have_contiguous_numbers_and_the_index_lists_them() -> None:
    pages = sorted([path.name for path in (DOCS / "decisions").glob("0*.md")])
    assert [int(name[:4]) for name in pages] == [*range(1, len(pages) + 1)]
    index = (DOCS / "decisions" / "index.md").read_text()
    titles = {name: (DOCS / "decisions" / name).read_text().partition("\n")[0].removeprefix("# ") for name in pages}
    assert [f"| {int(name[:4])} | [{titles[name]}]({name}) |" in index for name in pages] == [True] * len(pages)
