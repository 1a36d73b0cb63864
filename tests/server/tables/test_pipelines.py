"""Pipeline registry: bounded, filtered by prefixes."""

from typing import Any

import pytest

from tests.server.house import House, error_of, in_house
from topics.api.tables.pipelines import JobReport
from topics.api.tables.pipelines import PipelineReport as Report
from topics.model.errors import Conflict, NotFound, Throttled
from topics.server.auth.authorization import Caller
from topics.server.tables import pipeline_registry as book
from topics.server.tables.pipeline_registry import Pipelines

RUNNING = Report("running", "local[2]", 1)


def test_a_pipeline_that_is_not_heard_of_is_lost_until_it_reports_again() -> None:
    pipelines = Pipelines()
    pipeline = pipelines.take("p", RUNNING, 10, 1000)
    assert pipeline.state(1000 + book.LOST_AFTER_MS) == "running"
    assert pipeline.state(1001 + book.LOST_AFTER_MS) == "lost"
    assert not pipeline.up(1001 + book.LOST_AFTER_MS)
    pipelines.take("p", RUNNING, 10, 50_000)
    assert pipeline.state(50_001) == "running"
    pipelines.take("p", Report("stopped", None, 1), 10, 60_000)
    assert pipeline.state(900_000) == "stopped", "one that said goodbye is not lost"


def test_stop_request_is_returned_until_the_pipeline_has_stopped() -> None:
    pipelines = Pipelines()
    pipelines.take("p", RUNNING, 10, 1).stop = True
    assert pipelines.take("p", RUNNING, 10, 2).stop
    assert pipelines.take("p", Report("stopping", None, 1), 10, 3).stop
    assert not pipelines.take("p", Report("stopped", None, 1), 10, 4).stop
    assert not pipelines.take("p", Report("starting", None, 2), 10, 5).stop


def test_a_stop_is_not_for_the_next_run_of_that_name() -> None:
    pipelines = Pipelines()
    pipelines.take("p", RUNNING, 10, 1).stop = True
    assert not pipelines.take("p", Report("starting", None, 2), 10, 2 + book.LOST_AFTER_MS).stop


def test_a_second_live_pipeline_of_a_name_is_refused_with_the_first() -> None:
    pipelines = Pipelines()
    second = Report("starting", "yarn", 2)
    pipelines.take("p", RUNNING, 10, 1000)
    with pytest.raises(Conflict, match=r"runs already: on local\[2\], started at 1 ms") as refused:
        pipelines.take("p", second, 10, 1500)
    assert refused.value.code == "pipeline_exists"
    assert refused.value.detail == {"pipeline": "p", "master": "local[2]", "started_ts": 1, "reported_ts": 1000}
    assert pipelines.known("p").report is RUNNING
    assert pipelines.take("p", second, 10, 1001 + book.LOST_AFTER_MS).report is second, "the first one is lost"
    pipelines.take("p", Report("stopped", "yarn", 2), 10, 20_000)
    pipelines.take("p", RUNNING, 10, 20_001)


def test_those_that_are_over_make_room_and_those_that_run_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "MAX_PIPELINES", 3)
    pipelines = Pipelines()
    pipelines.take("stopped", Report("stopped"), 10, 2)
    pipelines.take("lost", RUNNING, 10, 1)
    now = 10 + book.LOST_AFTER_MS
    pipelines.take("a", RUNNING, 10, now)
    pipelines.take("b", RUNNING, 10, now)
    assert set(pipelines.by_name) == {"stopped", "a", "b"}, "the longest silent goes first"
    pipelines.take("c", RUNNING, 10, now)
    with pytest.raises(Throttled):
        pipelines.take("d", RUNNING, 10, now)
    pipelines.take("c", RUNNING, 10, now)
    assert set(pipelines.by_name) == {"a", "b", "c"}
    with pytest.raises(NotFound):
        pipelines.known("d")


