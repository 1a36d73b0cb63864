"""The choices that consumers and workers take."""

from typing import Literal

Ack = Literal["explicit", "each", "timed"]
Backoff = Literal["exponential", "constant"]
# Where a new consumer group begins: an int is an offset.
Started = Literal["earliest", "latest"] | int
