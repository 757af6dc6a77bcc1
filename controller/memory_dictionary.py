"""The Memory port as long as its process lasts: of a dry run, and of a simulated one.

A pass (`reconcile`) loads from it and saves to it as from the memory file and the custom resources in `adapters/`. It
is not one of those: nothing outside the process is reached, and the simulator knows no adapter.
"""

from __future__ import annotations

from controller.model import MemoryState


class DictionaryMemory:
    """Keeps the last state, and nothing of it when the process ends."""

    def __init__(self) -> None:
        self._state = MemoryState()

    def load(self) -> MemoryState:
        """The last saved state; an empty one before the first."""
        return self._state

    def save(self, state: MemoryState) -> None:
        """Keep `state`, which nobody can change any more."""
        self._state = state
