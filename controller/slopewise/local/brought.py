"""Jobs beside fair sharing, in everyday words: when one that runs will end, and what one that has ended has taken.

The end of one that runs is from the virtual sharing that the policy `marginal` keeps, of one that has ended from a
replay (`fair_replay.py`). Its error is how much it could change with the work that the other jobs have left, which is
not known. A job that reports no loss has none: what it waits for, beside CPU, is not known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from slopewise.adapters.local.job_record import SUCCEEDED, JobRecord
from slopewise.local.tally import JobTally
from slopewise.model import Job, JobState, PassReport
from slopewise.policies.marginal import DUE, FIRST, OBJECTIVE, WAITS
from slopewise.reports.wording import counted
from slopewise.text import duration

_SERVED = {
    FIRST: "comes first",
    DUE: "runs now, so as not to end later than under fair sharing",
    OBJECTIVE: "has what its objective or deadline needs",
}
_FAR_SECONDS = 366 * 86_400.0
"""Ends that are further away are not said: days have no year, and of a plan of 10^18 steps no calendar has the day."""

SECONDS_WITHIN = 600.0
"""Times of day that are nearer have seconds."""


def outlook(job: Job, report: PassReport) -> str:
    """What a running job does, and when it is expected to end; empty where no end is known, or it is past, or far.

    Worked example: `waits for xgb, back in about 20s; ends about 14:02, under fair sharing 14:05`.
    """
    if report.decisions is None or report.snapshot is None:
        return ""
    jobs, now = report.decisions.memory.jobs, report.snapshot.taken_at_seconds
    known = jobs[job.uid]
    ends, turn = known.decided.ends, _SERVED.get(known.decided.job_class or "")
    if ends is None or not now < ends.at_seconds < now + _FAR_SECONDS:
        return ""
    if known.decided.job_class == WAITS:
        beside = (each for each in report.snapshot.jobs if each.node == job.node and not each.state.ended)
        served = (
            (jobs[each.uid].decided.ends, each.name) for each in beside if jobs[each.uid].decided.job_class in _SERVED
        )
        before = sorted((end.at_seconds, name) for end, name in served if end is not None)
        turn = _waits([name for _, name in before], ends.at_seconds - ends.earliest_seconds)
    if turn is None:
        return ""
    fair_ends = () if ends.fair_seconds is None or ends.fair_seconds >= now + _FAR_SECONDS else (ends.fair_seconds,)
    at, *fair = _times_of_day([ends.at_seconds, *fair_ends], now)
    return f"{turn}; ends about {at}{f', under fair sharing {fair[0]}' if fair else ''}"


def _waits(before: list[str], seconds: float) -> str:
    """`before`: the jobs that it waits for, the one that ends first in front."""
    names = f" for {before[0]}{f' and {len(before) - 1} more' if before[1:] else ''}" if before else ""
    return f"waits{names}{f', back in about {duration(seconds)}' if seconds >= 1 else ''}"


def _times_of_day(times: list[float], now: float) -> list[str]:
    """In the time of this machine, with the day where one of them is 20 hours away or more."""
    away = max(abs(each - now) for each in times)
    shown = "%H:%M:%S" if away < SECONDS_WITHIN else "%H:%M" if away < 72_000 else "%a %d %b %H:%M"
    return [time.strftime(shown, time.localtime(each)) for each in times]


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


def brought(record: JobRecord, tally: JobTally) -> Brought | None:
    """Of a job that has succeeded, or says so where that is all that is known; None: of another one, or not known."""
    arrived, finished, fair = record.arrived_at_seconds, record.finished_at_seconds, tally.fair_seconds
    if arrived is None or finished is None or fair is None or tally.first_level is None:
        return None
    says_so = record.state == "ended" and tally.reported_state is JobState.FINISHED
    if record.state not in SUCCEEDED and not says_so:
        return None
    expected, earliest, latest = (max(0.0, at - arrived) for at in fair)
    return Brought(finished - arrived, expected, min(earliest, expected), max(latest, expected))


def export(found: Callable[[], Iterable[Brought]], registry: CollectorRegistry) -> None:
    """The metric of a session: what its jobs took less, summed."""
    what = "Time that ended jobs took less than under fair sharing."
    saved = Gauge("slopewise_saved_seconds", what, registry=registry)
    saved.set_function(lambda: math.fsum(each.fair - each.took for each in found()))


def sentence_of_all(found: Iterable[Brought]) -> str:
    """Of a session; empty where nothing is known."""
    listed = list(found)
    if not listed:
        return ""
    whole = Brought(*(math.fsum(part) for part in zip(*listed, strict=True)))
    jobs = counted(len(listed), "job")
    return f"{jobs} that ended {whole.sentence}"
