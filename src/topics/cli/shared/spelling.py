"""Suggestions for misspelled names."""

from collections.abc import Iterable

MAX_SUGGESTIONS = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names what is spelled like `name`; empty when nothing is."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=MAX_SUGGESTIONS, cutoff=0.6)
    return f"Did you mean {' or '.join(close)}?" if close else ""
