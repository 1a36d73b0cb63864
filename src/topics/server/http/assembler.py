"""From bytes to whole messages: what httptools (llhttp) calls while it parses, and the bounds it does not keep.

    feed(bytes) -> messages: (head, body) for what arrived whole, (head, Refusal) for what is refused early
                -> Refused: the bytes cannot be parsed any further

Nothing is sent or waited for here. A body refused early (too large, or the application says no) is read and
dropped, so that the connection can go on; its Refusal is in `messages` before the rest of it has arrived.

Between two messages an assembler has no state at all, so connections borrow one only while a message is under
way; ten thousand idle ones need none.
"""

from collections.abc import Callable

import httptools

from .head import CHUNKED, RequestHead, add_header, read_head
from .limits import HttpLimits
from .refusal import (
    CODING_UNSUPPORTED,
    HEADERS_TOO_LARGE,
    METHOD_UNKNOWN,
    OVERLOADED,
    PAYLOAD_TOO_LARGE,
    URI_TOO_LONG,
    Refusal,
    Refused,
    malformed,
)

Message = tuple[RequestHead, bytes | Refusal]

# Below this the body has mostly arrived with the head: asking before reading it saves nothing.
ADMIT_BYTES = 64 << 10

# What chunking may cost: one-byte chunks take six bytes each. What is above it are extensions sent to keep us busy.
CHUNK_OVERHEAD_BYTES = 16 << 10
CHUNK_OVERHEAD_RATIO = 8


