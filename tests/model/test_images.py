"""Images of a snapshot keep the names of their fields."""

import msgspec

from topics.model.images import DeliveryImage, KeptWrite, LeaseImage


def test_names_that_snapshots_already_hold_do_not_change() -> None:
    image = LeaseImage(2, [DeliveryImage("n", b"t", 9, [1], [1])], [(2, 1)], [(3, 99, 0)])
    assert msgspec.to_builtins(image, builtin_types=(bytes,)) == {
        "dead_lettered": 2,
        "grants": [["n", b"t", 9, [1], [1]]],
        "returned": [(2, 1)],
        "delayed": [(3, 99, 0)],
    }
    assert msgspec.to_builtins(KeptWrite(0, 5, 2, 1000)) == [0, 5, 2, 1000]
