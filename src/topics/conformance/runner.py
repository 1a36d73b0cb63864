"""Run checks against a server, several at a time, and collect what each found."""

import fnmatch
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException

from topics.conformance.checks import Check, Skipped, all_checks
from topics.conformance.server import Server

DEFAULT_PARALLEL_CHECKS = 8


@dataclass(frozen=True)
class Result:
    """The outcome of one check: `passed`, `failed` or `skipped`, with the reason for the last two."""

    area: str
    name: str
    outcome: str
    reason: str
    seconds: float


@dataclass(frozen=True)
class Target:
    """Which server to check, and with which keys."""

    url: str
    token: str | None
    keys: dict[str, str]


def selected(patterns: Sequence[str]) -> list[Check]:
    """The checks whose area, or "area: name", matches one of the patterns; all of them without a pattern."""
    checks = all_checks()
    if not patterns:
        return checks
    return [
        check
        for check in checks
        if any([check.area == pattern or fnmatch.fnmatch(check.title, f"*{pattern}*") for pattern in patterns])
    ]


def run_checks(
    target: Target,
    checks: Iterable[Check],
    parallel: int = DEFAULT_PARALLEL_CHECKS,
    finished: Callable[[Result], None] = lambda _result: None,
) -> list[Result]:
    """Run the checks and return their results in the order given. Calls `finished` for each as it ends."""
    run_id = secrets.token_hex(4)

    def run(numbered: tuple[int, Check]) -> Result:
        number, check = numbered
        result = run_check(check, Server(target.url, target.token, target.keys, f"conformance-{run_id}:{number}"))
        finished(result)
        return result

    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(run, enumerate(checks)))


def run_check(check: Check, server: Server) -> Result:
    """Run one check; a broken connection or a body of another shape is a failure of the server, not of this program."""
    started = time.monotonic()
    outcome, reason = "passed", ""
    try:
        with server.cleaned():
            check.run(server)
    except Skipped as skipped:
        outcome, reason = "skipped", str(skipped)
    except AssertionError as failed:
        outcome, reason = "failed", str(failed)
    except (OSError, HTTPException, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        outcome, reason = "failed", f"{type(error).__name__}: {error}"
    return Result(check.area, check.name, outcome, reason, time.monotonic() - started)
