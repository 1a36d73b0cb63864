"""docs/SETTINGS.md lists every setting with its default."""

import re
from pathlib import Path

import pytest

from topics.server.ops.options import OPTIONS, Option
from topics.server.ops.settings import load_settings

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "SETTINGS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.variable)
def test_setting_is_listed_in_its_section_with_its_default(option: Option) -> None:
    settings = load_settings({})
    holder = getattr(settings, option.group, settings)
    value = getattr(holder, option.field)
    shown = "" if value in (None, ()) else str(value).lower() if isinstance(value, bool) else str(value)
    section = TEXT.partition(f"## [{option.section}]\n")[2].partition("\n## ")[0]
    row = re.search(rf"^\| `{option.variable}` \| `{option.key}` \| (.*?) \| (.+) \|$", section, re.MULTILINE)
    assert row is not None
    assert row[1] == shown
    assert len(row[2]) > 5


def test_nothing_is_listed_that_does_not_exist() -> None:
    listed = set(re.findall(r"^\| `(TOPICS_\w+)`", TEXT, re.MULTILINE))
    assert listed == {option.variable for option in OPTIONS}
