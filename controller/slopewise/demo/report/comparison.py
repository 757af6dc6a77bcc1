"""Compares the runs of a demo with those of the baseline, the first policy (`fair`), round by round.

The table, the page and `-o json` show these rows and sentences and compute nothing themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from slopewise.demo.report.comparability import comparable, hindrances, pairs
from slopewise.demo.report.job_moves import node_rows
from slopewise.demo.report.objective_rows import met_phrases, objective_blocks, objective_counts
from slopewise.demo.report.results import DemoResult, JobResult, RunResult
from slopewise.model import JobState
from slopewise.reports.cells import Block, Cell, Row, compared, duration, once
from slopewise.reports.estimates import SAME_RATIO, Estimate, Verdict, estimate
from slopewise.reports.wording import UNKNOWN, counted, listed, plain, plus_minus, seconds, shortened, uncapitalised


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Two durations less apart than either of these are the same."""

    seconds: float = 0.0
    ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class JobMeasure:
    """A duration of one job (None: not known), and how far apart two of them mean something."""

    of: Callable[[JobResult], float | None]
    tolerance: Tolerance


_ENDS = Tolerance(ratio=SAME_RATIO)
# A loss is seen when it is scraped, once a second: at 12.0 s in one run and 12.9 s in another may be the same step.
_SCRAPED = Tolerance(seconds=1.0)

JCT = JobMeasure(lambda job: job.jct_seconds, _ENDS)
"""Completion time: from a job's arrival to its end."""
TIME_TO_90 = JobMeasure(lambda job: job.time_to_90_seconds, _SCRAPED)
"""Time from a job's arrival until 90 % of its loss's total improvement."""
TIME_TO_DELIVERABLE = JobMeasure(lambda job: job.time_to_deliverable_seconds, _SCRAPED)
"""Time from a job's arrival until its first target."""
TIME_TO_TARGET = JobMeasure(lambda job: job.time_to_target_seconds, _SCRAPED)
"""Time from a job's arrival until its final target."""

CPU_OF_STEPS = JobMeasure(lambda job: job.cpu_seconds_per_1000_steps, _ENDS)
"""What 1,000 steps of a job cost."""

_ADVERBS: dict[Verdict, str] = {"better": "sooner", "worse": "later"}


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy against the baseline in phrases, what got worse as prominent as what got better.

    All are empty where nothing was compared (`compared`).
    """

    policy: str
    baseline: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    same: tuple[str, ...]
    unclear: tuple[str, ...] = ()
    compared: bool = True


@dataclass(frozen=True, slots=True)
class _Mean:
    """A measure of a whole run that is the mean of a duration of its jobs."""

    name: str
    label: str
    of_job: JobMeasure
    of_run: Callable[[RunResult], float | None]


_TARGETS: tuple[_Mean, ...] = (
    _Mean(
        "time_to_deliverable_mean_seconds",
        "Mean time to deliverable",
        TIME_TO_DELIVERABLE,
        lambda run: run.time_to_deliverable_mean_seconds,
    ),
    _Mean(
        "time_to_target_mean_seconds",
        "Mean time to target",
        TIME_TO_TARGET,
        lambda run: run.time_to_target_mean_seconds,
    ),
)
_DURATIONS: tuple[_Mean, ...] = (
    _Mean("jct_mean_seconds", "Mean completion time", JCT, lambda run: run.jct_mean_seconds),
    _Mean("time_to_90_mean_seconds", "Mean time to 90 %", TIME_TO_90, lambda run: run.time_to_90_mean_seconds),
)
_CPU_OF_STEPS = _Mean(
    "cpu_seconds_per_1000_steps_mean",
    "CPU-seconds of 1,000 steps",
    CPU_OF_STEPS,
    lambda run: run.cpu_seconds_per_1000_steps_mean,
)


def measure_rows(result: DemoResult) -> list[Row]:
    """Objectives, where jobs have any; then mean completion time, mean time to 90 % and makespan."""
    targets = [mean for mean in _TARGETS if any(mean.of_run(run) is not None for run in result.runs)]
    rows = [*objective_counts(result), *_mean_rows(result, targets)]
    if ends_mean_nothing(result):
        return rows
    makespan = Row("Makespan", _cells(result, lambda place: _makespan_cell(result, place)), "makespan_seconds")
    means = (*_DURATIONS, _CPU_OF_STEPS) if result.workload == "threads" else _DURATIONS
    return [*rows, *_mean_rows(result, means), makespan]


def condition_rows(result: DemoResult) -> list[Row]:
    """What was done in the runs, and what else the machine did meanwhile: facts without a verdict."""
    rows = [Row("Changes made", _cells(result, lambda place: _changes(result.runs_of(place))))]
    if any(run.other_cpu_cores is not None for of_round in result.rounds for run in of_round):
        rows.append(Row("CPU of everything else", _cells(result, lambda place: _other_cpu(result.runs_of(place)))))
    return rows


def job_blocks(result: DemoResult) -> list[Block]:
    """The measures of each job that apply to these jobs, objectives first."""
    blocks = objective_blocks(result)
    if any(job.target_level is not None for run in result.runs for job in run.jobs):
        rows = tuple(job_rows(result, TIME_TO_TARGET))
        blocks.append(Block("Time to target of each job", rows, "time_to_target_seconds"))
    if not ends_mean_nothing(result):
        blocks.append(Block("JCT of each job", tuple(job_rows(result, JCT)), "jct_seconds"))
    if result.workload == "threads":
        rows = tuple(job_rows(result, CPU_OF_STEPS))
        blocks.append(Block("CPU-seconds of 1,000 steps of each job", rows, "cpu_seconds_per_1000_steps"))
    if result.nodes > 1:
        blocks.append(Block("Node of each job", tuple(node_rows(result))))
    return blocks


def report_blocks(result: DemoResult) -> list[Block]:
    """The same with each job's time to 90 %, for which a terminal has no room."""
    if ends_mean_nothing(result):
        return job_blocks(result)
    rows = tuple(job_rows(result, TIME_TO_90))
    return [*job_blocks(result), Block("Time to 90 % of each job", rows, "time_to_90_seconds")]


