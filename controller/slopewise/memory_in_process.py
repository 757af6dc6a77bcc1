"""The Memory port of a dry run and of a simulation: it lasts as long as its process."""

from __future__ import annotations

from slopewise.model import MemoryState


class DictionaryMemory:
    """Keeps the last state, and nothing of it when the process ends."""

    def __init__(self) -> None:
        self._state = MemoryState()

    def load(self) -> MemoryState:
        """The last saved state; an empty one before the first."""
        return self._state

    def save(self, state: MemoryState) -> None:
        """Keep `state`, which is immutable."""
        self._state = state
