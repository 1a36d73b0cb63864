"""GET /v0/overview: rates of the last five minutes, resources, and what needs attention."""

from topics import __version__
from topics.server.operations import Call, handles
from topics.server.ops.monitoring.process_metrics import free_bytes, resident_bytes, size_bytes
from topics.server.responses import send


@handles("get_overview")
def get_overview(call: Call[None, None]) -> None:
    service, broker = call.service, call.broker

    def answer() -> None:
        totals, throttle = broker.state.totals, service.throttle
        fields = {
            "version": __version__,
            "uptime_ms": int(service.uptime_ms()),
            "topics": len(broker.state.topics),
            "records": totals.records,
            "bytes": totals.bytes,
            "records_appended_total": totals.appended,
            "records_read_total": broker.counts.records_read,
            "disk_free_bytes": free_bytes(service.settings.data_dir),
            "disk_total_bytes": size_bytes(service.settings.data_dir),
            "memory_bytes": resident_bytes(),
            "loop_lag_ms": round(throttle.pressure.lag_ms, 3),
            "loop_lag_max_ms": round(throttle.lag_ms_max, 3),
            "connections": service.open_connections(),
            "streams": service.streams.open,
            "warnings": service.attention.shown_to(call.caller),
            "history": list(service.sampler.history),
        }
        send(call.request, 200, fields)

    service.attention.refresh(broker, answer)
