"""A trial of a study, and ASHA's rule.

ASHA (asynchronous successive halving) compares trials at the rungs 1/27, 1/9 and 1/3 of the plan: one of three goes on.
`simulator/stopping.py` runs it; `ranking.py` only says whom it would have stopped. Answers of a session have trials, so
nothing slow to import belongs here: `slopewise submit` would wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from slopewise.model import Objective

K = TypeVar("K", int, str)

ETA = 3
"""Of ASHA: one trial of three goes on from a rung to the next, which is three times as far."""

RUNGS = (1 / 27, 1 / 9, 1 / 3)
"""Parts of the plan at which ASHA compares."""


def best_third(seen: Mapping[K, float]) -> list[K]:
    """The trials of a rung that go on, the lowest loss first."""
    return sorted(seen, key=lambda each: (seen[each], each))[: len(seen) // ETA]


Rungs = Mapping[int, float]
"""The loss of a trial at each rung, by its number, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a study."""

    name: str
    state: str
    loss: float | None
    """The last one; None: none was reported."""
    cpu_seconds: float | None
    objective: Objective = "min"
    arguments: Mapping[str, str] = field(default_factory=dict)
    rungs: Rungs = field(default_factory=dict)
    reason: str = ""
