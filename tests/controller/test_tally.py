"""What is remembered of a run however long it is: a bounded number of evaluations, and every count."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from support.worlds import START, a_job, a_snapshot

from controller.model import Job, Outcome, PassReport, Resize, Withheld
from controller.tally import HISTORY_KEPT, RunTally

RESIZE = Resize("a", "n1", "limits", 1000, 500, "why")


def a_report(*jobs: Job, **more: object) -> PassReport:
    return PassReport(START, "flowcon", {}, START, snapshot=a_snapshot(jobs), **more)  # type: ignore[arg-type]


def test_counts_and_the_first_and_last_evaluation_outlive_the_passes() -> None:
    tally = RunTally()
    tally(a_report(a_job("a", level=2.0), outcomes=(Outcome(RESIZE, "applied"), Outcome(RESIZE, "failed"))))
    tally(a_report(a_job("a", level=1.0), withheld=(Withheld(RESIZE, "cooldown", "why"),)))
    tally(a_report())
    tally(PassReport(START, "flowcon", {}, START, held="Prometheus is gone"))
    job = tally.of("a")
    assert (tally.resizes_applied, tally.withheld, job.resizes) == (1, 1, 1)
    assert (job.first_level, job.last_level, job.history) == (2.0, 1.0, (2.0, 1.0))


def test_a_long_history_is_thinned_out_evenly() -> None:
    tally = RunTally()
    for level in range(10 * HISTORY_KEPT):
        tally(a_report(a_job("a", level=float(level))))
    history = tally.of("a").history
    assert HISTORY_KEPT // 2 <= len(history) <= HISTORY_KEPT
    assert history[0] == 0.0
    assert len({later - earlier for earlier, later in pairwise(history)}) == 1


def test_steps_that_are_not_told_in_a_pass_are_those_of_the_last_one_that_told_them() -> None:
    tally = RunTally()
    told = replace(a_job("a", level=None), steps_total=7.0, steps_planned=9.0)
    tally(a_report(told))
    tally(a_report(a_job("a", level=None)))
    job = tally.of("a")
    assert (job.steps_total, job.steps_planned, job.first_level) == (7.0, 9.0, None)
    assert tally.of("never seen").last_level is None
