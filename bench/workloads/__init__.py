"""One module per group of workloads. Each has a list WORKLOADS."""

from bench.measure import Workload
from bench.workloads import (
    append,
    client,
    delete,
    groups,
    latency,
    lifecycle,
    live,
    pressure,
    queues,
    read,
    routers,
    scale,
    shapes,
)

ALL: tuple[Workload, ...] = (
    *append.WORKLOADS,
    *shapes.WORKLOADS,
    *read.WORKLOADS,
    *live.WORKLOADS,
    *queues.WORKLOADS,
    *groups.WORKLOADS,
    *routers.WORKLOADS,
    *delete.WORKLOADS,
    *latency.WORKLOADS,
    *pressure.WORKLOADS,
    *client.WORKLOADS,
    *scale.WORKLOADS,
    *lifecycle.WORKLOADS,
    *append.MATRIX,
)
