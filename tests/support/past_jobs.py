"""Jobs of the past as they are read from Prometheus, and a real Prometheus that has some."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from slopewise.adapters.prometheus.history import JobHistory, Points, Resources

GIB = 2.0**30
START = 1_790_000_000.0

Curve = Callable[[float], float]


def fast(part: float) -> float:
    """99 % of its improvement in the first quarter."""
    return 0.3 + 2 * math.exp(-20 * part)


def straight(part: float) -> float:
    """Improves to its end."""
    return 2.0 - part


def constant(_: float) -> float:
    """Improves never."""
    return 1.5


def points(seconds: float, step: float, value: Curve, start: float = START) -> Points:
    """A value at each step; `value` is of the part of the time."""
    at = np.arange(0.0, seconds + step / 2, step)
    return np.column_stack((start + at, [value(each / seconds) for each in at]))


def past(
    pod: str = "job-0",
    *,
    hours: float = 10.0,
    loss: Curve | None = fast,
    cores: float = 1.0,
    request: float | None = 2.0,
    start: float = START,
    **more: object,
) -> JobHistory:
    """A job of ten hours with a sample a minute."""
    seconds, step = 3600 * hours, 60.0
    known = {
        "namespace": "team",
        "node": "node-a",
        "still_running": False,
        "memory_bytes": points(seconds, step, lambda _: GIB, start),
        "requests": Resources(request, 4 * GIB),
        **more,
    }
    return JobHistory(
        pod=pod,
        from_seconds=start,
        until_seconds=start + seconds,
        step_seconds=step,
        loss=np.empty((0, 2)) if loss is None else points(seconds, step, loss, start),
        cpu_cores=points(seconds, step, lambda _: cores, start),
        **known,  # type: ignore[arg-type]
    )
