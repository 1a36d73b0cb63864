"""Jobs of a worker, without I/O: options, delays, payloads."""

from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct

from topics.client.decoding import LoneSurrogates, decode, decode_record
from topics.client.options import Backoff
from topics.client.typed import RawClaimed
from topics.client.values import Job
from topics.model.errors import InvalidRequest

MAX_REASON_CHARS = 1000


class Retry(Exception):
    """Raised by a handler: try the job again after `delay_s` seconds. Counts as a delivery like any other failure.

    Example:

        raise Retry("the printer is busy", delay_s=30)
    """

    def __init__(self, reason: str = "", *, delay_s: float = 0.0) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


class WorkerOptions(Struct, frozen=True):
    """What a worker was asked to do."""

    concurrency: int
    retries: int | None
    backoff: Backoff | Callable[[int], float]
    first_delay_s: float
    max_delay_s: float
    dead_letter: str
    lease_ms: int
    drain_s: float
    push: bool

    def check(self) -> None:
        """Raise InvalidRequest for options that cannot work."""
        if self.concurrency < 1:
            raise InvalidRequest(f"concurrency must be at least 1, not {self.concurrency}")
        if self.retries is not None and self.retries < 0:
            raise InvalidRequest(f"retries must be at least 0, not {self.retries}")
        if self.lease_ms < 100:
            raise InvalidRequest(f"lease_s must be at least 0.1, not {self.lease_ms / 1000}")
        if not callable(self.backoff) and self.backoff not in ("exponential", "constant"):
            raise InvalidRequest(f'backoff must be "exponential", "constant" or a function, not {self.backoff!r}')


def delay_s(options: WorkerOptions, deliveries: int) -> float:
    """How long to wait after the delivery with this number has failed."""
    if callable(options.backoff):
        wait_s = float(options.backoff(deliveries))
    elif options.backoff == "constant":
        wait_s = options.first_delay_s
    else:
        wait_s = options.first_delay_s * 2.0 ** min(deliveries - 1, 60)
    return max(0.0, min(options.max_delay_s, wait_s))


def pushed_job(text: str) -> Job[Raw]:
    """The job of an event of the work stream; its payload is not decoded yet."""
    return decode(b'{"claimed":[%s]}' % text.encode(), RawClaimed, "raw").claimed[0]


def decode_job(
    decoder: Callable[[bytes | Raw], Any], queue: str, job: Job[Any], lone_surrogates: LoneSurrogates
) -> None:
    """Decode the payload of a job. Raises PayloadMismatch, and UndecodablePayload as asked."""
    decode_record(decoder, job, f'queue "{queue}"', lone_surrogates)
