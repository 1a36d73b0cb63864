"""A table that cannot be made or opened: the error names the path and the reason."""

from pathlib import Path

import pytest

from topics.archive.ledger import ArchiveError, open_archive


def test_archive_that_cannot_be_created_says_which_path_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError) as refused:
        open_archive(str(tmp_path / "file" / "table"), create=True)
    assert str(refused.value).splitlines() == [
        f"cannot make a table at {tmp_path}/file/table: {tmp_path}/file/table: Not a directory"
    ]


def test_archive_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for create in (False, True):
        with pytest.raises(ArchiveError, match=f"{tmp_path}/file is a file, not a directory"):
            open_archive(f"file://{tmp_path}/file", create=create)


def test_unknown_store_is_named_in_one_line() -> None:
    with pytest.raises(ArchiveError) as refused:
        open_archive("hdfs://host/table", create=True)
    message = str(refused.value)
    assert message.startswith("cannot open hdfs://host/table: ")
    assert "\n" not in message
    assert "\x1b" not in message


def test_path_with_a_nul_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="NUL"):
        open_archive(f"{tmp_path}/\0", create=True)
