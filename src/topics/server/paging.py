"""Pages of lists: which entries a page has, and the cursor of the next one."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from topics.api.common import PageQuery
from topics.server.decoding import list_cursor, parse_list_cursor
from topics.server.limits import at_most

MAX_PAGE_SIZE = 1000
T = TypeVar("T")


def first_after(query: PageQuery) -> str:
    """The name after which the page begins. Raises InvalidRequest for a cursor that this server did not make."""
    return parse_list_cursor(query.cursor)


def page_of(entries: Iterable[T], query: PageQuery, name_of: Callable[[T], str]) -> tuple[list[T], dict[str, str]]:
    """The entries of the page, from those after its cursor in order, and `next_cursor` unless it is the last page."""
    size = at_most(query.page_size, MAX_PAGE_SIZE)
    page = list(islice(entries, size + 1))
    if len(page) <= size:
        return page, {}
    page.pop()
    return page, {"next_cursor": list_cursor(name_of(page[-1]))}
