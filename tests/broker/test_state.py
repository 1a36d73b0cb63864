"""The state finds topics by name, id, alias and routes, and forgets all of them with a topic."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.tables.route import Route


def test_a_removed_topic_is_in_no_index() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("b")
    under_test.configure("a")
    state = under_test.broker.state
    under_test.ask(under_test.broker.set_alias, "a", "alias")
    under_test.ask(under_test.broker.change_routes, "a", lambda _, version: [Route("t", "Insert", "Full", version)])
    topic = state.topics["a"]
    assert state.names == ["a", "b"]
    assert state.aliases == {"alias": topic}
    assert [found for found, _ in state.routes["t", "Insert"]] == [topic]
    under_test.ask(under_test.broker.delete_topic, "a", if_empty=False)
    assert (state.names, state.aliases, state.routes) == (["b"], {}, {})
    assert topic.id not in state.by_id


def test_ids_of_topics_are_never_used_again() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    first = under_test.broker.topic("t").id
    under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
    again = under_test.after_kill()
    again.configure("t")
    assert again.broker.topic("t").id > first


def test_the_time_of_the_last_write_is_that_of_a_readable_record() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", partitions=2)
    under_test.append("t", 1)
    last = under_test.broker.topic("t").last_write_ts
    assert last == under_test.read("t")[0]["$ts"]
    assert under_test.after_kill().broker.topic("t").last_write_ts == last
