"""Which dead letters a redrive moves."""

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Totals
from topics.engine.queues.redrive import DeadLetters, WantedLetters, find_dead_letters
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.dead_letter_meta import with_origin
from topics.model.records.match import TagMatch
from topics.model.records.page import make_page
from topics.model.steps import finish


def new_topic(number: int, name: str, kind: str) -> Topic:
    config = TopicConfig(type=kind)  # type: ignore[arg-type]
    return Topic(number, name, config, 1, 0, texts=Cache(0), totals=Totals())


def found(wanted: WantedLetters, may_touch: bool = True) -> DeadLetters:
    """Dead letters 1 and 2 of `a`, 3 of `b`, 4 of a queue that does not exist; 5 is no dead letter."""
    dead = new_topic(1, "dead", "log")
    metas = b"\0".join([with_origin(b"", queue, 1, 1) for queue in ("a", "a", "b", "missing")] + [b""])
    dead.partitions[0].apply_append(make_page(1, 5, 5, b"1\x001\x001\x001\x001", metas, None, b'"x"\0"y"\0\0\0'))
    topics = {"dead": dead, "a": new_topic(2, "a", "queue"), "b": new_topic(3, "b", "queue")}
    return finish(find_dead_letters(topics, dead, wanted, lambda _: may_touch))


def test_letters_are_grouped_by_the_queue_they_came_from() -> None:
    letters = found(WantedLetters())
    assert (letters.by_queue, letters.skipped, letters.remaining) == ({"a": [1, 2], "b": [3]}, 2, 0)


def test_only_letters_that_meet_all_conditions_are_found() -> None:
    assert found(WantedLetters(queue="b")).by_queue == {"b": [3]}
    assert found(WantedLetters(seqs=frozenset([2, 3]))).by_queue == {"a": [2], "b": [3]}
    assert found(WantedLetters(match=TagMatch("x", False))).by_queue == {"a": [1]}


def test_letters_of_queues_that_the_caller_may_not_touch_are_skipped() -> None:
    assert found(WantedLetters(), may_touch=False).by_queue == {}
