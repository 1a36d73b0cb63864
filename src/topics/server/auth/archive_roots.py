"""Archive roots: where a key with prefixes may have topics archived.

The pipeline writes, compacts and vacuums archives with its own credentials. A key without prefixes is the operator's and may name
any location. A key with prefixes may name locations inside the roots (`TOPICS_ARCHIVE_ROOTS`; `archive/` in the data directory
unless set), and the one that its topic has already. No archive may be in the rest of the data directory. The same
rules apply to materialised tables.
"""

import os
from collections.abc import Iterable

from topics.broker.broker import Broker
from topics.model.errors import Forbidden, InvalidRequest
from topics.model.tables.archive import ArchiveOptions
from topics.model.tables.location import Location, is_uri, parse_location
from topics.server.auth.authorization import Caller

DEFAULT_ROOT = "archive"


class ArchiveRoots:
    """The roots of one server."""

    def __init__(self, roots: Iterable[str], data_dir: str) -> None:
        self._data_dir = os.path.abspath(data_dir)
        default = os.path.join(self._data_dir, DEFAULT_ROOT)
        self._default = parse_location(default)
        absolute = [root if is_uri(root) else os.path.abspath(root) for root in roots]
        self._roots = [parse_location(root) for root in absolute or [default]]

    def check(self, broker: Broker, caller: Caller, name: str, uri: str) -> None:
        """Raises Forbidden or InvalidRequest unless the caller may have this topic archived, or this table materialised, there."""
        location = ArchiveOptions(uri).location
        resolved = _resolved(location)
        if resolved.scheme == "file":
            data_dir = _resolved(parse_location(self._data_dir))
            if (resolved.is_same(data_dir) or resolved.is_inside(data_dir)) and not resolved.is_inside(
                _resolved(self._default)
            ):
                raise InvalidRequest(
                    f"an archive must not lie in the data directory of the server, except in {DEFAULT_ROOT}/",
                    detail={"uri": uri},
                )
        if not caller.prefixes:
            return
        table = broker.state.tables.by_name.get(name)
        if table is not None and table.materialized is not None and table.materialized.uri == uri:
            return
        topic = broker.state.topics.get(name)
        current = None if topic is None else topic.archive
        if current is not None and (
            current.options.uri == uri or (location.plain and current.options.location.is_same(location))
        ):
            return
        if not location.plain or not any([resolved.is_inside(_resolved(root)) for root in self._roots]):
            raise Forbidden(
                "the uri lies outside the archive roots of this server (TOPICS_ARCHIVE_ROOTS), which apply to keys with prefixes",
                detail={"uri": uri},
            )


def _resolved(location: Location) -> Location:
    """The location with the symbolic links of a local path resolved, as far as the path exists."""
    if location.scheme != "file":
        return location
    return Location("file", "", os.path.realpath(location.path or "/").rstrip("/"), location.plain)
