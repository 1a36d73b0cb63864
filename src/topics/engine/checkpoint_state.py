"""The states of a checkpoint, and the only place that says how one follows another.

    IDLE -> SEALING -> ROTATING -> SYNCING_LOG -> TAKING_IMAGES -> SYNCING_IMAGES -> WRITING -> TRIMMING -> IDLE

Every state that waits for a file or for the log may also go to IDLE: the step failed, and the checkpoint is repeated after a
delay. TAKING_IMAGES only reads memory and cannot fail.

Whether the server stops is independent of where the checkpoint under way has got to, so it has a table of its own:

    NOT_WANTED --stop, none is under way--> BEGUN
    NOT_WANTED --stop--> WANTED --the one under way is over--> BEGUN

What else the checkpointer holds belongs to one state, and is None or empty in all others: the seals it waits for to SEALING, the
lsn it waits for to SYNCING_LOG and SYNCING_IMAGES, the topics that are left to TAKING_IMAGES. The next log file is created
ahead of time, during a checkpoint or not: that is one flag beside the tables.
"""

from enum import Enum

from topics.engine.state_table import follow


class CheckpointState(Enum):
    # No checkpoint is being taken.
    IDLE = "idle"
    # Hot segments that are too large for the snapshot are sealed; on a full disk, spare files are removed first.
    SEALING = "sealing"
    # Routers are held, what is queued is written, and a new log file begins: the cut.
    ROTATING = "rotating"
    # Everything before the cut is being synced and applied.
    SYNCING_LOG = "syncing_log"
    # The images of the topics are taken, some per turn of the loop.
    TAKING_IMAGES = "taking_images"
    # Delete flags are copied, and the log is synced up to the newest image.
    SYNCING_IMAGES = "syncing_images"
    # Flags and snapshot are written and synced, by the storage thread.
    WRITING = "writing"
    # Log files that neither kept snapshot needs are removed.
    TRIMMING = "trimming"


TRANSITIONS: dict[CheckpointState, frozenset[CheckpointState]] = {
    CheckpointState.IDLE: frozenset({CheckpointState.SEALING}),
    CheckpointState.SEALING: frozenset({CheckpointState.ROTATING, CheckpointState.IDLE}),
    CheckpointState.ROTATING: frozenset({CheckpointState.SYNCING_LOG, CheckpointState.IDLE}),
    CheckpointState.SYNCING_LOG: frozenset({CheckpointState.TAKING_IMAGES, CheckpointState.IDLE}),
    CheckpointState.TAKING_IMAGES: frozenset({CheckpointState.SYNCING_IMAGES}),
    CheckpointState.SYNCING_IMAGES: frozenset({CheckpointState.WRITING, CheckpointState.IDLE}),
    CheckpointState.WRITING: frozenset({CheckpointState.TRIMMING, CheckpointState.IDLE}),
    CheckpointState.TRIMMING: frozenset({CheckpointState.IDLE}),
}


def transition(state: CheckpointState, following: CheckpointState) -> CheckpointState:
    return follow("a checkpoint", TRANSITIONS, state, following)


class LastCheckpoint(Enum):
    """Of a server that stops: nothing is written behind its last checkpoint, which is marked as clean."""

    # The server does not stop.
    NOT_WANTED = "not_wanted"
    # The server stops. Another checkpoint is under way, which does not cover what was written since it began.
    WANTED = "wanted"
    # The checkpoint under way is the last one, or the last one is over.
    BEGUN = "begun"


LAST_TRANSITIONS: dict[LastCheckpoint, frozenset[LastCheckpoint]] = {
    LastCheckpoint.NOT_WANTED: frozenset({LastCheckpoint.WANTED, LastCheckpoint.BEGUN}),
    LastCheckpoint.WANTED: frozenset({LastCheckpoint.BEGUN}),
    LastCheckpoint.BEGUN: frozenset(),
}


def last_transition(state: LastCheckpoint, following: LastCheckpoint) -> LastCheckpoint:
    return follow("the last checkpoint", LAST_TRANSITIONS, state, following)
