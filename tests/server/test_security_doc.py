"""docs/SECURITY.md speaks of what is there."""

import re
from pathlib import Path

from topics.model.limits import Limits
from topics.server.ops.options import OPTIONS
from topics.server.ops.settings import OTHER_VARIABLES

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "SECURITY.md").read_text(encoding="utf-8")


def test_every_variable_it_names_exists() -> None:
    named = set(re.findall(r"TOPICS_[A-Z_]+", TEXT))
    assert named
    assert named <= {option.variable for option in OPTIONS} | OTHER_VARIABLES


def test_defaults_in_its_table_are_the_defaults() -> None:
    rows = re.findall(r"\| `TOPICS_(MAX_[A-Z_]+)` \| (\d+) \|", TEXT)
    assert len(rows) == 7
    for name, default in rows:
        assert getattr(Limits(), name.lower()) == int(default), name


def test_every_metric_it_names_exists() -> None:
    source = (Path(__file__).resolve().parents[2] / "src/topics/server/ops/monitoring/metrics.py").read_text(
        encoding="utf-8"
    )
    for name in re.findall(r"topics_[a-z_]+", TEXT):
        assert f'"{name}"' in source
