"""The metrics of a server, as JSON."""

from typing import Any

import msgspec

from topics.client import Client
from topics.client.calls import Call


def get_metrics(client: Client) -> dict[str, Any]:
    """Every metric by name; those with labels are dicts."""
    body = client.run(Call("GET", "/v0/metrics", bytes, accept="application/json"))
    metrics: dict[str, Any] = msgspec.json.decode(body)
    return metrics