class HeldBytes:
    """Bodies under way, all connections together."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class Assembler:
    __slots__ = (
        "_admit",
        "_charged",
        "_chunks",
        "_head_bytes",
        "_header_count",
        "_headers",
        "_held",
        "_limits",
        "_parser",
        "_raised",
        "_raw_bytes",
        "_replaying",
        "_target",
        "_upgrade_ignored",
        "body_bytes",
        "discarding",
        "finished",
        "head",
        "in_message",
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
        """Complete or refused, in order; the caller takes them out."""
        self.finished = False
        """The last message asked for the connection to close: what follows it is not ours to read."""

        self.messages_begun = 0

        # Per message.
        self.in_message = False
        self.head: RequestHead | None = None
        """Known from the end of the head to the end of the message."""
        self.body_bytes = 0
        self.wants_continue = False
        """The client waits for 100 Continue before it sends the body."""
        self.discarding = False
        """It is refused already; the rest of it is read and dropped."""
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._head_bytes = 0
        self._raw_bytes = 0
        self._chunks: list[bytes] = []
        self._charged = 0
        self._upgrade_ignored = False
        self._replaying = False
        self._raised: Exception | None = None
        """What ended the parsing: raised by one of the callbacks."""

    def feed(self, data: bytes | memoryview) -> int:
        """Parse `data` and return how much of it was taken: all of it, unless a WebSocket was offered.

        What follows such an offer is HTTP only if the offer is declined, so it stays with the caller.
        Raises Refused; then `messages` may still hold what was whole before.
        """
        at_start = not self.in_message
        self._raw_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            taken: int = upgrade.args[0]
            if not self._upgrade_ignored:
                return taken
            self._raw_bytes -= len(data) - taken
            self._replay_without_upgrade()
            return taken + self.feed(data[taken:])
        except httptools.HttpParserCallbackError as error:
            if self.finished:
                return len(data)
            # Not `error.__context__`: that is what our callback raised only while nobody handles another error.
            raised, self._raised = self._raised, None
            raise raised or error from None
        except httptools.HttpParserInvalidMethodError as error:
            if self.finished:
                return len(data)
            # llhttp knows methods by name. One it does not know is a wrong method, if we can see that it is a word.
            if at_start and not self.messages and bytes(data[:32]).partition(b" ")[0].isalpha():
                raise Refused(METHOD_UNKNOWN) from None
            raise malformed(str(error)) from None
        except httptools.HttpParserError as error:
            if self.finished:
                return len(data)
            raise malformed(str(error)) from None
        if self.in_message:
            self._check_bounds()
        else:
            # Blank lines between messages belong to none.
            self._raw_bytes = 0
        return len(data)

    def remaining(self) -> int:
        """How many bytes of the declared body are still to come; 0 when that is not known."""
        head = self.head
        return head.content_length - self.body_bytes if head is not None and head.content_length > 0 else 0

    def dispose(self) -> None:
        """Give back what is held. The parser and this object hold each other: without this they wait for the GC."""
        self._uncharge()
        self._chunks.clear()
        del self._parser

    # What httptools calls.

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
        # Trailers come after the head was judged: nobody may smuggle a header in there. `_check_bounds` counts them.
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
            self._judge_head()
        except Exception as error:  # noqa: BLE001 - raised again, the application's too
            raise self._keep(error) from None

    def on_body(self, part: bytes) -> None:
        self.body_bytes += len(part)
        if self.discarding:
            if self.body_bytes > self._limits.linger_bytes:
                raise self._keep(Refused(None))
        elif self.body_bytes > self._limits.max_body_bytes:
            self._refuse(PAYLOAD_TOO_LARGE)
        else:
            self._chunks.append(part)

    def on_message_complete(self) -> None:
        if self._upgrade_ignored:
            # Without the body, which llhttp takes for the other protocol's. `feed` will bring it.
            return
        head = self.head
        assert head is not None
        if not self.discarding:
            chunks = self._chunks
            self.messages.append((head, chunks[0] if len(chunks) == 1 else b"".join(chunks)))
        self.finished = not head.keep_alive
        self._reset()

    def _keep(self, error: Exception) -> Exception:
        """What a callback is about to raise: the parser reports only that something was."""
        self._raised = error
        return error

    def _judge_head(self) -> None:
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
            self._judge_body(head)

    def _judge_body(self, head: RequestHead) -> None:
        refusal = None
        length = head.content_length
        least = min(ADMIT_BYTES, self._limits.max_body_bytes)
        if self._admit is not None and (length > least or length == CHUNKED or head.coding or head.expects_continue):
            refusal = self._admit(head)
        if refusal is None:
            if length > self._limits.max_body_bytes:
                refusal = PAYLOAD_TOO_LARGE
            elif head.coding and head.coding != b"gzip" and head.coding != b"x-gzip":
                refusal = CODING_UNSUPPORTED
        if refusal is not None:
            # Whoever waits for a 100 may or may not send the body now: where the next request begins is unknown.
            if head.expects_continue or length > self._limits.linger_bytes:
                raise Refused(refusal)
            self._refuse(refusal)
        elif head.expects_continue:
            self.wants_continue = True

    def _refuse(self, refusal: Refusal) -> None:
        """Answer now; read and drop what is left of the body."""
        assert self.head is not None
        self.messages.append((self.head, refusal))
        self.discarding = True
        self._chunks.clear()
        self._uncharge()

    def _check_bounds(self) -> None:
        head = self.head
        if head is None:
            # A header line that never ends is not shown to `on_header`.
            if self._raw_bytes > self._limits.max_head_bytes + self._limits.max_target_bytes:
                raise Refused(HEADERS_TOO_LARGE)
            return
        if self.body_bytes:
            self.wants_continue = False
        if head.content_length == CHUNKED:
            overhead_bytes = self._raw_bytes - self._head_bytes - self.body_bytes
            allowed_bytes = CHUNK_OVERHEAD_BYTES + self._limits.max_target_bytes
            if overhead_bytes > allowed_bytes + CHUNK_OVERHEAD_RATIO * self.body_bytes:
                raise malformed("too much around the chunks")
        if not self.discarding:
            self._held.total += self.body_bytes - self._charged
            self._charged = self.body_bytes
            if self._held.total > self._limits.max_held_bytes:
                self._refuse(OVERLOADED)

    def _replay_without_upgrade(self) -> None:
        """Have a new parser read the body of a request whose Upgrade we ignore.

        HTTP lets us ignore any Upgrade, and clients such as Java's offer h2c with every POST. llhttp cannot: it
        ends HTTP at the head. A head with the same framing and nothing else brings a fresh parser to that point.
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
        self._raw_bytes = 0
        self._chunks = []
        self.discarding = False
