"""The states of a connection, and the only place that says how one follows another.

    IDLE        no request, nothing pending: the next request may take the fast path
    RECEIVING   no request is with the application; input is being parsed, or output waits for the client to read
    HANDLING    one request is with the application and nothing is pending behind it
    PIPELINED   one request is with the application and more is pending: input, the end of input, or unsent output
    STREAMING   the response to the current request is a stream
    UPGRADED    the connection has left HTTP; input belongs to the duplex
    LINGERING   the last response is sent, and input is read and dropped so that the client can read the response
    CLOSING     the transport is closing; nothing is parsed or handed over any more
    CLOSED      the transport is gone

Three facts are independent of the state and are flags of the connection: `writable` and `reading` (flow control of the
transport, in each direction) and `close_after_response`.

The fast path assigns IDLE -> HANDLING and HANDLING -> IDLE directly; all other code calls `Connection.transition`.
"""

import enum


class _FastEnum(enum.Enum):
    """An Enum whose members hash by identity: Enum's own hash, written in Python, takes 0.15 us for each lookup."""

    __hash__ = object.__hash__


class State(_FastEnum):
    IDLE = enum.auto()
    RECEIVING = enum.auto()
    HANDLING = enum.auto()
    PIPELINED = enum.auto()
    STREAMING = enum.auto()
    UPGRADED = enum.auto()
    LINGERING = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class Event(_FastEnum):
    PENDING = enum.auto()
    """There is work besides the current request: input arrived or ended, or the client does not read its responses."""
    NOTHING_PENDING = enum.auto()
    """All input is parsed and handed over, and the client reads its responses."""
    REQUEST = enum.auto()
    """A request is handed to the application."""
    RESPONSE = enum.auto()
    """The response to the current request is complete, and the connection stays open."""
    STREAM = enum.auto()
    """The application answers with a stream."""
    UPGRADE = enum.auto()
    """The application answers with a duplex."""
    LINGER = enum.auto()
    """The last response is written, and the client may still be sending."""
    CLOSE = enum.auto()
    """The transport is closed or aborted by us."""
    LOST = enum.auto()
    """The transport reports that the connection is gone."""


# Members as module globals: reading an attribute of an Enum class takes 20 ns more.
IDLE = State.IDLE
RECEIVING = State.RECEIVING
HANDLING = State.HANDLING
PIPELINED = State.PIPELINED
STREAMING = State.STREAMING
UPGRADED = State.UPGRADED
LINGERING = State.LINGERING
CLOSING = State.CLOSING
CLOSED = State.CLOSED

_ENDS = {Event.LINGER: LINGERING, Event.CLOSE: CLOSING, Event.LOST: CLOSED}

# An event without an entry is a bug: `Connection.transition` raises KeyError.
TRANSITIONS: dict[State, dict[Event, State]] = {
    IDLE: {
        Event.PENDING: RECEIVING,
        Event.NOTHING_PENDING: IDLE,
        Event.REQUEST: HANDLING,
        **_ENDS,
    },
    RECEIVING: {
        Event.PENDING: RECEIVING,
        Event.NOTHING_PENDING: IDLE,
        Event.REQUEST: PIPELINED,
        **_ENDS,
    },
    HANDLING: {
        Event.PENDING: PIPELINED,
        Event.NOTHING_PENDING: HANDLING,
        Event.RESPONSE: IDLE,
        Event.STREAM: STREAMING,
        Event.UPGRADE: UPGRADED,
        **_ENDS,
    },
    PIPELINED: {
        Event.PENDING: PIPELINED,
        Event.NOTHING_PENDING: HANDLING,
        Event.RESPONSE: RECEIVING,
        Event.STREAM: STREAMING,
        Event.UPGRADE: UPGRADED,
        **_ENDS,
    },
    STREAMING: {
        Event.PENDING: STREAMING,
        Event.NOTHING_PENDING: STREAMING,
        Event.RESPONSE: RECEIVING,
        **_ENDS,
    },
    UPGRADED: {
        Event.PENDING: UPGRADED,
        Event.NOTHING_PENDING: UPGRADED,
        **_ENDS,
    },
    LINGERING: {
        Event.PENDING: LINGERING,
        Event.NOTHING_PENDING: LINGERING,
        Event.CLOSE: CLOSING,
        Event.LOST: CLOSED,
    },
    CLOSING: {
        Event.PENDING: CLOSING,
        Event.NOTHING_PENDING: CLOSING,
        Event.CLOSE: CLOSING,
        Event.LOST: CLOSED,
    },
    CLOSED: {},
}
