"""Values that a snapshot keeps and the engine works with. Their fields are part of the snapshot format."""

import msgspec
from msgspec import Struct


class KeptWrite(Struct, array_like=True, gc=False, frozen=True):
    """The first write that carried a key."""

    partition: int
    first_seq: int
    count: int
    ts: int


class DeliveryImage(Struct, array_like=True):
    """A delivery as a snapshot or the log holds it. `deliveries` has the delivery count of each job, with this one."""

    node: str
    token: bytes
    deadline: int
    seqs: list[int]
    deliveries: list[int]


class LeaseImage(Struct):
    """The leases of a partition as a snapshot holds them. `returned`: (seq, deliveries); `delayed`: (seq, due_ms, deliveries).

    The names are part of the snapshot format.
    """

    dead_lettered: int = 0
    deliveries: list[DeliveryImage] = msgspec.field(default_factory=list, name="grants")
    returned: list[tuple[int, int]] = []
    delayed: list[tuple[int, int, int]] = []
