"""A server that was stopped in good order goes on where it was: nothing comes back, nothing is forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.topic import TopicApi, refused, seqs_of
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

CLASSES = ["ephemeral", "memory", "disk", "fsync"]
SETTINGS = {
    "hot": {},
    "sealed": {"TOPICS_SEGMENT_BYTES": "4096", "TOPICS_HOT_BYTES": "4096", "TOPICS_CHECKPOINT_BYTES": "16384"},
}


class House:
    """A data directory and the servers that open it, one after the other."""

    def __init__(self, path: Path, settings: dict[str, str]) -> None:
        self._environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(path), **settings}

    @contextmanager
    def open(self, name: str = "topic") -> Iterator[TopicApi]:
        settings = load_settings(self._environment)
        with running_server(settings) as url, Api(url) as api:
            yield TopicApi(api, name)


@pytest.fixture(params=SETTINGS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    return House(tmp_path / "data", SETTINGS[request.param])


def test_state_config_and_records_are_as_they_were(house: House) -> None:
    with house.open() as topic:
        topic.configure(durability="fsync", ttl_ms=10**9, cap_records=150, priority=5, dead_letter="other")
        for n in range(100):
            topic.append_records({"data": n, "tag": f"t{n % 3}", "node": "n", "meta": {"n": n}}, {"data": "x" * 100})
        topic.remove(match="t1")
        topic.remove(before_seq=70)
        before_records, before_state = topic.read_all(include_tags=True), topic.state()
    for _ in range(2):
        with house.open() as topic:
            after = topic.state()
            for state in (before_state, after):
                # Recency goes on with the clock, and these servers are read from.
                for changing in ("performance", "last_read_ts", "effective_priority"):
                    state.pop(changing, None)
            assert after == before_state
            assert topic.read_all(include_tags=True) == before_records
    with house.open() as topic:
        assert topic.append("next")["seqs"] == [201]


def test_deleted_records_and_floors_stay_where_they_are(house: House) -> None:
    with house.open() as topic:
        topic.configure(cap_records=40)
        for n in range(100):
            topic.append_records({"data": n, "tag": "even" if n % 2 else "odd"})
        topic.remove(match="odd")
        before = topic.diff()
        assert before["tombstone"]["reason"] == "cap"
    with house.open() as topic:
        topic.configure(cap_records=0)
        after = topic.diff()
        for body in (before, after):
            del body["performance"]
        assert after == before
        assert topic.remove(match="odd")["deleted"] == 0
        assert topic.remove(match="even")["deleted"] == 20
        assert topic.diff(60)["tombstone"] is None
    with house.open() as topic:
        assert topic.state()["count"] == 0
        assert topic.append(1)["seqs"] == [101]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_idempotency_keys_are_remembered(house: House, durability: str) -> None:
    with house.open() as topic:
        topic.append(1, 2, idempotency_key="k", config={"durability": durability})
        topic.append(3)
    with house.open() as topic:
        again = topic.append("other", idempotency_key="k")
        assert (again["deduped"], again["seqs"]) == (True, [1, 2])
        assert topic.append(4, idempotency_key="l")["seqs"] == [4]


@pytest.mark.parametrize("durability", CLASSES)
def test_every_class_keeps_its_config_and_never_hands_out_a_seq_twice(house: House, durability: str) -> None:
    with house.open() as topic:
        topic.configure(durability=durability, cap_records=1000)
        topic.append(*range(10))
        config = topic.state()["config"]
    with house.open() as topic:
        state = topic.state()
        assert state["config"] == config
        assert state["head_seq"] == 10
        body = topic.diff()
        if durability == "ephemeral":
            assert (body["records"], state["count"], state["earliest_seq"]) == ([], 0, 11)
            assert (body["tombstone"]["gap_from"], body["tombstone"]["gap_to"]) == (1, 10)
        else:
            assert seqs_of(body) == list(range(1, 11))
        assert topic.append("next")["seqs"] == [11]


def test_payloads_of_an_ephemeral_topic_never_reach_the_directory(house: House, tmp_path: Path) -> None:
    secret = "a-payload-to-be-removed"
    with house.open() as topic:
        topic.configure(durability="ephemeral")
        for _ in range(100):
            topic.append_records({"data": secret * 5, "tag": secret, "node": secret, "meta": {"k": secret}})
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_a_deleted_topic_stays_deleted_and_its_successor_has_a_larger_epoch(house: House) -> None:
    with house.open() as topic:
        topic.append(*range(5))
        epoch = topic.state()["epoch"]
        topic.drop()
    with house.open() as topic:
        refused(topic.api.get(topic.path), 404, "topic_not_found")
        topic.append("new")
        assert topic.state()["epoch"] > epoch
        assert topic.diff(5)["tombstone"]["reason"] == "recreated"
    with house.open() as topic:
        assert [record["data"] for record in topic.read_all()] == ["new"]
        assert topic.diff(1, epoch=epoch)["tombstone"]["reason"] == "recreated"


def test_a_second_server_on_the_same_directory_is_refused(house: House) -> None:
    def open_again() -> None:
        with house.open():
            pytest.fail("two servers share one directory")

    with house.open() as topic:
        with pytest.raises(AssertionError, match="ended with 1"):
            open_again()
        topic.append(1)
