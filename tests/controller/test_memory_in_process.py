"""The memory that lasts as long as its process."""

from __future__ import annotations

from support.worlds import remembering

from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import JobMemory, MemoryState


def test_it_is_empty_at_first_and_then_holds_what_was_saved_last() -> None:
    memory = DictionaryMemory()
    assert memory.load() == MemoryState()
    memory.save(remembering({"a": JobMemory()}))
    memory.save(remembering({"b": JobMemory()}))
    assert memory.load() == remembering({"b": JobMemory()})
