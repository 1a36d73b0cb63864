"""The states of a checkpoint, and the only place that says how one follows another.

    IDLE -> SEALING -> ROTATING -> SYNCING_LOG -> TAKING_IMAGES -> SYNCING_IMAGES -> WRITING -> TRIMMING -> IDLE

Every state that waits for a file or for the log may also go to IDLE: the step failed, and the checkpoint is repeated after a
delay. TAKING_IMAGES only reads memory and cannot fail.
"""

from enum import Enum


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
    """Return the following state. Raises ValueError if the table does not allow it: that is a bug of the caller."""
    if following not in TRANSITIONS[state]:
        raise ValueError(f"a checkpoint cannot go from {state.value} to {following.value}")
    return following