def test_all_reports_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "MAX_ALL_BYTES", 100)
    pipelines = Pipelines()
    pipelines.take("a", RUNNING, 60, 1)
    pipelines.take("a", RUNNING, 70, 1)
    with pytest.raises(Throttled):
        pipelines.take("b", RUNNING, 31, 1)
    pipelines.take("b", RUNNING, 30, 1)
    with pytest.raises(Throttled):
        pipelines.take("b", RUNNING, 31, 2)
    assert [each.bytes for each in pipelines.by_name.values()] == [70, 30]
    pipelines.take("a", Report("stopped"), 70, 3)
    pipelines.take("b", RUNNING, 99, 4)
    assert set(pipelines.by_name) == {"b"}


def test_a_caller_sees_what_its_prefixes_allow() -> None:
    pipelines = Pipelines()
    for name in ("t42:b", "other", "t42:a"):
        pipelines.take(name, RUNNING, 10, 1)
    assert [each.name for each in pipelines.shown_to(Caller("x", prefixes=("t42:",)))] == ["t42:a", "t42:b"]


@in_house()
async def test_figures_of_pipelines_and_jobs_are_among_the_metrics(house: House) -> None:
    odd = JobReport('archive "a\\b"', "archive", "running", 7, 2.5, 3, 4, 120, 1)
    fresh = JobReport("route x", "route", "starting")
    pipelines = house.service.pipelines
    now_ms = house.broker.runtime.now_ms()
    text = (await house.ask("GET", "/v0/metrics")).body.decode()
    assert "topics_pipeline" not in text
    pipelines.take("main", Report("running", None, 1, [odd, fresh]), 10, now_ms)
    pipelines.take("old", RUNNING, 10, now_ms - 2 * book.LOST_AFTER_MS)
    text = (await house.ask("GET", "/v0/metrics")).body.decode()
    labels = r'{pipeline="main",job="archive \"a\\b\""}'
    for line in (
        'topics_pipeline_up{pipeline="main"} 1.0',
        'topics_pipeline_up{pipeline="old"} 0.0',
        f"topics_pipeline_job_lag_records{labels} 3",
        f"topics_pipeline_job_rows_total{labels} 7",
        f"topics_pipeline_job_up{labels} 1",
        'topics_pipeline_job_up{pipeline="main",job="route x"} 0',
        f"topics_pipeline_job_restarts_total{labels} 1",
        f"topics_pipeline_job_batch_ms{labels} 120",
    ):
        assert f"\n{line}\n" in text, line
    assert 'topics_pipeline_job_lag_records{pipeline="main",job="route x"}' not in text, "it is not known yet"
    found: Any = (await house.ask("GET", "/v0/metrics", headers=("Accept: application/json",))).json
    assert found["topics_pipeline_up"] == {"main": 1.0, "old": 0.0}
    assert found["topics_pipeline_job_lag_records"] == {'main/archive "a\\b"': 3}
    assert found["topics_topics_by_class"] == {"ephemeral": 0, "memory": 0, "disk": 0, "fsync": 0}


@in_house(API_KEYS="full,tenant::t42:", METRICS_TOPICS_MAX="1")
async def test_figures_of_jobs_are_bounded_and_for_those_who_may_see_the_pipeline(house: House) -> None:
    jobs = [JobReport(f"j{number}", "route", "running") for number in range(3)]
    house.service.pipelines.take("other", Report("running", None, 1, jobs), 10, house.broker.runtime.now_ms())
    text = (await house.ask("GET", "/v0/metrics", key="full")).body.decode()
    assert text.count("topics_pipeline_job_rows_total{") == 1
    text = (await house.ask("GET", "/v0/metrics", key="tenant")).body.decode()
    assert "topics_pipeline" not in text


@in_house()
async def test_one_pipeline_too_many_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "MAX_PIPELINES", 1)
    assert (await house.ask("PUT", "/api/pipelines/a", {"state": "running"})).status == 200
    answer = await house.ask("PUT", "/api/pipelines/b", {"state": "running"})
    assert (answer.status, error_of(answer)["code"], error_of(answer)["detail"]["max"]) == (429, "throttled", 1)
    assert (await house.ask("GET", "/api/pipelines/b")).status == 404
    assert (await house.ask("PUT", "/api/pipelines/a", {"state": "stopped"})).status == 200
    assert (await house.ask("PUT", "/api/pipelines/b", {"state": "running"})).status == 200
