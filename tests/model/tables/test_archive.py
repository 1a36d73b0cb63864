"""Archives: options in their range, and progress that never goes back."""

import pytest

from topics.model.errors import InvalidRequest
from topics.model.tables.archive import Archive, ArchivedTo, ArchiveOptions, check_archive


def test_progress_never_goes_back_within_an_epoch_or_to_an_older_one() -> None:
    archive = Archive(ArchiveOptions("s3://lake/t"), 1, 1000).progressed([ArchivedTo(0, 2, 10)], 5, 2000)
    assert (archive.archived, archive.table_version, archive.updated_ts) == ((ArchivedTo(0, 2, 10),), 5, 2000)
    for report in (ArchivedTo(0, 2, 9), ArchivedTo(0, 1, 99), ArchivedTo(0, 2, 10)):
        assert archive.progressed([report], 4, 3000) is archive
    assert archive.progressed([ArchivedTo(0, 3, 1)], None, 3000).archived == (ArchivedTo(0, 3, 1),)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (ArchiveOptions("s3://lake/t", freshness_ms=999), "freshness_ms"),
        (ArchiveOptions("s3://lake/t", compact_interval_ms=1), "compact_interval_ms"),
        (ArchiveOptions("s3://lake/t", vacuum_hours=-1), "vacuum_hours"),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(options: ArchiveOptions, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        check_archive(options)


def test_zero_turns_compaction_off() -> None:
    options = ArchiveOptions("s3://lake/t", compact_interval_ms=0)
    assert check_archive(options) is options
