"""Messages of pgoutput are understood whole or refused, wherever they are cut."""

import struct

import pytest

from topics.capture.pgoutput import (
    UNCHANGED,
    Begin,
    CommitMade,
    Relation,
    RelationColumn,
    RowChanged,
    Truncated,
    WrongMessage,
    decode,
)


def value(text: bytes | None | object) -> bytes:
    if text is None:
        return b"n"
    if text is UNCHANGED:
        return b"u"
    assert isinstance(text, bytes)
    return b"t" + struct.pack(">i", len(text)) + text


def row(*texts: bytes | None | object) -> bytes:
    return struct.pack(">h", len(texts)) + b"".join([value(text) for text in texts])


RELATION = (
    b"R" + struct.pack(">I", 7) + b"chat\0messages\0d" + struct.pack(">h", 2)
    + b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0text\0" + struct.pack(">Ii", 25, -1)
)  # fmt: skip
HEAD = struct.pack(">I", 7)
MESSAGES = [
    (b"B" + struct.pack(">qqi", 5 << 32, 1_000_000, 9), Begin(5 << 32, 946_684_801_000, 9)),
    (b"C" + struct.pack(">bqqq", 0, 3, 4, 5), CommitMade(4)),
    (
        RELATION,
        Relation(7, "chat", "messages", "d", [RelationColumn("id", 23, True), RelationColumn("text", 25, False)]),
    ),
    (b"I" + HEAD + b"N" + row(b"1", None), RowChanged(7, "insert", None, False, [b"1", None])),
    (b"U" + HEAD + b"N" + row(b"1", UNCHANGED), RowChanged(7, "update", None, False, [b"1", UNCHANGED])),
    (
        b"U" + HEAD + b"K" + row(b"0", None) + b"N" + row(b"1", b"x"),
        RowChanged(7, "update", [b"0", None], False, [b"1", b"x"]),
    ),
    (b"D" + HEAD + b"O" + row(b"1", b"x"), RowChanged(7, "delete", [b"1", b"x"], True, None)),
    (b"T" + struct.pack(">ibII", 2, 0, 7, 8), Truncated([7, 8])),
]


@pytest.mark.parametrize(("data", "message"), MESSAGES)
def test_a_message_is_decoded_and_every_truncation_is_refused(data: bytes, message: object) -> None:
    assert decode(data) == message
    for cut in range(len(data)):
        with pytest.raises(WrongMessage):
            decode(data[:cut])


def test_messages_that_do_not_concern_rows_are_ignored() -> None:
    assert [decode(kind) for kind in (b"Y...", b"O...", b"M...")] == [None, None, None]


@pytest.mark.parametrize(
    "data",
    [b"", b"Z", b"I" + HEAD + b"O" + row(b"1"), b"D" + HEAD + b"N" + row(b"1"), b"I" + HEAD + b"N" + row(b"1") + b"x"],
)
def test_bytes_that_are_not_a_message_are_refused(data: bytes) -> None:
    with pytest.raises(WrongMessage):
        decode(data)
