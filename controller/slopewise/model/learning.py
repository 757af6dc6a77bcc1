"""What is remembered of a job's learning curve, of its class and its meaning, and of when it is expected to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

WorkUnit = Literal["steps", "cpu"]
"""What the work of a point is counted in: steps, or core-seconds where a job counts no steps."""


class RawPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One scrape of a job: its loss, and the steps done at the same moment (None: it counts none)."""

    at_seconds: float
    level: float
    steps: float | None = None


STEPS_WITHOUT_START = 3.0
"""So many steps are enough for the CPU of one to be known without what the start took."""


class Points(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The raw points that are kept of a job (`estimators/raw_points.py`), and how work is counted.

    200 points are 1,600 bytes, and 2.2 KB as JSON.
    """

    unit: WorkUnit
    series: str
    packed: bytes = b""
    """Pairs (work, level) of 32-bit floats, in order of work."""
    sampled_at_seconds: float = 0.0
    """Of the newest sample that was seen, kept or not."""
    work: float = 0.0
    """Done at that sample."""
    spikes: int = 0
    """Samples that were left out because they lie far from those before them."""
    doubted: int = 0
    """Of them, those in a row at the end."""
    without_steps: int = 0
    """Of points in steps: the samples in a row, to the last one, that had none."""
    dropped: bool = False
    """The level has fallen at once and stayed there, as after a drop of the learning rate."""
    cpu_seconds: float = 0.0
    """CPU that the job has used since it was first seen, by all of its processes."""
    counter: float = 0.0
    """The process's own count at the last pass."""
    counted_at_seconds: float = 0.0
    process_started_at_seconds: float | None = None
    steps_first: float | None = None
    """Steps, and CPU, at the moment from which on the CPU of a step is counted."""
    cpu_first_seconds: float = 0.0
    steps: float | None = None
    steps_cpu_seconds: float = 0.0
    """CPU at the scrape of `steps`."""
    workload_class: str = ""
    """Of the job, for its record once it has ended."""

    @property
    def count(self) -> int:
        """How many points are kept."""
        return len(self.packed) // 8

    @property
    def cpu_per_step(self) -> float | None:
        """Core-seconds a step, over the steps since the first one seen; None: not known yet.

        Until `STEPS_WITHOUT_START` of them are done, what was used before counts too: imports and data, 1.5 s of the
        demo's trainings and half a minute of large frameworks.
        """
        if self.steps is None or self.steps_first is None or self.steps <= 0:
            return None
        used, since = self.steps_cpu_seconds - self.cpu_first_seconds, self.steps - self.steps_first
        if not self.without_start:
            used, since = self.cpu_seconds, self.steps
        return used / since if used > 0 else None

    @property
    def without_start(self) -> bool:
        """Whether `cpu_per_step` leaves out what was used before the first step."""
        first, steps = self.steps_first, self.steps
        return first is not None and steps is not None and steps - first >= STEPS_WITHOUT_START


class Ends(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a job is expected to end, in Unix seconds, as of the last decision on its node."""

    at_seconds: float
    earliest_seconds: float
    """If it were served alone."""
    latest_seconds: float
    """When fair sharing would end it, if that is later than what is expected."""
    fair_seconds: float | None = None
    """When it would end under fair sharing; None: not known."""


class Departed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job that has left, and what its policy keeps of it."""

    job_uid: str
    state: str
    """Empty: nothing any more."""


DEPARTED_KEPT = 128
"""Of a policy; 20 KB as JSON. Those that left last."""


class ClassFigures(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one job has shown of its workload class (`estimators/workload_classes.py`)."""

    job_uid: str
    at_seconds: float
    fixed_seconds: float | None = None
    """Of each step or response: seconds that no CPU saves; None: it was not timed."""
    cpu_seconds: float | None = None
    """CPU-seconds a step or response; None: it was not timed."""
    least_cores: float | None = None
    """The least CPU at which it was timed."""
    steps_planned: float | None = None
    memory_bytes: float | None = None
    """Peak, as far as it was seen."""
    work: float | None = None
    """Core-seconds in all; None: it has not ended, or had no points."""

    @property
    def line(self) -> tuple[float, float, float] | None:
        """Fixed seconds, CPU-seconds and least cores; None: it was not timed."""
        if self.fixed_seconds is None or self.cpu_seconds is None or self.least_cores is None:
            return None
        return self.fixed_seconds, self.cpu_seconds, self.least_cores


_LEARNING, _SLOWING, _SLOW = "still learning", "slowing down", "hardly growing"

MEANINGS: Mapping[str, str] = {
    "NL": _LEARNING,
    "WL": _SLOWING,
    "CL": _SLOW,
    "PC": _LEARNING,
    "WC": _SLOWING,
    "CC": _SLOW,
}
"""FlowCon's new, watching and completing list; SpeCon's progressing, watching and converged category. Their bounds are
of an interval: what is flat or converged over a job's time, `advise` says."""

RELEASES_MEMORY = frozenset({"CL", "released"})
"""Classes of jobs that need little: FlowCon's completing list, and TRADL's jobs that have reached their last target.
Their memory request may be lowered (`memory_sizing.py`)."""


def meaning_of(job_class: str) -> str:
    """`still learning`, of `NL`; a class that is a word is its own."""
    return MEANINGS.get(job_class, job_class)


def with_meaning(job_class: str) -> str:
    """`NL, still learning`; `urgent`."""
    return f"{job_class}, {MEANINGS[job_class]}" if job_class in MEANINGS else job_class
