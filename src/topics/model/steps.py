"""Long work in steps: a generator that yields every few hundred microseconds and returns its result.

The caller decides how many steps run in one turn (see `runtime/slices.py`); a test or recovery runs all of them at once.
Between two steps anything may happen to the data that the work is about: the work must allow for it.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Run all steps at once. Returns the result, or raises what the work raises."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: T = over.value
            return result
