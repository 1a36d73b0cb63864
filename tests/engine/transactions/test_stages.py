"""Stages are kept until they are dropped; a fence never goes back."""

from topics.engine.transactions.stages import Stages, numbered
from topics.model.facts import Fenced, Staged, StagedPart
from topics.model.records.page import make_page

PAGE = make_page(0, 2, 0, b"1\x002")


def stage(stage_id: str, producer: str | None = None) -> Staged:
    return Staged(stage_id, 1, [StagedPart(0, PAGE)], 1000, producer)


def test_bytes_are_counted_once_and_returned() -> None:
    stages = Stages()
    stages.keep(stage("a"))
    stages.keep(stage("a"))
    assert stages.bytes == PAGE.size
    assert stages.drop("a") is not None
    assert (stages.bytes, stages.drop("a")) == (0, None)


def test_stages_of_a_producer_are_known_until_the_last_is_dropped() -> None:
    stages = Stages()
    stages.keep(stage("a", "p"))
    stages.keep(stage("b", "p"))
    assert stages.by_producer == {"p": {"a", "b"}}
    stages.drop("a")
    stages.drop("b")
    assert stages.by_producer == {}


def test_renewed_stages_expire_last() -> None:
    stages = Stages()
    stages.keep(stage("a"))
    stages.keep(stage("b"))
    assert stages.renew(["a", "unknown"], 2000) == 1
    assert list(stages.renewed_ms.items()) == [("b", 1000), ("a", 2000)]


def test_an_older_batch_does_not_replace_a_fence() -> None:
    stages = Stages()
    stages.fence(Fenced("p", 5, [], 1000))
    stages.fence(Fenced("p", 4, [], 2000))
    assert stages.fences["p"].batch == 5


def test_a_snapshot_keeps_stages_and_fences_but_no_stage_of_an_ephemeral_topic() -> None:
    stages, restored = Stages(), Stages()
    stages.keep(stage("a", "p"))
    stages.keep(stage("ephemeral"))
    stages.unlogged.add("ephemeral")
    stages.fence(Fenced("p", 5, [], 1000))
    restored.restore(stages.capture()())
    assert (list(restored.stages), list(restored.fences)) == (["a"], ["p"])


def test_a_committed_page_gets_its_seqs_and_its_time() -> None:
    page = numbered(PAGE, 7, 3000)
    assert (page.first_seq, page.last_seq, page.first_ts, page.data) == (7, 8, 3000, PAGE.data)
