"""Every connection of these tests checks its transitions against the state table."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from topics.server.http.connection.connection import Connection
from topics.server.http.connection.state import TRANSITIONS, State


class CheckedConnection(Connection):
    """Records each change of state that the table does not have."""

    __slots__ = ("_state",)
    violations: ClassVar[list[tuple[State, State]]] = []

    @property
    def state(self) -> State:  # type: ignore[override]
        return self._state

    @state.setter
    def state(self, new: State) -> None:
        old = getattr(self, "_state", new)
        if new is not old and new not in TRANSITIONS[old].values():
            self.violations.append((old, new))
        self._state = new


@pytest.fixture(autouse=True)
def transitions_follow_the_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    CheckedConnection.violations.clear()
    monkeypatch.setattr("topics.server.http.listener.Connection", CheckedConnection)
    yield
    assert CheckedConnection.violations == []
