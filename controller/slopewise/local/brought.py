"""What a session has brought: the time of each job that has ended beside what fair sharing would have taken.

The estimate is from the virtual sharing that the policy `marginal` keeps, as of the pass before the job's end. Its
error is how much it could change with the work that the other jobs have left, which is not known. A job that reports no
loss has none: what it waits for, beside CPU, is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from slopewise.adapters.local.job_record import SUCCEEDED, JobRecord
from slopewise.allocation import capacity_cores
from slopewise.local.tally import JobTally
from slopewise.model import PassReport
from slopewise.policies.marginal.fair_ends import fair_end
from slopewise.reports.wording import counted
from slopewise.text import duration


class Brought(NamedTuple):
    """Seconds from the arrival to the end, and under fair sharing: expected, at the least, at the most."""

    took: float
    fair: float
    least: float
    most: float

    @property
    def sentence(self) -> str:
        """For people."""
        between = f" ({duration(self.least)} to {duration(self.most)})" if self.most - self.least >= 1 else ""
        return f"took {duration(self.took)}; under fair sharing about {duration(self.fair)}{between}"


def fair_end_of(record: JobRecord, report: PassReport | None) -> tuple[float, float, float] | None:
    """When fair sharing would have ended a job that has just ended; None: not known."""
    if report is None or report.snapshot is None or report.decisions is None or record.finished_at_seconds is None:
        return None
    capacity = math.fsum(map(capacity_cores, report.snapshot.nodes))
    ended = fair_end(
        record.spec.name, record.finished_at_seconds, record.cpu_seconds, report.decisions.memory, capacity
    )
    return None if ended is None or not all(map(math.isfinite, ended)) else ended


def brought(record: JobRecord, tally: JobTally) -> Brought | None:
    """Of a job that has succeeded; None: of another one, or not known."""
    arrived, finished, fair = record.arrived_at_seconds, record.finished_at_seconds, tally.fair_seconds
    if arrived is None or finished is None or fair is None or tally.first_level is None:
        return None
    if record.state not in SUCCEEDED:
        return None
    expected, earliest, latest = (max(0.0, at - arrived) for at in fair)
    return Brought(finished - arrived, expected, min(earliest, expected), max(latest, expected))


def sentence_of_all(found: Iterable[Brought]) -> str:
    """Of a session; empty where nothing is known."""
    listed = list(found)
    if not listed:
        return ""
    whole = Brought(*(math.fsum(part) for part in zip(*listed, strict=True)))
    jobs = counted(len(listed), "job")
    return f"{jobs} that ended {whole.sentence}"
