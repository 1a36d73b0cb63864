"""Planning: offsets are small dicts, and what they name is looked up on a real server."""

import json

import pytest

from topics.client import Client
from topics.spark.connector.options import EARLIEST, LATEST, BadOption, SourceOptions, source_options
from topics.spark.connector.planning import (
    PartitionState,
    advanced,
    available,
    first_offset,
    last_offset,
    partition_states,
    ranges_between,
)
from topics.spark.connector.ranges import SeqRange
from topics.spark.connector.reading import DataLoss, TopicRecreated


def subscribed(client: Client, topic: str, **more: str) -> SourceOptions:
    return source_options({"url": client.url, "subscribe": topic, **more})


def test_an_offset_is_the_next_seq_of_each_partition(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    client.append(topic, [1, 2, 3], partition=1)
    epoch = client.info(topic).epoch
    options = subscribed(client, topic)
    assert first_offset([client], options, EARLIEST, partition_states([client], options)) == {
        topic: {"epoch": epoch, "0": 1, "1": 1}
    }
    assert first_offset([client], options, LATEST, partition_states([client], options)) == {
        topic: {"epoch": epoch, "0": 1, "1": 4}
    }
    assert last_offset([client], options, partition_states([client], options)) == {
        topic: {"epoch": epoch, "0": 1, "1": 4}
    }


def test_offsets_by_option_begin_and_end_a_partition(client: Client, topic: str) -> None:
    client.create(topic)
    client.append(topic, list(range(10)))
    options = subscribed(
        client, topic, startingOffsets=f'{{"{topic}": {{"0": 3}}}}', endingOffsets=f'{{"{topic}": {{"0": 8}}}}'
    )
    found = ranges_between(
        first_offset([client], options, EARLIEST, partition_states([client], options)),
        last_offset([client], options, partition_states([client], options)),
    )
    assert [(each.first, each.last) for each in found] == [(3, 7)]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    ("name", "offsets", "problem"),
    [
        (None, {"0": 99}, "99 is beyond the end of topic .* whose next seq is 2"),
        (None, {"1": 1}, "has no partition 1"),
        ("other", {"0": 1}, 'topic "other" is not read'),
        ("other", {}, 'topic "other" is not read'),
    ],
)
def test_offsets_of_what_does_not_exist_are_refused_with_the_option(
    client: Client, topic: str, option: str, name: str | None, offsets: dict[str, int], problem: str
) -> None:
    client.create(topic)
    client.append(topic, [1])
    options = subscribed(client, topic, **{option: json.dumps({name or topic: offsets})})
    with pytest.raises(BadOption, match=f"^{option}: .*{problem}"):
        (
            first_offset([client], options, EARLIEST, partition_states([client], options)),
            last_offset([client], options, partition_states([client], options)),
        )
    at_the_end = subscribed(client, topic, **{option: json.dumps({topic: {"0": 2}})})
    assert first_offset([client], at_the_end, LATEST, partition_states([client], at_the_end)) == last_offset(
        [client], at_the_end, partition_states([client], at_the_end)
    )


def test_a_timestamp_begins_at_the_first_record_of_that_time(client: Client, topic: str) -> None:
    client.create(topic)
    client.append(topic, [1, 2])
    ts = client.diff(topic).records[0].ts
    options = subscribed(client, topic, startingTimestamp=str(ts))
    assert first_offset([client], options, LATEST, partition_states([client], options))[topic]["0"] == 1
    later = subscribed(client, topic, startingTimestamp=str(ts + 3_600_000))
    assert first_offset([client], later, EARLIEST, partition_states([client], later))[topic]["0"] == 3


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    start = {"t": {"epoch": 7, "0": 5}}
    end = {"t": {"epoch": 7, "0": 5, "1": 4}, "u": {"epoch": 2, "0": 3}}
    assert ranges_between(start, end) == [SeqRange("t", 1, 7, 1, 3), SeqRange("u", 0, 2, 1, 2)]


def test_a_recreated_topic_is_refused() -> None:
    with pytest.raises(TopicRecreated, match='topic "t" was deleted and created again'):
        ranges_between({"t": {"epoch": 1, "0": 5}}, {"t": {"epoch": 2, "0": 9}})
    with pytest.raises(TopicRecreated, match="new checkpoint"):
        available({"t": {"epoch": 1, "0": 5}}, [PartitionState("t", 0, 2, 1, 8)])


def test_a_partition_that_ends_before_the_offset_is_a_loss() -> None:
    states = [PartitionState("t", 0, 1, 1, 8)]
    assert available({"t": {"epoch": 1, "0": 9}}, states) == {("t", 0): 0}
    with pytest.raises(DataLoss, match="ends at 8, but this query has read up to 9"):
        available({"t": {"epoch": 1, "0": 10}}, states)


def test_moving_an_offset_keeps_all_but_deleted_topics() -> None:
    start = {"t": {"epoch": 1, "0": 5}, "gone": {"epoch": 3, "0": 2}}
    states = [PartitionState("t", 0, 1, 1, 8), PartitionState("t", 1, 1, 1, 2)]
    after = advanced(start, states, {("t", 0): 4, ("t", 1): 1})
    assert after == {"t": {"epoch": 1, "0": 9, "1": 2}}
    assert start["t"] == {"epoch": 1, "0": 5}, "an offset is a value"


def test_a_queue_is_refused_and_the_error_names_the_option(client: Client, topic: str) -> None:
    client.create(topic, type="queue")
    with pytest.raises(BadOption, match=r"is a queue.*queueAsLog=true"):
        partition_states([client], subscribed(client, topic))
    assert partition_states([client], subscribed(client, topic, queueAsLog="true"))


def test_a_missing_topic_is_named_with_the_server(client: Client) -> None:
    with pytest.raises(BadOption, match=f'topic "nowhere" does not exist on {client.url}'):
        partition_states([client], subscribed(client, "nowhere"))


def test_a_pattern_takes_what_it_matches_whole(client: Client, topic: str) -> None:
    for name in ("a", "b", "bb"):
        client.create(f"{topic}.{name}")
    client.create(f"{topic}.q", type="queue")
    options = source_options({"url": client.url, "subscribePattern": f"{topic}\\.[a-z]"})
    assert [state.topic for state in partition_states([client], options)] == [f"{topic}.a", f"{topic}.b"]
    with pytest.raises(BadOption, match="not a regular expression"):
        partition_states([client], source_options({"url": client.url, "subscribePattern": "("}))


def test_assigned_partitions_are_all_that_is_read(client: Client, topic: str) -> None:
    client.create(topic, partitions=3)
    options = source_options({"url": client.url, "assign": f'{{"{topic}": [2]}}'})
    assert [state.partition for state in partition_states([client], options)] == [2]
    with pytest.raises(BadOption, match="has no partition 3"):
        partition_states([client], source_options({"url": client.url, "assign": f'{{"{topic}": [3]}}'}))
