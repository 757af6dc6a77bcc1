"""Watches that are late, that lose a change, or that expire: what a controller sees of a collection then.

server.views["pods"] = View(late_seconds=10)                             # of all watches of pods that it serves
yard.pods = LateView(objects, PODS, parse_pod, yard.clock, View(lost=2))   # of one store, by a test's clock
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from support.api_objects import Address, Objects, RefusedError, Selector
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.store import Collection

T = TypeVar("T")
Json = dict[str, Any]
Waiting = deque[tuple[float, int, Json]]
"""When each change was made, its version and its event."""

RELIST_SECONDS = 600.0
"""As the reflector has it."""


@dataclass
class View:
    """How a watch shows the changes of a collection. Changes have numbers, from 1."""

    late_seconds: float = 0.0
    held_back: int = 0
    """So many of the last changes are shown once more have come."""
    lost: int = 0
    """This one never comes."""
    expires: int = 0
    """At this one the watch ends with 410."""
    _numbers: dict[int, int] = field(default_factory=dict)
    _expired: bool = False

    @property
    def reached(self) -> bool:
        """Whether there were as many changes as it is about."""
        return max(self.lost, self.expires) <= len(self._numbers)

    def due(self, waiting: Waiting, now_seconds: float) -> Iterator[Json]:
        """The events that are to be shown now, taken from those that wait; RefusedError where the watch expires."""
        while len(waiting) > self.held_back and waiting[0][0] + self.late_seconds <= now_seconds:
            _, version, event = waiting.popleft()
            number = self._numbers.setdefault(version, len(self._numbers) + 1)
            if number == self.expires and not self._expired:
                self._expired = True
                raise RefusedError(410, "Expired", "too old resource version")
            if number != self.lost:
                yield event


def views(changes: int) -> Mapping[str, Mapping[str, Any]]:
    """All kinds of views of so many changes, by what is wrong with them."""
    lost = {f"change {number} lost": {"lost": number} for number in range(1, changes + 1)}
    expired = {f"expired at change {number}": {"expires": number} for number in range(1, changes + 1)}
    late = {f"{seconds} s late": {"late_seconds": seconds} for seconds in (10, 60)}
    return {"last change held back": {"held_back": 1}, **late, **lost, **expired}


class LateView(Collection[T]):
    """The store of a reflector whose watch is such a view. Shape: `protocol.Store`."""

    def __init__(self, objects: Objects, path: str, parse: Callable[[Json], T], clock: FakeClock, view: View) -> None:
        super().__init__(path, parse)
        self._objects, self._at, self._clock, self._view = objects, Address.of(path), clock, view
        self._waiting: Waiting = deque()
        self.synced = True
        self._list()

    def silent_seconds(self) -> float:
        return 0.0

    def items(self) -> tuple[T, ...]:
        self._catch_up()
        return super().items()

    def get(self, namespace: str, name: str) -> T | None:
        self._catch_up()
        return super().get(namespace, name)

    def _list(self) -> None:
        self.begin_listing()
        with self._objects.changed:
            found, self._version = self._objects.listed(self._at, Selector()), self._objects.version
        self.replace(self.read_all(found), self._version)
        self._waiting.clear()
        self._relist_at = self._clock.now() + RELIST_SECONDS

    def _catch_up(self) -> None:
        now = self._clock.now()
        if now >= self._relist_at:
            self._list()
        with self._objects.changed:
            entries, self._version = self._objects.since(self._version), self._objects.version
        for entry in entries:
            event = entry.event(Selector()) if self._at.holds(entry.address) else None
            if event is not None:
                self._waiting.append((now, entry.version, event))
        try:
            for event in self._view.due(self._waiting, now):
                self.apply(event["type"], event["object"])
        except RefusedError:
            self._list()
