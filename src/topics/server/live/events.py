"""Frames as JSON: the same fields and the same names over SSE and WebSocket.

The contract spells two of the names with a hyphen over SSE (`caught-up`, `topic-deleted`), where WebSocket has an underscore.
Both spellings are made from the one name here.
"""

from topics.engine.topics.live_frames import CaughtUp, GapFrame, Gone, LiveFrame, Records

FRAME_NAMES: dict[type[LiveFrame], bytes] = {
    Records: b"record",
    GapFrame: b"tombstone",
    CaughtUp: b"caught_up",
    Gone: b"topic_deleted",
}


def frame_fields(frame: LiveFrame) -> bytes:
    """What a frame says, as the inside of a JSON object: the wire puts its own fields in front."""
    name = frame.topic.name_bytes
    if isinstance(frame, Records):
        return b'"topic":"%b","records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d' % (
            name,
            frame.records,
            frame.from_seq,
            frame.to_seq,
            frame.head_seq,
        )
    if isinstance(frame, GapFrame):
        lost = frame.tombstone
        text = b'"topic":"%b","reason":"%b","gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d' % (
            name,
            lost.reason.encode(),
            lost.gap_from,
            lost.gap_to,
            lost.earliest_seq,
            lost.head_seq,
        )
        return text if lost.cause is None else text + b',"cause":"%b"' % lost.cause.encode()
    if isinstance(frame, Gone):
        return b'"topic":"%b","head_seq":%d,"reason":"deleted"' % (name, frame.head_seq)
    return b'"topic":"%b","head_seq":%d' % (name, frame.head_seq)
