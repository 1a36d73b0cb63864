"""The states of a router, and the only place that says how one follows another.

Not stored: after a restart every router is RUNNING.

    HELD       created while a snapshot is taken; forwards nothing until the snapshot has all images
    RUNNING    forwards what its source gets
    BLOCKED    its dest is full; tries again after a delay
    BACKOFF    a write failed, or records cannot be read; tries again after a delay
    DELETING   its delete waits for the log; forwards nothing

    HELD --release--> RUNNING <--forwarded-- BLOCKED, BACKOFF
    RUNNING, BLOCKED, BACKOFF --dest is full--> BLOCKED
    RUNNING, BLOCKED, BACKOFF --failed--> BACKOFF
    any --delete--> DELETING --the delete failed--> RUNNING, or HELD while a snapshot is taken
"""

from enum import Enum


class RouterState(Enum):
    HELD = "held"
    RUNNING = "running"
    BLOCKED = "blocked"
    BACKOFF = "backoff"
    DELETING = "deleting"


# States in which a router forwards nothing.
IDLE_STATES = (RouterState.HELD, RouterState.DELETING)

_FORWARDING = frozenset({RouterState.RUNNING, RouterState.BLOCKED, RouterState.BACKOFF, RouterState.DELETING})

TRANSITIONS: dict[RouterState, frozenset[RouterState]] = {
    RouterState.HELD: frozenset({RouterState.RUNNING, RouterState.DELETING}),
    RouterState.RUNNING: _FORWARDING,
    RouterState.BLOCKED: _FORWARDING,
    RouterState.BACKOFF: _FORWARDING,
    RouterState.DELETING: frozenset({RouterState.RUNNING, RouterState.HELD}),
}


def transition(state: RouterState, following: RouterState) -> RouterState:
    """Return the following state. Raises ValueError if the table does not allow it: that is a bug of the caller."""
    if following not in TRANSITIONS[state]:
        raise ValueError(f"a router cannot go from {state.value} to {following.value}")
    return following