def round_rows(result: DemoResult) -> list[RoundRow]:
    """The measures of every run, round by round, where there was more than one round."""
    if len(result.rounds) == 1:
        return []
    return [
        RoundRow(number, plain(run.policy), _run_figures(run), place == 0 or pair.hindrance is None)
        for number, of_round in enumerate(result.rounds, start=1)
        for place, run in enumerate(of_round)
        for pair in [pairs(result, place)[number - 1]]
    ]


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One run of one round."""

    number: int
    policy: str
    figures: tuple[str, ...]
    """As `ROUND_HEADINGS`."""
    compared: bool


ROUND_HEADINGS = ("Mean completion time", "Mean time to 90 %", "Makespan", "CPU of everything else")


def _run_figures(run: RunResult) -> tuple[str, ...]:
    away = run.away_cpu_cores
    return (
        seconds(run.jct_mean_seconds),
        seconds(run.time_to_90_mean_seconds),
        seconds(run.makespan_seconds),
        UNKNOWN if away is None else f"{away:.2f} cores",
    )


def ends_mean_nothing(result: DemoResult) -> bool:
    """True where every job is a served model, which ends at a fixed time whatever CPU it got."""
    jobs = [job for run in result.runs for job in run.jobs]
    return bool(jobs) and all(job.qoe_seconds is not None and job.steps is None for job in jobs)


def job_rows(result: DemoResult, measure: JobMeasure) -> list[Row]:
    """One row for each job that any run had, with `measure` in one cell for each policy."""
    return [
        Row(plain(name), tuple(_job_cell(result, place, name, measure) for place in range(len(result.runs))), name)
        for name in result.job_names
    ]


def summaries(result: DemoResult) -> list[Summary]:
    """Each policy after the first against the first."""
    return [_summary(result, place) for place in range(1, len(result.runs))]


def caveats(result: DemoResult) -> list[str]:
    """The caveats of the figures: what is not compared and why, jobs without an end."""
    if not result.runs:
        return ["No run was completed: there is nothing to show."]
    notes = [note for place in range(1, len(result.runs)) for note in hindrances(result, place)]
    notes = list(dict.fromkeys(notes))
    notes += [note for place in range(len(result.runs)) for note in _caveats_of(result, place)]
    if len(result.rounds) < result.rounds_asked:
        notes.append(f"Stopped early: {len(result.rounds)} of {counted(result.rounds_asked, 'round')} were run.")
    notes += _without_loss(result)
    if result.workload == "served":
        notes.append("Objectives are fixed, for two cores of a 2.6 GHz server: a slower machine may keep none of them.")
    if result.workload == "threads":
        notes.append(
            f"Under {plain(result.runs[0].policy)} SLOPEWISE_THREADS is `off` for the jobs; elsewhere it is `follow`."
        )
    if len(result.runs) == 1:
        notes.append(f"Only {plain(result.runs[0].policy)} ran: there is nothing to compare it with.")
    elif any(run.other_cpu_cores is None for of_round in result.rounds for run in of_round):
        notes.append("How much CPU everything else on the machine used is not known: the kernel does not show it.")
    return notes


def _without_loss(result: DemoResult) -> Iterator[str]:
    """Each job that reported none in any run, and why."""
    causes = {job.name: job.no_loss for run in result.runs for job in run.jobs if job.no_loss}
    for name, cause in causes.items():
        yield f"{plain(name)} reported no loss: {plain(cause)}."


def as_json(result: DemoResult) -> dict[str, Any]:
    """The one object that `slopewise demo -o json` prints: the figures and their verdicts."""
    return result.as_json() | {
        "comparison": {
            result.runs[place].policy: _comparison_json(result, place) for place in range(1, len(result.runs))
        },
        "notes": caveats(result),
    }


def _comparison_json(result: DemoResult, place: int) -> dict[str, Any]:
    return {
        "baseline": result.runs[0].policy,
        "rounds": len(result.rounds),
        "rounds_compared": len(comparable(result, place)),
        "rounds_not_compared": [
            number for number, pair in enumerate(pairs(result, place), start=1) if pair.hindrance is not None
        ],
        "not_compared_because": list(hindrances(result, place)),
        "measures": {row.name: row.cells[place].json for row in measure_rows(result)},
        "jobs": {
            name: {
                block.name: row.cells[place].json
                for block in report_blocks(result)
                for row in block.rows
                if block.name and row.name == name
            }
            for name in result.job_names
        },
    }


def _cells(result: DemoResult, cell: Callable[[int], Cell]) -> tuple[Cell, ...]:
    return tuple(cell(place) for place in range(len(result.runs)))


def _mean_rows(result: DemoResult, means: Sequence[_Mean]) -> list[Row]:
    return [
        Row(mean.label, tuple(_mean_cell(result, place, mean) for place in range(len(result.runs))), mean.name)
        for mean in means
    ]


def _mean_cell(result: DemoResult, place: int, mean: _Mean) -> Cell:
    """The mean as it is, and its ratio over the jobs that both runs can be compared on.

    A mean over 7 jobs of one run and 8 of another says nothing: a slow job that never ended would make its
    run look faster. So where the jobs differ, the ratio is that of the common ones and the note says so.
    """
    shown = _over_rounds(mean.of_run(run) for run in result.runs_of(place))
    durations, notes = [], []
    for pair in comparable(result, place):
        before, after = _measured(pair.base, mean.of_job), _measured(pair.run, mean.of_job)
        both = [name for name in before if name in after]
        if both:
            durations.append((fmean(before[name] for name in both), fmean(after[name] for name in both)))
        if not len(both) == len(before) == len(after):
            notes.append(f"over {counted(len(both), 'common job')}" if both else "nothing to compare")
    tolerance = mean.of_job.tolerance
    return compared(shown, durations, tolerance.seconds, tolerance.ratio, "; ".join(dict.fromkeys(notes)))


def _makespan_cell(result: DemoResult, place: int) -> Cell:
    shown = _over_rounds(run.makespan_seconds for run in result.runs_of(place))
    found = [(pair.base.makespan_seconds, pair.run.makespan_seconds) for pair in comparable(result, place)]
    return compared(shown, _both_known(found), _ENDS.seconds, _ENDS.ratio)


def _job_cell(result: DemoResult, place: int, name: str, measure: JobMeasure) -> Cell:
    jobs = [job for run in result.runs_of(place) if (job := run.job(name)) is not None]
    if not jobs:
        return duration(once(None), note="did not run")
    shown = _over_rounds(measure.of(job) for job in jobs)
    states = dict.fromkeys(plain(job.state) for job in jobs if job.state != JobState.FINISHED)
    if measure is TIME_TO_90 and any(job.no_loss for job in jobs):
        states = {"no loss": None}
    found = [
        (_measured(pair.base, measure).get(name), _measured(pair.run, measure).get(name))
        for pair in comparable(result, place)
    ]
    return compared(shown, _both_known(found), measure.tolerance.seconds, measure.tolerance.ratio, ", ".join(states))


def _over_rounds(values: Iterable[float | None]) -> Estimate:
    return estimate([value for value in values if value is not None])


def _both_known(found: Iterable[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(before, after) for before, after in found if before is not None and after is not None]


def _measured(run: RunResult, measure: JobMeasure) -> dict[str, float]:
    return {job.name: value for job in run.jobs if (value := measure.of(job)) is not None}


def _changes(runs: Sequence[RunResult]) -> Cell:
    """`14 resizes, 2 placed or moved`; of several rounds their mean."""
    resizes = fmean(run.resizes_applied for run in runs)
    moves = fmean(run.moves_applied for run in runs)
    if len(runs) == 1:
        parts = [counted(round(resizes), "resize")] * bool(resizes) + [f"{moves:.0f} placed or moved"] * bool(moves)
    else:
        parts = [f"{resizes:.1f} resizes"] * bool(resizes) + [f"{moves:.1f} placed or moved"] * bool(moves)
    return Cell(", ".join(parts) or "none")


def _other_cpu(runs: Sequence[RunResult]) -> Cell:
    """`0.12 cores`, with what the hypervisor took where that is worth a word."""
    away = _over_rounds(run.away_cpu_cores for run in runs)
    stolen = _over_rounds(run.stolen_cpu_cores for run in runs).mean or 0.0
    note = f"{stolen:.2f} of it taken by the hypervisor" if stolen >= 0.005 else ""
    return Cell(UNKNOWN if away.mean is None else f"{plus_minus(away, 2)} cores", note=note)


def _summary(result: DemoResult, place: int) -> Summary:
    phrases: dict[Verdict, list[str]] = {"better": [], "worse": [], "same": [], "unclear": []}
    for row in measure_rows(result):
        cell, label = row.cells[place], uncapitalised(row.label)
        if cell.verdict is not None:
            phrases[cell.verdict].append(cell.phrase(label) if cell.verdict in _ADVERBS else label)
    for verdict, adverb in _ADVERBS.items():
        phrases[verdict].extend(met_phrases(result, place, verdict))
        if not ends_mean_nothing(result):
            phrases[verdict].extend(_jobs_phrase(result, place, verdict, adverb))
    return Summary(
        policy=plain(result.runs[place].policy),
        baseline=plain(result.runs[0].policy),
        better=tuple(phrases["better"]),
        worse=tuple(phrases["worse"]),
        same=tuple(phrases["same"]),
        unclear=tuple(phrases["unclear"]),
        compared=bool(comparable(result, place)),
    )


def _jobs_phrase(result: DemoResult, place: int, verdict: Verdict, adverb: str) -> Iterator[str]:
    """E.g. `2 of 8 jobs ended later (most: late-drop, 14 % longer)`; nothing when no job did."""
    cells = {name: _job_cell(result, place, name, JCT) for name in result.job_names}
    known = {name: cell for name, cell in cells.items() if cell.ratio is not None}
    hit = {name: abs(cell.ratio - 1) for name, cell in known.items() if cell.verdict == verdict and cell.ratio}
    if hit:
        name = max(hit, key=lambda name: hit[name])
        most = f"most: {shortened(plain(name), 32)}, {known[name].change}"
        yield f"{len(hit)} of {counted(len(known), 'job')} ended {adverb} ({most})"


def _caveats_of(result: DemoResult, place: int) -> Iterator[str]:
    """Of one policy over all rounds; what failed under the baseline alone is among the hindrances."""
    runs = result.runs_of(place)
    under, total = f"Under {plain(runs[0].policy)}", sum(len(run.jobs) for run in runs)
    if len(result.runs) == 1 and (failed := [name for run in runs for name in run.names_in_state(JobState.FAILED)]):
        yield f"{under}, {len(failed)} of {counted(total, 'job')} failed: {listed(failed)}."
    unended = [
        job.name for run in runs for job in run.jobs if job.finished_seconds is None and job.state != JobState.FAILED
    ]
    if unended:
        yield f"{under}, {len(unended)} of {counted(total, 'job')} had not ended: {listed(unended)}."
    held = sum(run.passes_held for run in runs)
    if held:
        yield f"{under}, {counted(held, 'pass', 'passes')} could not observe the jobs and changed nothing."
