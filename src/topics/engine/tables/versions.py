"""Versions: one number for all routes, one for all tables and one for all archives of the server.

A version only rises, also over restarts and when a topic with routes or an archive is dropped: a pipeline compares one
number to know whether it still has the current ones. The facts of a change carry the version it makes. Commits are applied
in submission order, so versions are reached in the order they were assigned.
"""

from collections.abc import Callable, Iterable

from topics.model.facts import ArchiveCleared, ArchiveSet, Fact, RoutesSet, TableDropped, TableSet


class Version:
    """The current version, the last one assigned, and the callbacks of requests that wait for the next."""

    def __init__(self) -> None:
        self.now = 0
        # Called when the version has risen and the change can be read.
        self.watchers: set[Callable[[], None]] = set()
        self._assigned = 0

    def next(self) -> int:
        """Assign a version that was never assigned. If its commit fails the version is never used."""
        self._assigned = max(self._assigned, self.now) + 1
        return self._assigned

    def reach(self, version: int) -> None:
        """Raise the current version to the one of a fact. A fact that is replayed over a snapshot may have an older one."""
        self.now = max(self.now, version)


class Versions:
    def __init__(self) -> None:
        self.routes = Version()
        self.tables = Version()
        self.archives = Version()
        self._of: dict[type, Version] = {
            RoutesSet: self.routes,
            TableSet: self.tables,
            TableDropped: self.tables,
            ArchiveSet: self.archives,
            ArchiveCleared: self.archives,
        }

    def watchers_of(self, facts: Iterable[Fact]) -> list[Callable[[], None]]:
        """Return the callbacks of requests that wait for a version that these facts have made."""
        changed = dict.fromkeys([self._of[type(fact)] for fact in facts if type(fact) in self._of])
        return [watcher for version in changed for watcher in version.watchers]
