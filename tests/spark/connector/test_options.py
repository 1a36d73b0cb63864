"""Options: every one is understood, every mistake is named."""

import json
from typing import Any

import pytest

from topics.spark.connector.options import (
    EARLIEST,
    LATEST,
    MAX_OFFSETS_PER_TRIGGER,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    BadOption,
    Positions,
    sink_options,
    source_options,
)

SUBSCRIBED = {"subscribe": "orders"}


def test_defaults_are_those_of_the_documentation() -> None:
    options = source_options(SUBSCRIBED)
    assert options.topics == ("orders",)
    assert options.max_offsets == MAX_OFFSETS_PER_TRIGGER == 250_000
    assert (options.min_offsets, options.min_partitions) == (0, 0)
    assert options.on_data_loss == "fail"
    assert (options.servers[0].transport, options.servers[0].retries) == ("arrow", 8)
    assert (options.starting, options.ending, options.group) == (None, None, None)
    assert not options.queue_as_log


def test_every_source_option_is_understood_in_any_case() -> None:
    given = {
        "url": "http://127.0.0.1:1",
        "token": "secret",
        "numRetries": "2",
        "requestTimeoutMs": "1500",
        "transport": "JSON",
        "subscribe": "a, b ,",
        "startingOffsets": json.dumps({"a": {"0": 15, "1": -2}}),
        "endingOffsets": json.dumps({"a": {"0": 20, "1": -1}}),
        "maxOffsetsPerTrigger": "10",
        "minOffsetsPerTrigger": "5",
        "minPartitions": "7",
        "failOnDataLoss": "false",
        "onDataLoss": "emit",
        "group": "lag",
        "queueAsLog": "TRUE",
        "history": "ALL",
        "maxTriggerDelay": "90s",
        "maxRecordsPerPartition": "1000",
        "payload": "Variant",
        "onBadRecord": "Fail",
    }
    for spelled in (given, {name.lower(): value for name, value in given.items()}):
        options = source_options(spelled)
        assert options.topics == ("a", "b")
        assert options.starting == Positions(None, {"a": {0: 15, 1: EARLIEST}})
        assert options.ending == Positions(None, {"a": {0: 20, 1: LATEST}})
        assert (options.max_offsets, options.min_offsets, options.min_partitions) == (10, 5, 7)
        assert (options.on_data_loss, options.group, options.queue_as_log, options.history) == (
            "emit",
            "lag",
            True,
            True,
        )
        server = options.servers[0]
        assert (server.url, server.token, server.retries) == ("http://127.0.0.1:1", "secret", 2)
        assert (server.timeout_ms, server.transport) == (1500, "json")
        assert (options.max_trigger_delay_ms, options.max_task_seqs, options.payload) == (90_000, 1000, "variant")
    others = {"subscribePattern", "assign", "startingTimestamp", "endingTimestamp"}
    others |= {"startingOffsetsByTimestamp", "endingOffsetsByTimestamp"}
    assert set(given) | others == set(SOURCE_OPTIONS)


@pytest.mark.parametrize("bound", ["starting", "ending"])
def test_times_are_for_all_partitions_or_for_each(bound: str) -> None:
    everywhere = source_options(SUBSCRIBED | {f"{bound}Timestamp": "1700000000000"})
    assert getattr(everywhere, f"{bound}_times") == Positions(1_700_000_000_000, {})
    each = source_options(SUBSCRIBED | {f"{bound}OffsetsByTimestamp": '{"orders": {"0": 5, "1": 6}}'})
    assert getattr(each, f"{bound}_times") == Positions(None, {"orders": {0: 5, 1: 6}})


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15 m", 900_000), ("1H", 3_600_000)])
def test_a_duration_has_a_unit(text: str, ms: int) -> None:
    assert source_options(SUBSCRIBED | {"maxTriggerDelay": text}).max_trigger_delay_ms == ms


def test_every_sink_option_is_understood() -> None:
    given = {"url": "u", "token": "t", "numRetries": "0", "requestTimeoutMs": "1", "transport": "arrow"}
    given |= {"topic": "out", "queryId": "q", "batchId": "3", "checkRepeats": "false", "atomic": "true"}
    given |= {"onBadRecord": "deadLetter", "deadLetterTopic": "bad"}
    options = sink_options(given)
    assert options.dead_letter_topic == "bad"
    assert (options.topic, options.query_id, options.batch_id, options.check_repeats) == ("out", "q", 3, False)
    assert options.server.retries == 0
    assert set(given) == set(SINK_OPTIONS)


@pytest.mark.parametrize(("word", "position"), [("earliest", EARLIEST), ("Latest", LATEST)])
def test_positions_by_word(word: str, position: int) -> None:
    assert source_options(SUBSCRIBED | {"startingOffsets": word}).starting == Positions(position, {})


def test_assign_names_partitions() -> None:
    assert source_options({"assign": '{"a": [1, 0, 1]}'}).assigned == {"a": (0, 1)}


