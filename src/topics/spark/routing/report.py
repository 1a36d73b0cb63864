"""Reports: what the tasks of a routing query did, added up over its batches for the status of the job.

The process that commits a batch is not the one that supervises the job. Both run on the driver's machine and share a file there.
"""

import os

import msgspec
from msgspec import Struct


class Refused(Struct):
    """Messages of one route that its topic did not take."""

    count: int
    message: str


class Piece(Struct):
    """Messages for one topic: a stage, or the records themselves for one partition."""

    topic: str
    # How many messages of which route.
    routes: dict[int, int]
    size: int
    stage: str | None = None
    partition: int = 0
    records: bytes = b""


class TaskReport(Struct):
    """What one task did. Routes and conditions are those of `Targets`; `versions` names them for good."""

    task: int
    pieces: list[Piece] = []
    messages: int = 0
    refused: dict[int, Refused] = {}
    # By name (`truncates`, ...), the events that no route is for.
    events: dict[str, int] = {}
    # By version of the route, how often its condition could not be evaluated.
    failed: dict[int, int] = {}
    missing: dict[int, int] = {}
    # By number of the route, its version.
    versions: dict[int, int] = {}


class Trouble(Struct):
    count: int
    message: str = ""


class Totals(Struct):
    """What a job has done since it was started."""

    last_batch: int = -1
    messages: int = 0
    events: dict[str, int] = {}
    refused: dict[int, Trouble] = {}
    failed: dict[int, int] = {}
    missing: dict[int, int] = {}


encode_report = msgspec.msgpack.encode
decode_report = msgspec.msgpack.Decoder(TaskReport).decode
_decode_totals = msgspec.msgpack.Decoder(Totals).decode


def read_totals(path: str) -> Totals:
    try:
        with open(path, "rb") as file:
            return _decode_totals(file.read())
    except FileNotFoundError:
        return Totals()


def add_to_file(path: str, batch: int, reports: list[bytes]) -> None:
    """Add the reports of a batch. One that was added before, by an earlier attempt at its commit, is not added twice.

    Does nothing when the job that reads the file has ended: the figures are for its status only.
    """
    if not os.path.isdir(os.path.dirname(path)):
        return
    totals = read_totals(path)
    if batch <= totals.last_batch:
        return
    totals.last_batch = batch
    for encoded in reports:
        _add(totals, decode_report(encoded))
    new = f"{path}.new"
    with open(new, "wb") as file:
        file.write(msgspec.msgpack.encode(totals))
    os.replace(new, path)


def _add(totals: Totals, report: TaskReport) -> None:
    totals.messages += report.messages
    for source, target in ((report.events, totals.events), (report.failed, totals.failed)):
        _add_counts(source, target)
    _add_counts(report.missing, totals.missing)
    for route, refused in report.refused.items():
        known = totals.refused.setdefault(report.versions[route], Trouble(0))
        known.count += refused.count
        known.message = refused.message


def _add_counts(source: dict, target: dict) -> None:  # type: ignore[type-arg]
    for key, count in source.items():
        target[key] = target.get(key, 0) + count
