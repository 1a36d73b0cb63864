"""The states of a job of a queue, and every transition between them.

`Leases` (lease.py) keeps each job in the place of its state and moves it by the transitions below, and by no other. A job that
is asked to make a transition the table does not have raises IllegalTransition: that is a bug of the caller.

    FRESH            never delivered, at or after the cursor
    DELAYED          becomes RETURNED at a given time
    RETURNED         delivered before and given back, or its delay is over; claimed before FRESH jobs
    TAKEN            chosen for a claim that is being served; leased or put back before the next claim is served
    LEASED           delivered to a node, which holds it until a deadline
    COMMITTING       LEASED, and an ack or nack of it waits for the log
    DEAD_LETTERING   its move to the dead-letter topic waits for the log
    GONE             acked, moved, deleted, evicted or expired: not in the log any more

                 take               lease                begin_commit              forget
    FRESH, ---------------> TAKEN ----------> LEASED ------------------> COMMITTING ----------> GONE
    RETURNED <------------------- put_back      |  <-- cancel_commit ------'
       |  ^                                     |
       |  '---- undo, expire, give_back --------'            give_back (with a time): DELAYED
       '---- set_aside ----> DEAD_LETTERING ---- put_back_dead ----> RETURNED
"""

from enum import Enum
from typing import Final


class JobState(Enum):
    FRESH = "fresh"
    DELAYED = "delayed"
    RETURNED = "returned"
    TAKEN = "taken"
    LEASED = "leased"
    COMMITTING = "committing"
    DEAD_LETTERING = "dead_lettering"
    GONE = "gone"


class JobEvent(Enum):
    """What causes a transition. Each is a method of `Leases`, or a part of one."""

    # An append gave the job a time before which it is not delivered.
    DELAY = "delay"
    # The time of a delayed job has come.
    DUE = "due"
    # A claim chose the job.
    TAKE = "take"
    # A claim found that the job was delivered too often.
    SET_ASIDE = "set_aside"
    # The job was taken and is not delivered: the response of the claim is full.
    PUT_BACK = "put_back"
    # The job is delivered to the node of the claim.
    LEASE = "lease"
    # The delivery did not happen: the log refused it, or the job cannot be read. It is not counted.
    UNDO = "undo"
    # The deadline has passed.
    EXPIRE = "expire"
    # The holder sets another deadline.
    EXTEND = "extend"
    # The holder nacked it, or its connection closed.
    GIVE_BACK = "give_back"
    # The same with a time before which it is not delivered again.
    GIVE_BACK_LATER = "give_back_later"
    # An ack or nack was submitted to the log.
    BEGIN_COMMIT = "begin_commit"
    # The log refused the ack or nack.
    CANCEL_COMMIT = "cancel_commit"
    # The dead-letter topic or the log refused the move.
    PUT_BACK_DEAD = "put_back_dead"
    # The record is gone from the log: acked, moved, deleted, evicted or expired.
    FORGET = "forget"


_S, _E = JobState, JobEvent

TRANSITIONS: Final[dict[tuple[JobState, JobEvent], JobState]] = {
    (_S.FRESH, _E.DELAY): _S.DELAYED,
    (_S.FRESH, _E.TAKE): _S.TAKEN,
    (_S.DELAYED, _E.DUE): _S.RETURNED,
    (_S.RETURNED, _E.TAKE): _S.TAKEN,
    (_S.RETURNED, _E.SET_ASIDE): _S.DEAD_LETTERING,
    (_S.TAKEN, _E.PUT_BACK): _S.RETURNED,
    (_S.TAKEN, _E.LEASE): _S.LEASED,
    (_S.LEASED, _E.UNDO): _S.RETURNED,
    (_S.LEASED, _E.EXPIRE): _S.RETURNED,
    (_S.LEASED, _E.EXTEND): _S.LEASED,
    (_S.LEASED, _E.GIVE_BACK): _S.RETURNED,
    (_S.LEASED, _E.GIVE_BACK_LATER): _S.DELAYED,
    (_S.LEASED, _E.BEGIN_COMMIT): _S.COMMITTING,
    (_S.COMMITTING, _E.CANCEL_COMMIT): _S.LEASED,
    # A nack that reached the log.
    (_S.COMMITTING, _E.GIVE_BACK): _S.RETURNED,
    (_S.COMMITTING, _E.GIVE_BACK_LATER): _S.DELAYED,
    (_S.DEAD_LETTERING, _E.PUT_BACK_DEAD): _S.RETURNED,
    # Records are deleted and evicted whatever their job is doing.
    **{(state, _E.FORGET): _S.GONE for state in JobState},
    # A record may be deleted while a decision about its job waits for the log. The decision then changes nothing.
    (_S.GONE, _E.GIVE_BACK): _S.GONE,
    (_S.GONE, _E.GIVE_BACK_LATER): _S.GONE,
    (_S.GONE, _E.CANCEL_COMMIT): _S.GONE,
    (_S.GONE, _E.PUT_BACK_DEAD): _S.GONE,
}


class IllegalTransition(AssertionError):
    """A job was asked to make a transition that is not in the table: a bug of the caller."""

    def __init__(self, seq: int, state: JobState, event: JobEvent) -> None:
        super().__init__(f"job {seq} is {state.value}: {event.value} is not allowed")
        self.seq = seq
        self.state = state
        self.event = event


def check_transition(seq: int, state: JobState, event: JobEvent) -> None:
    """Raise IllegalTransition unless the table has this transition."""
    if (state, event) not in TRANSITIONS:
        raise IllegalTransition(seq, state, event)
