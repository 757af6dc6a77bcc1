"""Decides whether two runs of a demo can be compared.

They cannot if jobs failed, nothing changed, or other programs used CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slopewise.demo.report.results import DemoResult, RunResult
from slopewise.model import JobState
from slopewise.reports.wording import counted, listed, plain, uncapitalised

OTHER_CPU_RATIO = 0.05
"""Of the CPU that everything else left to the jobs. Their durations differ by about as much, whatever the policy does,
and 5 % is what a single pair of runs cannot resolve (`cells.SINGLE_RATIO`)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The baseline and one policy in one round, and why they are not compared; None: they are."""

    base: RunResult
    run: RunResult
    hindrance: str | None


def pairs(result: DemoResult, place: int) -> list[Pair]:
    """The policy at `place` beside the baseline, one pair for each round."""
    both = [(of_round[0], of_round[place]) for of_round in result.rounds]
    return [Pair(base, run, _hindrance(result, base, run)) for base, run in both]


def comparable(result: DemoResult, place: int) -> list[Pair]:
    """The pairs that give a ratio; none of the baseline with itself."""
    return [] if place == 0 else [pair for pair in pairs(result, place) if pair.hindrance is None]


def hindrances(result: DemoResult, place: int) -> Iterator[str]:
    """A sentence for each round in which the policy at `place` is not compared."""
    rounds = len(result.rounds)
    for number, pair in enumerate(pairs(result, place), start=1):
        if pair.hindrance is not None:
            yield pair.hindrance if rounds == 1 else f"Round {number} of {rounds}: {uncapitalised(pair.hindrance)}"


def _hindrance(result: DemoResult, base: RunResult, run: RunResult) -> str | None:
    if failed := [failures(each) for each in (base, run) if each.names_in_state(JobState.FAILED)]:
        said = " and under ".join(failed)
        return f"Under {said}. Runs in which jobs failed are not compared: what fails leaves its CPU to the others."
    nodes = {job.name: job.node for job in base.jobs}
    elsewhere = any(nodes.get(job.name, job.node) != job.node for job in run.jobs)
    if result.workload != "threads" and not (run.resizes_applied or run.job_moves or elsewhere):
        return (
            f"Under {plain(run.policy)}, nothing was done: no CPU was changed, and no job was moved or started "
            f"elsewhere than under {plain(base.policy)}. Whatever differs is chance and is not "
            f"compared{_idle_reason(result, run)}."
        )
    return _busy(result, base, run)


def failures(run: RunResult) -> str:
    """`fair, 1 of 2 jobs failed: a`."""
    failed = run.names_in_state(JobState.FAILED)
    return f"{plain(run.policy)}, {len(failed)} of {counted(len(run.jobs), 'job')} failed: {listed(failed)}"


def _idle_reason(result: DemoResult, run: RunResult) -> str:
    """The remedy, as far as the run shows it."""
    lives = [job.jct_seconds for job in run.jobs if job.jct_seconds is not None]
    if lives and max(lives) < result.interval_seconds:
        return (
            f"; no job ran for as long as an interval ({result.interval_seconds:g} s), in which growth is measured: "
            "take longer jobs, or a shorter --interval"
        )
    if run.withheld:
        changes = counted(run.withheld, "change")
        return f"; guards withheld {changes} that it wanted, most often {plain(run.withheld_most)}"
    return ""


def left_alike(before: float, after: float) -> bool:
    """Whether others left about as many cores to the jobs of one run as to those of the other."""
    return abs(after - before) <= OTHER_CPU_RATIO * max(before, after)


def _busy(result: DemoResult, base: RunResult, run: RunResult) -> str | None:
    before, after = base.other_cpu_cores, run.other_cpu_cores
    if before is None or after is None:
        return None
    left_before, left_after = (max(0.0, result.node_cores - away) for away in (before, after))
    if left_alike(left_before, left_after):
        return None
    return (
        f"Everything else on this machine used {before:.2f} cores under {plain(base.policy)} and {after:.2f} under "
        f"{plain(run.policy)}, which left the jobs {left_before:.2f} and {left_after:.2f}. Runs that differ in that by "
        f"more than {100 * OTHER_CPU_RATIO:.0f} % are not comparable: run again on a quieter machine, or with --repeat."
    )
