"""Versions: one number for all routes, one for all tables and one for all archives of the server.

A version only ever rises, also over restarts and when a topic with routes or an archive is dropped: whoever runs them
compares one number to know whether it still has the right ones. The facts of a change carry the version it makes, so
changes must become true in the order of their versions. A shard keeps it; with several, one change waits for the other.
"""

from collections import deque
from collections.abc import Callable, Iterable

from topics.model.facts import ArchiveCleared, ArchiveSet, Fact, RoutesSet, TableDropped, TableSet


class Version:
    """Which version there is, which was handed out last, and who waits for the next."""

    def __init__(self) -> None:
        self.now = 0
        # Told when it has risen and what changed can be read.
        self.watchers: set[Callable[[], None]] = set()
        # Changes on their way to the log, and those that wait until there is none.
        self.under_way = 0
        self.waiting: deque[Callable[[], None]] = deque()
        self._decided = 0

    def next(self) -> int:
        """A version nothing has had; one whose commit fails is never used."""
        self._decided = max(self._decided, self.now) + 1
        return self._decided

    def reach(self, version: int) -> None:
        """A fact says that there is this version. One that was replayed over a snapshot may be older."""
        self.now = max(self.now, version)

    def tell(self) -> None:
        for callback in list(self.watchers):
            callback()

    def over(self) -> None:
        """A change under way is decided; those who waited for it go on, in order."""
        self.under_way -= 1
        while self.waiting and not self.under_way:
            self.waiting.popleft()()


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

    def tell(self, facts: Iterable[Fact]) -> None:
        """These facts are true now: those who wait for a version they have made are told."""
        for version in self._made_by(facts):
            version.tell()

    def begin(self, facts: Iterable[Fact]) -> None:
        """A commit with these facts is on its way."""
        for version in self._made_by(facts):
            version.under_way += 1

    def over(self, facts: Iterable[Fact]) -> None:
        """It is true or has failed, and whoever asked for it was told."""
        for version in self._made_by(facts):
            version.over()

    def _made_by(self, facts: Iterable[Fact]) -> list[Version]:
        return list(dict.fromkeys([self._of[type(fact)] for fact in facts if type(fact) in self._of]))