@pytest.mark.parametrize(("given", "loss"), [({}, "fail"), ({"failOnDataLoss": "false"}, "ignore")])
def test_fail_on_data_loss_is_an_alias_of_on_data_loss(given: dict[str, str], loss: str) -> None:
    assert source_options(SUBSCRIBED | given).on_data_loss == loss


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("subscribed", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest(misspelt: str, meant: str) -> None:
    with pytest.raises(BadOption, match=f"'{misspelt}'; did you mean {meant}\\?"):
        source_options(SUBSCRIBED | {misspelt: "x"})


def test_an_option_without_a_near_match_lists_all_options() -> None:
    with pytest.raises(BadOption, match="known are url, token"):
        source_options(SUBSCRIBED | {"zzzz": "x"})


def test_sparks_own_options_are_let_through() -> None:
    source_options(SUBSCRIBED | {"path": "x"})
    sink_options({"checkpointLocation": "x", "path": "y"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "CREATE TEMPORARY VIEW"),
        ({"url": "u"}, "exactly one of"),
        ({"subscribe": "a", "subscribePattern": "b"}, "exactly one of"),
        ({"subscribe": ","}, "names no topic"),
        ({"assign": "[]"}, "assign must be JSON"),
        ({"assign": '{"a": []}'}, "assign must be JSON"),
        ({"assign": '{"a": [-1]}'}, "assign must be JSON"),
        ({"assign": '{"a": [true]}'}, "assign must be JSON"),
        ({"assign": "{"}, "assign is not JSON"),
        (SUBSCRIBED | {"startingOffsets": "soon"}, "startingOffsets is not JSON"),
        (SUBSCRIBED | {"startingOffsets": "5"}, "startingOffsets must be earliest, latest"),
        (SUBSCRIBED | {"startingOffsets": '{"a": 5}'}, "startingOffsets must be"),
        (SUBSCRIBED | {"startingOffsets": '{"a": {"x": 5}}'}, "startingOffsets must be"),
        (SUBSCRIBED | {"startingOffsets": '{"a": {"²": 1}}'}, "startingOffsets must be"),
        (SUBSCRIBED | {"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets must be"),
        (SUBSCRIBED | {"endingOffsets": "earliest"}, "cannot be earliest"),
        (SUBSCRIBED | {"endingOffsets": '{"a": {"0": -2}}'}, "cannot be earliest"),
        (SUBSCRIBED | {"startingTimestamp": "1", "startingOffsets": "latest"}, "not both"),
        (SUBSCRIBED | {"endingTimestamp": "1", "endingOffsetsByTimestamp": "{}"}, "not both"),
        (SUBSCRIBED | {"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "startingOffsetsByTimestamp must be JSON"),
        (SUBSCRIBED | {"maxTriggerDelay": "15"}, "maxTriggerDelay must be a duration"),
        (SUBSCRIBED | {"maxRecordsPerPartition": "0"}, "at least 1"),
        (SUBSCRIBED | {"payload": "avro"}, "json, variant"),
        (SUBSCRIBED | {"onBadRecord": "deadLetter"}, "an option of the sink.*_corrupt STRING"),
        (SUBSCRIBED | {"startingTimestamp": "yesterday"}, "startingTimestamp must be a whole number"),
        (SUBSCRIBED | {"maxOffsetsPerTrigger": "0"}, "at least 1"),
        (SUBSCRIBED | {"minPartitions": "-1"}, "minPartitions must be"),
        (SUBSCRIBED | {"minOffsetsPerTrigger": "1.5"}, "minOffsetsPerTrigger must be"),
        (SUBSCRIBED | {"failOnDataLoss": "maybe"}, "must be true or false"),
        (SUBSCRIBED | {"onDataLoss": "shrug"}, "fail, emit, ignore"),
        (SUBSCRIBED | {"transport": "pigeon"}, "arrow, json"),
        (SUBSCRIBED | {"numRetries": "x"}, "numRetries must be"),
        (SUBSCRIBED | {"requestTimeoutMs": "0"}, "at least 1"),
    ],
)
def test_a_bad_source_option_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        source_options(given)


@pytest.mark.parametrize("given", [{"queryId": "q"}, {"batchId": "1"}])
def test_a_producer_is_never_fixed_without_its_batch(given: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="come together"):
        sink_options(given)


@pytest.mark.parametrize("given", [{"onBadRecord": "deadLetter"}, {"deadLetterTopic": "bad"}])
def test_dead_letters_need_both_options(given: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="needs"):
        sink_options(given)


def test_a_sink_does_not_take_a_sources_options() -> None:
    with pytest.raises(BadOption, match="subscribe"):
        sink_options({"subscribe": "a"})


def test_several_urls_name_several_servers_with_one_token_or_one_each() -> None:
    urls = {"url": "http://a:4000, http://b:4000"}
    assert [(each.url, each.token) for each in source_options(SUBSCRIBED | urls | {"token": "t"}).servers] == [
        ("http://a:4000", "t"),
        ("http://b:4000", "t"),
    ]
    assert [each.token for each in source_options(SUBSCRIBED | urls | {"token": "t,u"}).servers] == ["t", "u"]
    assert [each.token for each in source_options(SUBSCRIBED | urls).servers] == [None, None]
    with pytest.raises(BadOption, match="3 tokens for 2 urls"):
        source_options(SUBSCRIBED | urls | {"token": "t,u,v"})
    with pytest.raises(BadOption, match="names http://a:4000 twice"):
        source_options(SUBSCRIBED | {"url": "http://a:4000,http://a:4000"})
    with pytest.raises(BadOption, match="writes to one server"):
        sink_options(urls | {"topic": "orders"})
