"""What is reported about archives is kept through kills and power cuts, whatever the snapshot held when it was taken."""

import itertools
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from topics.broker.log.apply import apply
from topics.broker.tables import archives
from topics.broker.tables.archives import clear_archive, report_progress, set_archive
from topics.model.errors import Conflict, InvalidRequest, NotFound, Throttled, TopicsError
from topics.model.facts import ArchiveCleared, ArchiveProgressed, ArchiveSet, Fact, TopicDeleted
from topics.model.storage_settings import StorageSettings
from topics.model.tables.archive import Archive, ArchivedTo, ArchiveOptions
from topics.testing.disk.fake_disk import FakeDisk, PowerCut

CHECKPOINTS = msgspec.structs.replace(SMALL, checkpoint_bytes=3000)
A, B = ArchiveOptions("s3://lake/a"), ArchiveOptions("s3://lake/b")


def put(site: BrokerUnderTest, name: str, options: ArchiveOptions) -> None:
    site.ask(set_archive, site.broker, name, options)


def clear(site: BrokerUnderTest, name: str) -> None:
    site.ask(clear_archive, site.broker, name)


def report(
    site: BrokerUnderTest, name: str, next_seq: int, table_version: int | None = None, partition: int = 0
) -> None:
    places = [ArchivedTo(partition, site.broker.topic(name).epoch, next_seq)]
    site.ask(report_progress, site.broker, name, places, table_version)


def drop(site: BrokerUnderTest, name: str) -> None:
    site.ask(site.broker.delete_topic, name, if_empty=False)


def wishes(site: BrokerUnderTest) -> dict[str, ArchiveOptions]:
    """By name, of the topics that have one; the index agrees with the topics."""
    state = site.broker.state
    assert state.archived == {topic.id: topic for topic in state.by_id.values() if topic.archive is not None}
    return {topic.name: topic.archive.options for topic in state.archived.values() if topic.archive is not None}


def place(site: BrokerUnderTest, name: str) -> tuple[int, int | None]:
    archive = site.broker.topic(name).archive
    assert archive is not None
    (known,) = archive.archived or (ArchivedTo(0, 0, 0),)
    return known.next_seq, archive.table_version


@pytest.mark.parametrize("settings", [SMALL, CHECKPOINTS])
def test_archives_and_their_progress_survive_kills_cuts_and_clean_stops(settings: StorageSettings) -> None:
    site = BrokerUnderTest(settings=settings)
    for name in ("a", "b", "c"):
        site.append(name, 1, 2, 3)
    put(site, "a", A)
    put(site, "b", ArchiveOptions("s3://lake/x", 1000, 0, 0))
    put(site, "b", B)
    put(site, "c", ArchiveOptions("s3://lake/c"))
    report(site, "a", 3, 7)
    report(site, "b", 4)
    clear(site, "c")
    version = site.broker.state.versions.archives.now
    assert version == 5
    ends = [site.after_kill(), site.after_power_cut()]
    stopped: list[bool] = []
    site.broker.stop(stopped.append)
    site.wait(50)
    assert stopped == [True]
    for each in (site, *ends, site.after_kill()):
        assert wishes(each) == {"a": A, "b": B}
        assert (place(each, "a"), place(each, "b")) == ((3, 7), (4, None))
        assert each.broker.state.versions.archives.now == version


