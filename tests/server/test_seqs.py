"""The seqs in the answer to a write."""

from hypothesis import example, given
from hypothesis import strategies as st

from topics.server.topics.append import render_run


@given(st.integers(1, 2**53), st.integers(1, 3000))
@example(1, 1)
@example(999, 1)
@example(999, 2)
@example(1, 2500)
@example(1_000_000, 1000)
@example(999_999_999, 2)
def test_a_run_of_seqs_is_written_number_by_number(first: int, count: int) -> None:
    assert render_run(first, count) == b",".join([b"%d" % seq for seq in range(first, first + count)])
