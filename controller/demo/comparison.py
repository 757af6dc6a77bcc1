"""The runs of a demo set against the first of them, which is the baseline (`fair`).

Before it: `results.py`, what each run yields, and `promise_rows.py`, what became of deadlines and objectives. After it:
`table.py` and `report.py`, which show these rows and sentences and compute nothing themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from controller.demo.cells import Block, Cell, Row, Verdict
from controller.demo.job_moves import node_rows
from controller.demo.promise_rows import kept_phrases, promise_blocks, promise_counts
from controller.demo.results import DemoResult, JobResult, RunResult
from controller.demo.wording import counted, listed, plain, shortened
from controller.model import JobState


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


# Each policy ran once, on a machine with other work: what differs by less than 1 % is noise.
_ENDS = Tolerance(ratio=0.01)
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

_ADVERBS: dict[Verdict, str] = {"better": "sooner", "worse": "later"}


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy against the baseline in phrases, what got worse as prominent as what got better."""

    policy: str
    baseline: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    same: tuple[str, ...]


_Mean = tuple[str, JobMeasure, Callable[[RunResult], float | None]]

_TARGETS: tuple[_Mean, ...] = (
    ("Mean time to deliverable", TIME_TO_DELIVERABLE, lambda run: run.time_to_deliverable_mean_seconds),
    ("Mean time to target", TIME_TO_TARGET, lambda run: run.time_to_target_mean_seconds),
)
_DURATIONS: tuple[_Mean, ...] = (
    ("Mean completion time", JCT, lambda run: run.jct_mean_seconds),
    ("Mean time to 90 %", TIME_TO_90, lambda run: run.time_to_90_mean_seconds),
)


def measure_rows(result: DemoResult) -> list[Row]:
    """What was promised, where anything was; then mean completion time, mean time to 90 % and makespan."""
    targets = [mean for mean in _TARGETS if any(mean[2](run) is not None for run in result.runs)]
    rows = [*promise_counts(result), *_mean_rows(result, targets)]
    if ends_mean_nothing(result):
        return rows
    makespan = Row("Makespan", tuple(_makespan_cell(result, run) for run in result.runs))
    return [*rows, *_mean_rows(result, _DURATIONS), makespan]


def job_blocks(result: DemoResult) -> list[Block]:
    """The measures of each job that apply to these jobs, those of promises first."""
    blocks = promise_blocks(result)
    if any(job.target_level is not None for run in result.runs for job in run.jobs):
        blocks.append(Block("Time to target of each job", tuple(job_rows(result, TIME_TO_TARGET))))
    if not ends_mean_nothing(result):
        blocks.append(Block("JCT of each job", tuple(job_rows(result, JCT))))
    if result.nodes > 1:
        blocks.append(Block("Node of each job", tuple(node_rows(result))))
    return blocks


def report_blocks(result: DemoResult) -> list[Block]:
    """The same with each job's time to 90 %, for which a terminal has no room."""
    if ends_mean_nothing(result):
        return job_blocks(result)
    return [*job_blocks(result), Block("Time to 90 % of each job", tuple(job_rows(result, TIME_TO_90)))]


def ends_mean_nothing(result: DemoResult) -> bool:
    """True where every job is a served model: it ends when it was told to, whatever CPU it got."""
    jobs = [job for run in result.runs for job in run.jobs]
    return bool(jobs) and all(job.qoe_seconds is not None and job.steps is None for job in jobs)


def _mean_rows(result: DemoResult, means: Sequence[_Mean]) -> list[Row]:
    return [
        Row(label, tuple(_mean_cell(result, run, of_job, mean(run)) for run in result.runs))
        for label, of_job, mean in means
    ]


def job_rows(result: DemoResult, measure: JobMeasure) -> list[Row]:
    """One row for each job that any run had, with `measure` in one cell for each run."""
    return [
        Row(plain(name), tuple(_job_cell(result, run, name, measure) for run in result.runs))
        for name in result.job_names
    ]


def summaries(result: DemoResult) -> list[Summary]:
    """Each policy after the first against the first."""
    return [_summary(result, place) for place in range(1, len(result.runs))]


def caveats(result: DemoResult) -> list[str]:
    """What a reader must know before believing the figures: failures, jobs without an end, idle policies."""
    said = [sentence for run in result.runs for sentence in _caveats_of(run)]
    said += [
        f"Under {plain(run.policy)}, no CPU was changed and no job placed: whatever differs is chance."
        for run in result.runs[1:]
        if not run.resizes_applied and not run.moves_applied
    ]
    if not result.runs:
        return ["No run was completed: there is nothing to show."]
    said += _without_loss(result)
    if len(result.runs) == 1:
        said.append(f"Only {plain(result.runs[0].policy)} ran: there is nothing to compare it with.")
    return said


def _without_loss(result: DemoResult) -> Iterator[str]:
    """Each job that reported none in any run, and why."""
    causes = {job.name: job.no_loss for run in result.runs for job in run.jobs if job.no_loss}
    for name, cause in causes.items():
        yield f"{plain(name)} reported no loss: {plain(cause)}."


