"""Tracks state over time; times and clocks are arguments.

`FirstSeen`: when a thing was first seen. `OncePerChange`: whether a message is new. `TtlMap`: cached values with a
lifetime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FirstSeen(Generic[K]):
    """When each of several things was first seen, until it is forgotten."""

    def __init__(self) -> None:
        self._seen: dict[K, tuple[float, float]] = {}
        """First and last."""

    def __iter__(self) -> Iterator[K]:
        return iter(self._seen)

    def at(self, key: K, now: float) -> float:
        """When it was first seen; `now`, if it is new."""
        first = min(now, self._seen.get(key, (now, now))[0])
        self._seen[key] = first, now
        return first

    def seconds(self, key: K, now: float) -> float:
        """For how long; 0 for what is not seen."""
        return now - self._seen.get(key, (now, now))[0]

    def keep(self, keys: Iterable[K], now: float) -> None:
        """These are seen now, and no others."""
        self._seen = {key: (self.at(key, now), now) for key in keys}

    def forget(self, key: K) -> None:
        """It is seen no more."""
        self._seen.pop(key, None)

    def forget_before(self, now: float) -> None:
        """Forget what was not seen at `now` or later."""
        self._seen = {key: times for key, times in self._seen.items() if times[1] >= now}


class OncePerChange(Generic[K, V]):
    """Which message about each of several things was reported last: the same one is not reported twice in a row."""

    def __init__(self, pause_seconds: float = 0.0) -> None:
        """`pause_seconds`: how long the next message about a thing waits, also where it is another one."""
        self._pause_seconds = pause_seconds
        self._reported: dict[K, tuple[V, float]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._reported

    def is_new(self, key: K, message: V, now: float = 0.0) -> bool:
        """Whether `message` is to be reported now; it then counts as reported."""
        if key in self._reported:
            last, at = self._reported[key]
            if last == message or now - at < self._pause_seconds:
                return False
        self._reported[key] = message, now
        return True

    def forget(self, key: K) -> None:
        """The next message about it is new."""
        self._reported.pop(key, None)

    def forget_all_but(self, keys: Collection[K]) -> None:
        """The things that there still are."""
        self._reported = {key: reported for key, reported in self._reported.items() if key in keys}


class TtlMap(Generic[K, V]):
    """Values that count for so long after they were put in; of too many the oldest goes."""

    def __init__(self, seconds: float, monotonic: Callable[[], float], most: int = 10_000) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._most = most
        self._kept: dict[K, tuple[float, V]] = {}
        """Until when, and what."""

    def __iter__(self) -> Iterator[K]:
        now = self._monotonic()
        return (key for key, (until, _) in list(self._kept.items()) if now < until)

    def __contains__(self, key: K) -> bool:
        kept = self._kept.get(key)
        return kept is not None and self._monotonic() < kept[0]

    def put(self, key: K, value: V) -> V:
        """Keep it from now on; returns it."""
        self._kept.pop(key, None)
        if len(self._kept) >= self._most:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[key] = self._monotonic() + self._seconds, value
        return value

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """What is kept, or else the answer of `ask`, which is kept; what that raises is raised."""
        kept = self._kept.get(key)
        return kept[1] if kept is not None and self._monotonic() < kept[0] else self.put(key, ask())
