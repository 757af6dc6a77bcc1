"""Recognises labels that grow with the training, by the values that they take from one reading to the next.

Such a label (`it`, `batch_idx`, `timestamp`) makes a new series with each step, so that no window fills. A label counts
as one when its largest number has risen twice while the series with the smaller numbers ended or stood still. The ranks
or GPUs of a job are numbers too: theirs do not rise, and the losses of the lower ones change.

The rises of a `fold`, an `attempt` or a `phase` come after many minutes. The newest series has a full window (four
scrapes) of its own by then, and counting begins again; so does it for a label that was taken for one of steps. While
the old series stay exported, the newest is not alone, and the label counts as growing: which one to use is not certain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from slopewise.adapters.prometheus.queries import WINDOW_SAMPLES

RISES = 2
"""One rise may be a restart that counts its attempts, or a job that was given one more worker."""

MAX_NUMBERS = 100
"""Numbers of a label whose levels are kept until the next reading: the largest."""


K = TypeVar("K", bound=Hashable)
"""What names a job."""


class SeriesRows(msgspec.Struct, frozen=True, gc=False):
    """One series: its labels without `slopewise_value`, and the values of its rows by that label."""

    labels: Mapping[str, str]
    values: dict[str, float]

    @property
    def sample_count(self) -> int:
        """In the window, at most `WINDOW_SAMPLES`; larger counts are not reported."""
        return int(self.values.get("samples", WINDOW_SAMPLES if "level" in self.values else 0))


@dataclass(slots=True)
class _Numbers:
    """The numbers that one label of a job had, among series that are alike but for their numbers."""

    largest: float
    rises: int = 0
    """Since a series last had a full window of its own."""

    levels: Mapping[float, Sequence[float]] = field(default_factory=dict)
    """Of the last reading: the levels of the series with each number."""

    def note(self, levels: Mapping[float, Sequence[float]], *, alone: bool) -> None:
        """Compare with the last reading. `alone`: the series with the newest number have a full window of their own."""
        newest = max(levels)
        if newest > self.largest:
            others = (number for number in levels if number < newest)
            if all(self.levels.get(number, levels[number]) == levels[number] for number in others):
                self.rises += 1
            self.largest = newest
        if alone:
            self.rises = 0
        self.levels = dict(islice(sorted(levels.items(), reverse=True), MAX_NUMBERS))


_Place = tuple[str, frozenset[tuple[str, str]]]
"""A label, and those other labels of the series whose values are no numbers."""


@dataclass(slots=True)
class _Job:
    """One job's labels that are known to grow, and the numbers of all others."""

    growing: frozenset[str] = frozenset()
    places: Mapping[_Place, _Numbers] = field(default_factory=dict)

    def note(self, series: Iterable[SeriesRows]) -> None:
        """Add a reading. Places that it lacks are forgotten, so that a job takes no more memory with time."""
        levels: dict[_Place, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        full: set[tuple[_Place, float]] = set()
        for one in series:
            if not (numbers := _numbers(one.labels)):
                continue
            others = frozenset((name, value) for name, value in one.labels.items() if name not in numbers)
            for label, number in numbers.items():
                levels[label, others][number].append(one.values.get("level", math.nan))
                if one.sample_count >= WINDOW_SAMPLES:
                    full.add(((label, others), number))
        places = {place: self.places.get(place) or _Numbers(max(found)) for place, found in levels.items()}
        lasting: set[str] = set()
        for place, found in levels.items():
            alone = len(found) == 1 and (place, max(found)) in full
            places[place].note({number: sorted(of_number) for number, of_number in found.items()}, alone=alone)
            if alone:
                lasting.add(place[0])
        self.places = places
        self.growing = (self.growing - lasting) | {
            label for (label, _), numbers in places.items() if numbers.rises >= RISES
        }


class MovingLabels(Generic[K]):
    """What the readings of one mapping's series have shown. Forgets jobs that have no series any more."""

    def __init__(self) -> None:
        self._known: dict[K, _Job] = {}

    def of_jobs(self, series: Mapping[K, Sequence[SeriesRows]]) -> dict[K, frozenset[str]]:
        """The labels of each job's series that grow with its training; jobs without any are left out."""
        before = self._known
        jobs = {
            key: before.get(key) or _Job()
            for key, of_job in series.items()
            if key in before or any(_numbers(one.labels) for one in of_job)
        }
        for key, job in jobs.items():
            job.note(series[key])
        self._known = {key: job for key, job in jobs.items() if job.places}
        return {key: job.growing for key, job in jobs.items() if job.growing}


def _numbers(labels: Mapping[str, str]) -> dict[str, float]:
    """The labels whose values are numbers. The scrape's own are none of the training's."""
    found = {}
    for label in [label for label, value in labels.items() if value[:1].isdigit()]:
        if label not in ("instance", "pod", "namespace"):
            with suppress(ValueError):
                found[label] = float(labels[label])
    return found
