"""Jobs as texts: however they are put together, each is the record with its lease."""

import json

import pytest

from topics.engine.cache import Cache
from topics.engine.leases.delivery import Delivery
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.queues.jobs import THOUSANDS_KEPT, JobTexts
from topics.model.records.page import Page, make_page

TOKEN = b"0123456789abcdef"


def partition_of(*pages: Page) -> Partition:
    partition = Partition(1, 0, Cache(1 << 20), Totals())
    for page in pages:
        partition.apply_append(page)
    return partition


def jobs_of(
    partition: Partition, seqs: range | list[int], deliveries: list[int] | None = None
) -> list[dict[str, object]]:
    delivery = Delivery("w", TOKEN, 99, seqs, None, len(seqs))
    (text,) = JobTexts().of(partition, delivery, deliveries or [1] * len(seqs))
    found: list[dict[str, object]] = json.loads(b"[%b]" % text)
    assert [job["lease_id"] for job in found] == [delivery.lease_id(seq) for seq in seqs]
    assert {job["deadline"] for job in found} == {99}
    return found


def plain(first: int, count: int, ts: int = 7) -> Page:
    return make_page(first, count, ts, b"\0".join([b'"%d"' % seq for seq in range(first, first + count)]))


@pytest.mark.parametrize("first", [1, 9, 990, 998, 1000, 1999, 123_456_789_990])
@pytest.mark.parametrize("count", [1, 2, 16, 1030])
def test_neighbours_have_their_own_seq_time_and_data(first: int, count: int) -> None:
    partition = partition_of(plain(first, count))
    assert jobs_of(partition, range(first, first + count)) == [
        {
            "$seq": seq,
            "lease_id": f"lease_{seq}{TOKEN.decode()}",
            "deadline": 99,
            "$ts": 7,
            "deliveries": 1,
            "data": str(seq),
        }
        for seq in range(first, first + count)
    ]


def test_neighbours_of_several_pages_and_times_are_one_text() -> None:
    partition = partition_of(plain(1, 300, 1), plain(301, 2, 2), plain(303, 300, 3))
    jobs = jobs_of(partition, range(299, 306))
    assert [(job["$seq"], job["$ts"], job["data"]) for job in jobs] == [
        (seq, 1 if seq < 301 else 2 if seq < 303 else 3, str(seq)) for seq in range(299, 306)
    ]


def test_jobs_that_came_one_by_one_are_one_text_like_any_others() -> None:
    partition = partition_of(*[plain(seq, 1, ts=seq) for seq in range(1, 20)], make_page(20, 1, 20, b"0", None, b'"n"'))
    jobs = jobs_of(partition, range(3, 21))
    assert [(job["$seq"], job["$ts"], job["data"]) for job in jobs[:-1]] == [(n, n, str(n)) for n in range(3, 20)]
    assert [job.get("$node") for job in jobs] == [None] * 17 + ["n"]


def test_optional_fields_are_rendered_for_the_records_that_have_them() -> None:
    tagged = make_page(3, 2, 7, b"3\x004", b'\0{"a":1}', b'"n"\0', b'"t"\0')
    partition = partition_of(plain(1, 2), tagged, plain(5, 2))
    jobs = jobs_of(partition, range(2, 6))
    assert [{key for key in job if key in ("$tag", "$node", "meta")} for job in jobs] == [
        set(),
        {"$tag", "$node"},
        {"meta"},
        set(),
    ]


def test_jobs_apart_and_jobs_delivered_before_say_how_often() -> None:
    partition = partition_of(plain(1, 10))
    assert [job["deliveries"] for job in jobs_of(partition, [1, 4, 5], [1, 3, 1])] == [1, 3, 1]
    assert [job["deliveries"] for job in jobs_of(partition, range(4, 7), [1, 3, 1])] == [1, 3, 1]


def test_queues_do_not_get_each_others_records_although_seqs_are_equal() -> None:
    one, other = partition_of(plain(1, 4)), partition_of(make_page(1, 4, 7, b"0\x000\x000\x000"))
    texts = JobTexts()
    for partition, data in ((one, "1"), (other, 0), (one, "1")):
        (text,) = texts.of(partition, Delivery("w", TOKEN, 99, range(1, 2), None, 1), [1])
        assert json.loads(text)["data"] == data


def test_texts_kept_for_seqs_are_few() -> None:
    texts = JobTexts()
    for thousand in range(3 * THOUSANDS_KEPT):
        first = thousand * 1000 + 1
        texts.of(partition_of(plain(first, 2)), Delivery("w", TOKEN, 99, range(first, first + 2), None, 2), [1, 1])
    assert len(texts.starts) == THOUSANDS_KEPT
