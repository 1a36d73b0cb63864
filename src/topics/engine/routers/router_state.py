"""The states of a router and of the forwarder of all routers, and the only place that says how one follows another.

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

The forwarder, because of snapshots (see `broker/durability/checkpointer.py`):

    RUNNING       routers forward
    HELD          no router forwards: the images of the topics that routers connect are being taken
    IMAGING       those are taken and the others are not: routers forward, but those created since the hold are HELD
    STOPPED       no router forwards any more: the server stops

    RUNNING --hold--> HELD --connected topics are taken--> IMAGING --the snapshot is over--> RUNNING
    HELD --the snapshot failed--> RUNNING
    any --stop--> STOPPED
"""

from enum import Enum

from topics.engine.state_table import follow


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
    return follow("a router", TRANSITIONS, state, following)


class ForwarderState(Enum):
    RUNNING = "running"
    HELD = "held"
    IMAGING = "imaging"
    STOPPED = "stopped"


FORWARDER_TRANSITIONS: dict[ForwarderState, frozenset[ForwarderState]] = {
    ForwarderState.RUNNING: frozenset({ForwarderState.RUNNING, ForwarderState.HELD, ForwarderState.STOPPED}),
    ForwarderState.HELD: frozenset({ForwarderState.IMAGING, ForwarderState.RUNNING, ForwarderState.STOPPED}),
    ForwarderState.IMAGING: frozenset({ForwarderState.RUNNING, ForwarderState.STOPPED}),
    ForwarderState.STOPPED: frozenset(),
}


def forwarder_transition(state: ForwarderState, following: ForwarderState) -> ForwarderState:
    return follow("the forwarder", FORWARDER_TRANSITIONS, state, following)