def _mean_cell(result: DemoResult, run: RunResult, measure: JobMeasure, mean: float | None) -> Cell:
    """The mean as it is, and its ratio over the jobs that both runs can be compared on.

    A mean over 7 jobs of one run and 8 of another says nothing: a slow job that never ended would make its
    run look faster. So where the jobs differ, the ratio is that of the common ones and the note says so.
    """
    base = result.runs[0]
    if run is base:
        return Cell(mean)
    before, after = _known(base, measure), _known(run, measure)
    both = [name for name in before if name in after]
    if not both:
        return Cell(mean, note="nothing to compare")
    pair = fmean(before[name] for name in both), fmean(after[name] for name in both)
    alike = len(both) == len(_measured(base, measure)) == len(_measured(run, measure))
    note = "" if alike else f"over {counted(len(both), 'common job')}"
    return _compared(mean, pair, measure.tolerance, note)


def _makespan_cell(result: DemoResult, run: RunResult) -> Cell:
    base = result.runs[0]
    if run is base:
        return Cell(run.makespan_seconds)
    if _names_in_state(base, JobState.FAILED) != _names_in_state(run, JobState.FAILED):
        return Cell(run.makespan_seconds, note="other jobs failed")
    return _compared(run.makespan_seconds, (base.makespan_seconds, run.makespan_seconds), _ENDS)


def _job_cell(result: DemoResult, run: RunResult, name: str, measure: JobMeasure) -> Cell:
    job = run.job(name)
    if job is None:
        return Cell(None, note="did not run")
    note = "" if job.state == JobState.FINISHED else plain(job.state)
    if measure is TIME_TO_90 and job.no_loss:
        note = "no loss"
    if run is result.runs[0]:
        return Cell(measure.of(job), note=note)
    before, after = _known(result.runs[0], measure), _known(run, measure)
    return _compared(measure.of(job), (before.get(name), after.get(name)), measure.tolerance, note)


def _compared(
    seconds: float | None, pair: tuple[float | None, float | None], tolerance: Tolerance, note: str = ""
) -> Cell:
    """A cell that shows `seconds`, judged by the two durations of `pair`: the baseline's and this run's."""
    before, after = pair
    if not before or after is None:
        return Cell(seconds, note=note)
    return Cell(seconds, after / before, _verdict(before, after, tolerance), note)


def _verdict(before: float, after: float, tolerance: Tolerance) -> Verdict:
    # To the millisecond: as binary fractions, 4.4 - 3.4 s is a little more than 1 s and 4.1 - 3.1 a little less.
    if round(abs(after - before), 3) < max(tolerance.seconds, tolerance.ratio * before):
        return "same"
    return "better" if after < before else "worse"


def _measured(run: RunResult, measure: JobMeasure) -> dict[str, float]:
    return {job.name: value for job in run.jobs if (value := measure.of(job)) is not None}


def _known(run: RunResult, measure: JobMeasure) -> dict[str, float]:
    """By job. A job that failed is left out: to crash early is not to be fast."""
    failed = _names_in_state(run, JobState.FAILED)
    return {name: value for name, value in _measured(run, measure).items() if name not in failed}


def _names_in_state(run: RunResult, state: JobState) -> set[str]:
    return {job.name for job in run.jobs if job.state == state}


def _summary(result: DemoResult, place: int) -> Summary:
    phrases: dict[Verdict, list[str]] = {"better": [], "worse": [], "same": []}
    for row in measure_rows(result):
        cell, label = row.cells[place], row.label[0].lower() + row.label[1:]
        if cell.verdict is not None:
            phrases[cell.verdict].append(label if cell.verdict == "same" else cell.phrase(label))
    for verdict, adverb in _ADVERBS.items():
        phrases[verdict].extend(kept_phrases(result, place, verdict))
        if not ends_mean_nothing(result):
            phrases[verdict].extend(_jobs_phrase(result, place, verdict, adverb))
    return Summary(
        policy=plain(result.runs[place].policy),
        baseline=plain(result.runs[0].policy),
        better=tuple(phrases["better"]),
        worse=tuple(phrases["worse"]),
        same=tuple(phrases["same"]),
    )


def _jobs_phrase(result: DemoResult, place: int, verdict: Verdict, adverb: str) -> Iterator[str]:
    """E.g. `2 of 8 jobs ended later (most: late-drop, 14 % longer)`; nothing when no job did."""
    cells = {name: _job_cell(result, result.runs[place], name, JCT) for name in result.job_names}
    compared = {name: cell for name, cell in cells.items() if cell.ratio is not None}
    hit = {name: abs(cell.ratio - 1) for name, cell in compared.items() if cell.verdict == verdict and cell.ratio}
    if hit:
        name = max(hit, key=lambda name: hit[name])
        most = f"most: {shortened(plain(name), 32)}, {compared[name].change}"
        yield f"{len(hit)} of {counted(len(compared), 'job')} ended {adverb} ({most})"


def _caveats_of(run: RunResult) -> Iterator[str]:
    under = f"Under {plain(run.policy)}"
    failed = [job.name for job in run.jobs if job.state == JobState.FAILED]
    unended = [job.name for job in run.jobs if job.finished_seconds is None and job.name not in failed]
    total = counted(len(run.jobs), "job")
    if failed:
        yield f"{under}, {len(failed)} of {total} failed: {listed(failed)}. A failed job is in no ratio."
    if unended:
        yield f"{under}, {len(unended)} of {total} had not ended: {listed(unended)}."
    if run.passes_held:
        yield f"{under}, {counted(run.passes_held, 'pass', 'passes')} could not observe the jobs and changed nothing."