@pytest.mark.parametrize(("survive", "seed"), [("none", 0), ("random", 1), ("all", 2)])
def test_what_was_acknowledged_about_an_archive_survives_a_power_cut_at_any_step(survive: Any, seed: int) -> None:
    for step in itertools.count(1):
        disk = FakeDisk(seed=seed)
        disk.make_directory("")
        disk.cut_at = disk.steps + step
        acked: dict[str, ArchiveOptions] = {}
        reached: dict[str, int] = {}
        version = 0
        under_way = ""
        try:
            site = BrokerUnderTest(disk, CHECKPOINTS)
            for name in ("a", "b"):
                under_way = name
                # Large enough that snapshots are taken in between.
                site.append(name, *["x" * 200] * 12)
            for number in range(14):
                name = under_way = "ab"[number % 2]
                options = ArchiveOptions(f"s3://lake/{name}{number // 6}", 1000 + number)
                if number == 9:
                    drop(site, name)
                    acked.pop(name, None)
                    reached.pop(name, None)
                    site.append(name, *["x" * 200] * 12)
                elif number in (4, 11) and name in acked:
                    clear(site, name)
                    del acked[name]
                    reached.pop(name, None)
                else:
                    if name not in acked or acked[name].uri != options.uri:
                        reached.pop(name, None)
                    put(site, name, options)
                    acked[name] = options
                    report(site, name, number % 12 + 1, number)
                    reached[name] = max(reached.get(name, 0), number % 12 + 1)
                version = site.broker.state.versions.archives.now
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        again = BrokerUnderTest(disk.after_power_cut(survive=survive, seed=seed), CHECKPOINTS)
        found = wishes(again)
        assert {name: each for name, each in found.items() if name != under_way} == {
            name: each for name, each in acked.items() if name != under_way
        }, step
        for name, next_seq in reached.items():
            if name != under_way:
                assert place(again, name)[0] == next_seq, (step, name)
        assert again.broker.state.versions.archives.now >= version
        # A second end finds the same.
        assert wishes(again.after_kill()) == found
    assert step > 40


def test_facts_replayed_over_any_later_state_lead_to_the_same_end() -> None:
    """A snapshot may hold the effects of any number of the facts that are replayed over it, twice if need be."""
    site = BrokerUnderTest()
    site.append("t", *range(9))
    topic_id, epoch = site.broker.topic("t").id, site.broker.topic("t").epoch

    def progress(begun: int, next_seq: int, table_version: int) -> ArchiveProgressed:
        return ArchiveProgressed(topic_id, begun, [ArchivedTo(0, epoch, next_seq)], table_version, next_seq)

    facts: list[Fact] = [
        ArchiveSet(topic_id, A, 1, 1, 10),
        progress(1, 5, 50),
        ArchiveSet(topic_id, ArchiveOptions("s3://lake/a", 5000), 1, 2, 20),
        progress(1, 9, 90),
        ArchiveSet(topic_id, B, 3, 3, 30),
        progress(3, 2, 2),
        ArchiveCleared(topic_id, 4),
        ArchiveSet(topic_id, A, 5, 5, 50),
        progress(5, 3, 3),
        progress(5, 4, 4),
    ]
    state = site.broker.state
    topic = site.broker.topic("t")

    def after(applied: list[Fact]) -> tuple[Archive | None, int, bool]:
        for fact in applied:
            apply(state, fact)
        return topic.archive, state.versions.archives.now, topic_id in state.archived

    for end in range(1, len(facts) + 1):
        topic.archive = None
        state.archived.clear()
        want = after(facts[:end])
        for start, held in itertools.product(range(end), range(end + 1)):
            topic.archive = None
            state.archived.clear()
            after(facts[: max(held, start)])
            # From the cut on everything is replayed, whatever of it the image held.
            assert after(facts[start:end]) == want, (start, held, end)


def test_facts_about_a_topic_that_is_gone_raise_the_version_and_nothing_else() -> None:
    site = BrokerUnderTest()
    site.append("t", 1)
    topic_id = site.broker.topic("t").id
    state = site.broker.state
    apply(state, ArchiveSet(topic_id, A, 1, 1, 10))
    apply(state, TopicDeleted(topic_id))
    assert state.archived == {}
    apply(state, ArchiveSet(topic_id, B, 2, 2, 10))
    apply(state, ArchiveProgressed(topic_id, 2, [ArchivedTo(0, 1, 1)], 1, 10))
    apply(state, ArchiveCleared(topic_id, 3))
    assert (state.archived, state.versions.archives.now) == ({}, 3)


def test_the_next_topic_of_the_name_has_no_archive_and_begins_with_a_new_one() -> None:
    site = BrokerUnderTest()
    site.append("t", 1, 2)
    put(site, "t", A)
    report(site, "t", 3, 9)
    notified: list[int] = []
    site.broker.state.versions.archives.watchers.add(lambda: notified.append(site.broker.state.versions.archives.now))
    drop(site, "t")
    site.append("t", 1, 2)
    put(site, "t", A)
    assert notified == [2, 3]
    for each in (site, site.after_kill()):
        assert (wishes(each), place(each, "t")) == ({"t": A}, (0, None))
    site.checkpoint()
    assert place(site.after_kill(), "t") == (0, None)


