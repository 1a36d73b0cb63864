"""POST /v0/topics/:topic/redrive: move dead letters back to the queues they came from."""

from topics.api.queues import RedriveBody
from topics.broker.queues.redrive import RedriveResult, redrive
from topics.engine.queues.redrive import WantedLetters
from topics.model.records.match import parse_match
from topics.server.operations import Call, handles
from topics.server.responses import reply_to, send


@handles("redrive")
def redrive_letters(call: Call[RedriveBody, None]) -> None:
    body = call.body
    match = None if body.match is None else parse_match(body.match)
    seqs = None if body.seqs is None else frozenset(body.seqs)

    @reply_to(call.request)
    def reply(outcome: RedriveResult) -> None:
        fields = {
            "topic": call.name,
            "moved": sum(outcome.moved.values()),
            "queues": outcome.moved,
            "skipped": outcome.skipped,
            "remaining": outcome.remaining,
            "dry_run": body.dry_run,
        }
        send(call.request, 200, fields)

    wanted = WantedLetters(body.queue, seqs, match)
    redrive(call.broker, call.name, wanted, call.caller.may_touch, reply, dry_run=body.dry_run)
