"""Checks a history: each event against each rule, with the world that the writes before it have made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from testbed.histories import cpu, freezes, memory, moves
from testbed.histories.events import Contradiction, Event, Sample, World, Write


class Rule(Protocol):
    """What must hold of every event."""

    def check(self, event: Event, world: World) -> Iterator[Contradiction]:
        """What contradicts it, the world being as it was before the event."""
        ...


def contradictions(events: Sequence[Event], *, settled: bool = False) -> list[Contradiction]:
    """All that are found. `settled`: nothing was under way at the end, so that nothing may be left to be done."""
    world, found = World(), list[Contradiction]()
    left = moves.NothingIsLeft()
    rules: list[Rule] = [
        cpu.CgroupsFollow(), cpu.WithinBounds(), cpu.ManagedAlone(), cpu.OriginalsKept(), cpu.RestoredBeforeLetGo(),
        cpu.OneWriter(), cpu.ReportsAreTrue(), memory.MemoryKept(), freezes.FreezesHold(), moves.OwnersConsent(),
        moves.StepsAreDoneOnce(), left,
    ]  # fmt: skip
    for event in ordered(events):
        for rule in rules:
            found += rule.check(event, world)
        world.apply(event)
    if settled and events:
        found += left.check(ordered(events)[-1], world, settled=True)
    return found


def ordered(events: Sequence[Event]) -> list[Event]:
    """By time; accepted writes among themselves by the version that they made, which is exact where times are not."""
    line = sorted(events, key=_seconds)
    writes = {place: event for place, event in enumerate(line) if isinstance(event, Write) and event.version}
    for place, write in zip(writes, sorted(writes.values(), key=lambda write: write.version), strict=True):
        line[place] = write
    return line


def _seconds(event: Event) -> float:
    """A kubelet may carry out a write before its sender has the answer: a sample counts as a second later."""
    if isinstance(event, Write):
        return event.until_seconds
    return event.at_seconds + cpu.READ_SECONDS * isinstance(event, Sample)