def test_progress_that_was_decided_before_the_archive_went_to_another_table_is_not_that_ones() -> None:
    site = BrokerUnderTest()
    site.append("t", 1, 2, 3)
    put(site, "t", A)
    epoch = site.broker.topic("t").epoch
    got: list[Any] = []
    report_progress(site.broker, "t", [ArchivedTo(0, epoch, 4)], 5, got.append)
    set_archive(site.broker, "t", B, got.append)
    report_progress(site.broker, "t", [ArchivedTo(0, epoch, 2)], 1, got.append)
    assert got == []
    site.runtime.run()
    assert not any([isinstance(outcome, TopicsError) for outcome in got])
    assert (wishes(site), place(site, "t")) == ({"t": B}, (2, 1))


def test_progress_beside_the_end_of_its_topic_or_archive_is_decided_in_order() -> None:
    site = BrokerUnderTest()
    site.append("t", 1, 2, 3)
    put(site, "t", A)
    epoch = site.broker.topic("t").epoch
    got: list[Any] = []
    report_progress(site.broker, "t", [ArchivedTo(0, epoch, 2)], 1, got.append)
    clear_archive(site.broker, "t", got.append)
    report_progress(site.broker, "t", [ArchivedTo(0, epoch, 3)], 2, got.append)
    site.broker.delete_topic("t", if_empty=False, reply=got.append)
    report_progress(site.broker, "t", [ArchivedTo(0, epoch, 3)], 2, got.append)
    site.runtime.run()
    codes = [outcome.code if isinstance(outcome, TopicsError) else "" for outcome in got]
    assert sorted(codes) == ["", "", "", "not_found", "topic_not_found"]
    assert (wishes(site), wishes(site.after_kill())) == ({}, {})


def test_other_options_for_the_same_table_keep_how_far_it_has_come() -> None:
    site = BrokerUnderTest()
    site.append("t", 1, 2, 3)
    put(site, "t", A)
    report(site, "t", 3, 7)
    put(site, "t", ArchiveOptions("s3://lake/a/", 2000))
    assert (place(site, "t"), place(site.after_kill(), "t")) == ((3, 7), (3, 7))


def test_two_topics_asking_for_one_table_at_once_get_it_once() -> None:
    site = BrokerUnderTest()
    site.append("a", 1)
    site.append("b", 1)
    got: list[Any] = []
    set_archive(site.broker, "a", A, got.append)
    with pytest.raises(Conflict):
        set_archive(site.broker, "b", ArchiveOptions("s3://lake/a/"), got.append)
    site.runtime.run()
    assert (wishes(site), site.broker.archives_in_flight) == ({"a": A}, set())


def test_a_repeated_report_writes_nothing() -> None:
    site = BrokerUnderTest()
    site.append("t", 1, 2, 3)
    put(site, "t", A)
    report(site, "t", 3, 5)
    frames = site.broker.committer.frames_total
    report(site, "t", 3, 5)
    report(site, "t", 2, 4)
    put(site, "t", A)
    assert site.broker.committer.frames_total == frames


def test_a_report_about_what_the_topic_never_had_is_refused() -> None:
    site = BrokerUnderTest()
    site.append("t", 1, 2, 3)
    epoch = site.broker.topic("t").epoch
    with pytest.raises(NotFound):
        report(site, "t", 1)
    put(site, "t", A)
    for wrong in (ArchivedTo(1, epoch, 1), ArchivedTo(0, epoch + 1, 1), ArchivedTo(0, epoch, 5)):
        with pytest.raises(InvalidRequest):
            site.ask(report_progress, site.broker, "t", [ArchivedTo(0, epoch, 2), wrong], None)
    assert place(site, "t") == (0, None)


def test_the_number_of_archives_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ARCHIVES", 1)
    site = BrokerUnderTest()
    site.append("a", 1)
    site.append("b", 1)
    put(site, "a", A)
    with pytest.raises(Throttled) as full:
        put(site, "b", B)
    assert full.value.detail == {"limit": "max_archives", "max": 1}
    put(site, "a", B)
    clear(site, "a")
    put(site, "b", A)
    assert wishes(site) == {"b": A}
