"""The Memory port of a dry run: a dictionary, gone with the process."""

from __future__ import annotations

from controller.model import MemoryState


class DictionaryMemory:
    """Keeps the last state in this process only."""

    def __init__(self) -> None:
        self._state = MemoryState()

    def load(self) -> MemoryState:
        """What was saved last."""
        return self._state

    def save(self, state: MemoryState) -> None:
        """Keep it."""
        self._state = state
