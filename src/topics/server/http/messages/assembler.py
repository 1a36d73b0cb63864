"""Bytes to complete messages: the callbacks of httptools (llhttp), and the limits that llhttp does not enforce.

    feed(bytes) -> messages: (head, body) for a complete message, (head, Refusal) for one that is refused early
                -> Refused: the bytes cannot be parsed any further

Nothing is sent or waited for here. When a body is refused early (too large, or refused by the application), the rest of
it is read and dropped, so that the connection can go on; its Refusal is in `messages` before the rest has arrived.

Between two messages an assembler has no state, so a connection borrows one only while a message is incomplete;
idle connections need none.
"""

from collections.abc import Callable

import httptools

from topics.server.http.limits import HttpLimits

from .body import BodyParts
from .head import CHUNKED, RequestHead, add_header, read_head
from .refusal import (
    CODING_UNSUPPORTED,
    HEADERS_TOO_LARGE,
    METHOD_UNKNOWN,
    OVERLOADED,
    URI_TOO_LONG,
    Refusal,
    Refused,
    malformed,
    too_large,
)

# The head, and the body; a Refusal to send instead; or None: the client has its response, and the connection must end.
Message = tuple[RequestHead, bytes | Refusal | None]

# A smaller body has mostly arrived with its head: asking the application before reading it saves nothing.
MIN_ADMIT_BYTES = 64 << 10

# Chunk headers may take this much: one-byte chunks take six bytes each. More are extensions that only cost us time.
MAX_CHUNK_OVERHEAD_BYTES = 16 << 10
MAX_CHUNK_OVERHEAD_RATIO = 8


def body_limit(head: RequestHead, limits: HttpLimits) -> int:
    """The maximum size of this request's body, as sent and after inflating."""
    return min(head.max_body_bytes or limits.max_body_bytes, limits.max_body_bytes)


