"""What /v0/ready says about a server that serves although some of its own work fails."""

import asyncio
import errno

from tests.server.house import House, in_house
from topics.server.ops.monitoring.health import MAX_REASONS_SHOWN


@in_house()
async def test_server_that_cannot_write_a_snapshot_is_ready_and_degraded_until_it_can(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    before = await house.ask("GET", "/v0/ready")
    assert (before.status, before.json["status"], before.json["degraded"]) == (200, "ready", False)
    assert "reasons" not in before.json

    await checkpoint(house, errno.EIO)
    ready = await house.ask("GET", "/v0/ready")
    assert (ready.status, ready.json["status"], ready.json["degraded"]) == (200, "ready", True)
    (reason,) = ready.json["reasons"]
    assert (reason["condition"], reason["failures"]) == ("snapshot", 1)
    assert "Input/output error" in reason["reason"]
    assert reason["since_ms"] > 0
    written = await house.ask("POST", "/v0/topics/t", {"records": [{"data": 2}]})
    assert written.status == 200
    metrics = await house.ask("GET", "/v0/metrics", headers=("Accept: application/json",))
    assert metrics.json["topics_degraded"] == 1
    assert metrics.json["topics_degraded_conditions"]["snapshot"] == 1
    assert metrics.json["topics_failures_total"]["snapshot"] == 1

    await checkpoint(house, None)
    assert (await house.ask("GET", "/v0/ready")).json["degraded"] is False


@in_house()
async def test_ready_lists_a_bounded_number_of_reasons(house: House) -> None:
    for number in range(MAX_REASONS_SHOWN + 5):
        house.broker.health.fail("damaged_file", "checksum", f"segments/{number}.arrow")
    reasons = (await house.ask("GET", "/v0/ready")).json["reasons"]
    assert len(reasons) == MAX_REASONS_SHOWN
    assert (reasons[0]["condition"], reasons[0]["subject"]) == ("damaged_file", "segments/0.arrow")
    metrics = await house.ask("GET", "/v0/metrics", headers=("Accept: application/json",))
    assert metrics.json["topics_degraded_conditions"]["damaged_file"] == MAX_REASONS_SHOWN + 5


async def checkpoint(house: House, error: int | None) -> None:
    """Take a checkpoint whose snapshot fails with `error`, if one is given."""
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    house.disk.fault = lambda _, op, path: error if op == "write_at" and path.startswith("snapshots/") else None
    house.broker.checkpointer.checkpoint(done=done.set_result)
    assert await done is (error is None)
