"""Two spellings of one location are equal, and what readers could read differently is not plain."""

import pytest

from topics.model.tables.location import Location, parse_location, parse_root


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/lake/orders", Location("file", "", "/lake/orders")),
        ("/lake//./orders/", Location("file", "", "/lake/orders")),
        # A path is taken as it is.
        ("/lake/my%20orders", Location("file", "", "/lake/my%20orders")),
        ("/lake/%2e%2e/orders", Location("file", "", "/lake/%2e%2e/orders")),
        ("/lake/a?b#c", Location("file", "", "/lake/a?b#c")),
        ("/", Location("file", "", "")),
        ("file:///lake/orders/", Location("file", "", "/lake/orders")),
        ("FILE:///lake/my%20orders", Location("file", "", "/lake/my orders")),
        ("file:/lake/orders", Location("file", "", "/lake/orders")),
        ("file://localhost/lake", Location("file", "", "/lake")),
        ("s3://lake/a/b", Location("s3", "lake", "/a/b")),
        ("S3://LAKE/a/b//", Location("s3", "lake", "/a/b")),
        ("s3a://lake/a/b", Location("s3", "lake", "/a/b")),
        ("s3://lake/A", Location("s3", "lake", "/A")),
        ("s3://lake/a%2Fb", Location("s3", "lake", "/a/b")),
        ("s3://lake/a%252Fb", Location("s3", "lake", "/a%2Fb")),
        ("s3://lake", Location("s3", "lake", "")),
        (
            "abfss://Container@Account.dfs.core.windows.net/x",
            Location("abfss", "container@account.dfs.core.windows.net", "/x"),
        ),
    ],
)
def test_location_has_one_spelling(text: str, location: Location) -> None:
    assert parse_location(text) == location


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lake/orders", "/lake/orders"),
        ("./lake", "/lake"),
        ("/lake/../etc", "/etc"),
        ("/lake/a/../b", "/lake/b"),
        ("/../../etc", "/etc"),
        ("file:///lake/../etc", "/etc"),
        ("file:///lake/%2e%2e/etc", "/etc"),
        ("file:///lake/%2E./etc", "/etc"),
        ("file://elsewhere/lake", "/lake"),
        ("file:lake", "/lake"),
        ("file:///lake?x", "/lake"),
        ("s3://lake/a/../../b", "/b"),
        ("s3://lake/a/..%2fb", "/b"),
        ("s3://lake/a?versionId=1", "/a"),
        ("s3://lake/a#b", "/a"),
        ("s3://lake/a\\..\\b", "/a\\..\\b"),
        ("s3:///a", "/a"),
        ("s3://lake/a%00b", "/a\x00b"),
    ],
)
def test_what_readers_could_read_differently_is_not_plain(text: str, path: str) -> None:
    location = parse_location(text)
    assert (location.path, location.plain) == (path, False)


@pytest.mark.parametrize("text", ["s3://[bad/x", "s3://lake/%ff"])
def test_what_is_no_uri_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds
        parse_location(text)


@pytest.mark.parametrize(
    ("inner", "outer", "inside"),
    [
        ("/lake/a", "/lake", True),
        ("/lake/a/b", "/lake", True),
        ("/lake", "/lake", False),
        ("/lakeside", "/lake", False),
        ("/lake", "/lake/a", False),
        ("/a", "/", True),
        ("s3://lake/a", "s3://lake", True),
        ("s3://lake/a", "s3://other", False),
        ("s3://lake/a", "/", False),
        ("gs://lake/a", "s3://lake", False),
    ],
)
def test_inside_means_below_in_the_same_store(inner: str, outer: str, inside: bool) -> None:
    assert parse_location(inner).is_inside(parse_location(outer)) == inside


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("/lake/a", "file:///lake/a/", True),
        ("/lake/a", "/lake/a/b", True),
        ("/lake/a", "/lake/b", False),
        ("/lake/a", "/lake/ab", False),
        ("/lake/a", "/lake/a_quarantine", True),
        ("/lake/a", "/lake/a_quarantine/b", True),
        ("/lake/a", "/lake/a_quarantined", False),
        ("/lake/a/b", "/lake", True),
        ("s3://lake/a", "s3://Lake//a", True),
        ("s3://lake/a", "s3://other/a", False),
        ("s3://lake/a", "/a", False),
    ],
)
def test_two_tables_overlap_where_their_directories_do(one: str, other: str, overlap: bool) -> None:
    first, second = parse_location(one), parse_location(other)
    assert first.overlaps(second) == second.overlaps(first) == overlap


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/srv/lake", True), ("lake", True), ("s3://lake/archives", True), ("file:///srv/lake", True), ("file:/srv", True),
        ("/srv/../etc", False), ("../lake", False), ("s3://lake/a?b", False), ("file://host/srv", False), ("s3://[bad", False),
    ],
)  # fmt: skip
def test_root_is_kept_as_written_if_it_is_plain(text: str, kept: bool) -> None:
    assert parse_root(text) == (text if kept else None)