class HeldBytes:
    """The bytes of incomplete bodies, summed over all connections."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def fits(self, size: int, max_bytes: int) -> bool:
        return self.total + size <= max_bytes


class Assembler:
    __slots__ = (
        "_admit",
        "_body",
        "_charged",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_held",
        "_limits",
        "_max_body_bytes",
        "_parser",
        "_raised",
        "_replaying",
        "_target",
        "_upgrade_ignored",
        "body_bytes",
        "discarding",
        "finished",
        "head",
        "in_message",
        "message_bytes",
        "messages",
        "messages_begun",
        "wants_continue",
    )

    def __init__(
        self, limits: HttpLimits, held: HeldBytes, admit: Callable[[RequestHead], Refusal | None] | None
    ) -> None:
        self._limits = limits
        self._held = held
        self._admit = admit
        self._parser = httptools.HttpRequestParser(self)
        self.messages: list[Message] = []
        """Complete or refused messages, in order, until `take_messages`."""
        self.finished = False
        """The last message asked for the connection to close: what follows it is ignored."""

        self.messages_begun = 0

        # Per message.
        self.in_message = False
        self.head: RequestHead | None = None
        """Set from the end of the head to the end of the message."""
        self.body_bytes = 0
        self.wants_continue = False
        """The client waits for 100 Continue before it sends the body."""
        self.discarding = False
        """The message is refused already; the rest of it is read and dropped."""
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._head_bytes = 0
        self.message_bytes = 0
        """Bytes parsed of this message, with framing."""
        self._body = BodyParts(limits.max_body_bytes)
        self._max_body_bytes = limits.max_body_bytes
        self._charged = 0
        self._upgrade_ignored = False
        self._replaying = False
        self._raised: Exception | None = None
        """The exception that a callback raised; the parser reports only that there was one."""

    def feed(self, data: bytes | memoryview) -> int:
        """Parse `data` and return the number of bytes parsed: all of them, unless a WebSocket was offered.

        What follows such an offer is HTTP only if the offer is declined, so it stays with the caller.
        Raises Refused; `messages` then still holds those completed before.
        """
        at_start = not self.in_message
        self.message_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            taken: int = upgrade.args[0]
            if not self._upgrade_ignored:
                return taken
            self.message_bytes -= len(data) - taken
            self._replay_without_upgrade()
            return taken + self.feed(data[taken:])
        except httptools.HttpParserCallbackError as error:
            if self.finished:
                return len(data)
            # Not `error.__context__`: it is another exception when the caller is handling one.
            raised, self._raised = self._raised, None
            raise raised or error from None
        except httptools.HttpParserInvalidMethodError as error:
            if self.finished:
                return len(data)
            # llhttp accepts only methods it knows by name. An unknown word is a wrong method, not a malformed request.
            if at_start and not self.messages and bytes(data[:32]).partition(b" ")[0].isalpha():
                raise Refused(METHOD_UNKNOWN) from None
            raise malformed(str(error)) from None
        except httptools.HttpParserError as error:
            if self.finished:
                return len(data)
            raise malformed(str(error)) from None
        if self.in_message:
            self._check_limits()
        else:
            # Blank lines between messages belong to no message.
            self.message_bytes = 0
        return len(data)

    def take_messages(self) -> list[Message]:
        """Remove and return the messages."""
        messages = self.messages
        self.messages = []
        return messages

    def remaining(self) -> int:
        """The number of bytes of the declared body that have not arrived; 0 if the length is not declared."""
        head = self.head
        return head.content_length - self.body_bytes if head is not None and head.content_length > 0 else 0

    def dispose(self) -> None:
        """Release the held bytes, and break the reference cycle with the parser so that no garbage collection is needed."""
        self._uncharge()
        self._body.clear(0)
        del self._parser

    # Called by httptools.

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        if self.finished:
            raise self._keep(Refused(None))
        self.in_message = True
        self.messages_begun += 1

    def on_url(self, part: bytes) -> None:
        if self._replaying:
            return
        self._target += part
        if len(self._target) > self._limits.max_target_bytes:
            raise self._keep(Refused(URI_TOO_LONG))

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come after the head was checked, so they are ignored. `_check_limits` counts their bytes.
        if self._replaying or self.head is not None:
            return
        self._head_bytes += len(name) + len(value) + 4
        self._header_count += 1
        if self._header_count > self._limits.max_headers or self._head_bytes > self._limits.max_head_bytes:
            raise self._keep(Refused(HEADERS_TOO_LARGE))
        try:
            add_header(self._headers, name, value)
        except Refused as refused:
            raise self._keep(refused) from None

    def on_headers_complete(self) -> None:
        if self._replaying:
            self._replaying = False
            return
        try:
            self._check_head()
        except Exception as error:  # noqa: BLE001 - raised again, the application's too
            raise self._keep(error) from None

    def on_body(self, part: bytes) -> None:
        self.body_bytes += len(part)
        if self.discarding:
            if self.body_bytes > self._limits.linger_bytes:
                raise self._keep(Refused(None))
        elif self.body_bytes > self._max_body_bytes:
            self._refuse(too_large(self._max_body_bytes, self._limits.max_body_bytes))
        else:
            self._body.add(part)

    def on_message_complete(self) -> None:
        if self._upgrade_ignored:
            # llhttp ends the message before its body, as if that belonged to the other protocol. `feed` parses the body.
            return
        head = self.head
        assert head is not None
        if not self.discarding:
            self.messages.append((head, self._body.take()))
        self.finished = not head.keep_alive
        self._reset()

    def _keep(self, error: Exception) -> Exception:
        """Keep the exception that a callback is about to raise: the parser reports only that there was one."""
        self._raised = error
        return error

    def _check_head(self) -> None:
        parser = self._parser
        method = parser.get_method()
        if method == b"CONNECT":
            raise Refused(METHOD_UNKNOWN)
        head = read_head(method, self._target, parser.get_http_version(), parser.should_keep_alive(), self._headers)
        self.head = head
        if parser.should_upgrade():
            self._upgrade_ignored = not head.offers_websocket
        else:
            head.offers_websocket = False
        if head.content_length != 0:
            self._check_body(head)

    def _check_body(self, head: RequestHead) -> None:
        refusal = None
        length = head.content_length
        min_admit_bytes = min(MIN_ADMIT_BYTES, self._limits.max_body_bytes)
        if self._admit is not None and (
            length > min_admit_bytes or length == CHUNKED or head.coding or head.expects_continue
        ):
            refusal = self._admit(head)
        max_body_bytes = self._max_body_bytes = body_limit(head, self._limits)
        self._body.clear(length if 0 < length <= max_body_bytes else max_body_bytes)
        if refusal is None:
            if length > max_body_bytes:
                refusal = too_large(max_body_bytes, self._limits.max_body_bytes)
            elif head.coding and head.coding != b"gzip" and head.coding != b"x-gzip":
                refusal = CODING_UNSUPPORTED
        if refusal is not None:
            # A client that expects 100 Continue may or may not send the body now: where the next request begins is unknown.
            if head.expects_continue or length > self._limits.linger_bytes:
                raise Refused(refusal)
            self._refuse(refusal)
        elif head.expects_continue:
            self.wants_continue = True

    def _refuse(self, refusal: Refusal) -> None:
        """Queue the refusal now; read and drop the rest of the body."""
        assert self.head is not None
        self.messages.append((self.head, refusal))
        self.discarding = True
        self._body.clear(0)
        self._uncharge()

    def _check_limits(self) -> None:
        head = self.head
        if head is None:
            # llhttp does not call `on_header` before the line ends.
            if self.message_bytes > self._limits.max_head_bytes + self._limits.max_target_bytes:
                raise Refused(HEADERS_TOO_LARGE)
            return
        if self.body_bytes:
            self.wants_continue = False
        if head.content_length == CHUNKED:
            overhead_bytes = self.message_bytes - self._head_bytes - self.body_bytes
            allowed_bytes = MAX_CHUNK_OVERHEAD_BYTES + self._limits.max_target_bytes
            if overhead_bytes > allowed_bytes + MAX_CHUNK_OVERHEAD_RATIO * self.body_bytes:
                raise malformed("too many bytes of chunk headers for the size of the body")
        if not self.discarding:
            self._held.total += self.body_bytes - self._charged
            self._charged = self.body_bytes
            if self._held.total > self._limits.max_held_bytes:
                self._refuse(OVERLOADED)

    def _replay_without_upgrade(self) -> None:
        """Give the body of a request whose Upgrade we ignore to a new parser.

        HTTP allows a server to ignore any Upgrade, and clients such as Java's offer h2c with every POST. llhttp always
        ends HTTP after such a head. A head with the same framing and nothing else brings a new parser to that point.
        """
        head = self.head
        assert head is not None
        framing = b"Content-Length: %d\r\n" % head.content_length
        if head.content_length == CHUNKED:
            framing = b"Transfer-Encoding: chunked\r\n"
        self._upgrade_ignored = False
        self._replaying = True
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n")

    def _uncharge(self) -> None:
        self._held.total -= self._charged
        self._charged = 0

    def _reset(self) -> None:
        self._uncharge()
        self.in_message = False
        self.head = None
        self.body_bytes = 0
        self.wants_continue = False
        self._target = b""
        self._headers = {}
        self._header_count = 0
        self._head_bytes = 0
        self.message_bytes = 0
        self._body.clear(self._limits.max_body_bytes)
        self.discarding = False
