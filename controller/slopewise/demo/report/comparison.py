"""Compares the runs of a demo with those of the baseline, the first policy (`fair`), round by round.

The table, the page and `-o json` show these rows and sentences and compute nothing themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from slopewise.demo.report.comparability import comparable, failures, hindrances, pairs
from slopewise.demo.report.objectives import met_phrases, objective_blocks, objective_counts
from slopewise.demo.report.results import (
    CPU_OF_STEPS,
    JCT,
    TIME_TO_90,
    TIME_TO_DELIVERABLE,
    TIME_TO_TARGET,
    DemoResult,
    JobMove,
    JobResult,
    Measure,
    RunResult,
)
from slopewise.model import JobState
from slopewise.reports.cells import Block, Cell, Row, compared, duration, once
from slopewise.reports.estimates import Estimate, Verdict, estimate
from slopewise.reports.wording import UNKNOWN, counted, listed, plain, plus_minus, uncapitalised
from slopewise.text import bounded

_ADVERBS: Mapping[Verdict, str] = {"better": "sooner", "worse": "later"}
_VERDICTS: tuple[Verdict, ...] = ("better", "worse", "same", "unclear")


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy against the baseline in phrases, what got worse as prominent as what got better.

    All are empty where nothing was compared (`compared`).
    """

    policy: str
    baseline: str
    phrases: Mapping[Verdict, Sequence[str]]
    compared: bool = True


# --- rows --------------------------------------------------------------------------------------------------------


def measure_rows(result: DemoResult) -> list[Row]:
    """Objectives, where jobs have any; then mean completion time, mean time to 90 % and makespan."""
    rows = objective_counts(result)
    for target in (TIME_TO_DELIVERABLE, TIME_TO_TARGET):
        rows += [_mean_row(result, target)] if any(run.mean(target) is not None for run in result.runs) else []
    if result.is_served:
        return rows
    means = (JCT, TIME_TO_90, CPU_OF_STEPS) if result.workload == "threads" else (JCT, TIME_TO_90)
    rows += [_mean_row(result, each) for each in means]
    return [*rows, Row("Makespan", _cells(result, lambda place: _makespan_cell(result, place)), "makespan_seconds")]


def fact_rows(result: DemoResult) -> list[Row]:
    """What was done in the runs, and what else the machine did meanwhile: facts without a verdict."""
    runs = [result.runs_of(place) for place in range(len(result.runs))]
    moves = [[move for run in each for move in run.job_moves] for each in runs]
    rows = [Row("Changes made", tuple(map(_changes, runs)))]
    if any(moves):
        rows.insert(
            0, Row("Running jobs moved", tuple(Cell(counted(len(m), "move"), note=cost_text(m)) for m in moves))
        )
    if any(run.other_cpu_cores is not None for of_round in result.rounds for run in of_round):
        rows.append(Row("CPU of everything else", tuple(map(_other_cpu, runs))))
    return rows


def job_blocks(result: DemoResult) -> list[Block]:
    """The measures of each job that apply to these jobs, objectives first."""
    has_targets = any(job.target_level is not None for job in result.jobs)
    applying = {TIME_TO_TARGET: has_targets, JCT: not result.is_served, CPU_OF_STEPS: result.workload == "threads"}
    blocks = [*objective_blocks(result), *(_block(result, each) for each, applies in applying.items() if applies)]
    if result.nodes > 1:
        paths = [
            Row(plain(name), tuple(_path(run.job(name)) for run in result.runs), name) for name in result.job_names
        ]
        blocks.append(Block("Node of each job", tuple(paths)))
    return blocks


def report_blocks(result: DemoResult) -> list[Block]:
    """The same with each job's time to 90 %, for which a terminal has no room."""
    return [*job_blocks(result), *([] if result.is_served else [_block(result, TIME_TO_90)])]


def job_rows(result: DemoResult, measure: Measure) -> list[Row]:
    """One row for each job that any run had, with `measure` in one cell for each policy."""
    return [
        Row(plain(name), _cells(result, lambda place, name=name: _job_cell(result, place, name, measure)), name)  # type: ignore[misc]
        for name in result.job_names
    ]


# --- sentences ---------------------------------------------------------------------------------------------------


def summaries(result: DemoResult) -> list[Summary]:
    """Each policy after the first against the first."""
    return [_summary(result, place) for place in range(1, len(result.runs))]


def caveats(result: DemoResult) -> list[str]:
    """The caveats of the figures: what is not compared and why, jobs without an end."""
    if not result.runs:
        return ["No run was completed: there is nothing to show."]
    first = plain(result.runs[0].policy)
    notes = [note for place in range(1, len(result.runs)) for note in hindrances(result, place)]
    notes = list(dict.fromkeys(notes))
    notes += [note for place in range(len(result.runs)) for note in _caveats_of(result, place)]
    if len(result.rounds) < result.rounds_asked:
        notes.append(f"Stopped early: {len(result.rounds)} of {counted(result.rounds_asked, 'round')} were run.")
    causes = {job.name: job.no_loss for job in result.jobs if job.no_loss}
    notes += [f"{plain(name)} reported no loss: {plain(cause)}." for name, cause in causes.items()]
    if result.workload == "served":
        notes.append("Objectives are fixed, for two cores of a 2.6 GHz server: a slower machine may keep none of them.")
    if result.workload == "threads":
        notes.append(f"Under {first} SLOPEWISE_THREADS is `off` for the jobs; elsewhere it is `follow`.")
    if len(result.runs) == 1:
        notes.append(f"Only {first} ran: there is nothing to compare it with.")
    elif any(run.other_cpu_cores is None for of_round in result.rounds for run in of_round):
        notes.append("How much CPU everything else on the machine used is not known: the kernel does not show it.")
    return notes


def as_json(result: DemoResult) -> dict[str, Any]:
    """The one object that `slopewise demo -o json` prints: the figures and their verdicts."""
    rows, blocks = measure_rows(result), [block for block in report_blocks(result) if block.name]
    comparison = {
        result.runs[place].policy: {
            "baseline": result.runs[0].policy,
            "rounds": len(result.rounds),
            "rounds_compared": len(comparable(result, place)),
            "rounds_not_compared": [
                number for number, pair in enumerate(pairs(result, place), start=1) if pair.hindrance is not None
            ],
            "not_compared_because": list(hindrances(result, place)),
            "measures": {row.name: row.cells[place].json for row in rows},
            "jobs": {
                name: {block.name: row.cells[place].json for block in blocks for row in block.rows if row.name == name}
                for name in result.job_names
            },
        }
        for place in range(1, len(result.runs))
    }
    return result.as_json() | {"comparison": comparison, "notes": caveats(result)}


def _summary(result: DemoResult, place: int) -> Summary:
    phrases: dict[Verdict, list[str]] = {verdict: [] for verdict in _VERDICTS}
    for row in measure_rows(result):
        cell, label = row.cells[place], uncapitalised(row.label)
        if cell.verdict is not None:
            phrases[cell.verdict].append(cell.phrase(label) if cell.verdict in _ADVERBS else label)
    for verdict, adverb in _ADVERBS.items():
        phrases[verdict] += met_phrases(result, place, verdict)
        if not result.is_served:
            phrases[verdict] += _jobs_phrase(result, place, verdict, adverb)
    policy, baseline = plain(result.runs[place].policy), plain(result.runs[0].policy)
    return Summary(policy, baseline, phrases, bool(comparable(result, place)))


def _jobs_phrase(result: DemoResult, place: int, verdict: Verdict, adverb: str) -> Iterator[str]:
    """E.g. `2 of 8 jobs ended later (most: late-drop, 14 % longer)`; nothing when no job did."""
    known = {row.label: row.cells[place] for row in job_rows(result, JCT) if row.cells[place].ratio is not None}
    hit = {name: abs(cell.ratio - 1) for name, cell in known.items() if cell.verdict == verdict and cell.ratio}
    if hit:
        name = max(hit, key=lambda name: hit[name])
        most = f"most: {bounded(name, 32)}, {known[name].change}"
        yield f"{len(hit)} of {counted(len(known), 'job')} ended {adverb} ({most})"


def _caveats_of(result: DemoResult, place: int) -> Iterator[str]:
    """Of one policy over all rounds; what failed under the baseline alone is among the hindrances."""
    runs = result.runs_of(place)
    under, total = f"Under {plain(runs[0].policy)}", sum(len(run.jobs) for run in runs)
    if len(result.runs) == 1:
        yield from dict.fromkeys(f"Under {failures(run)}." for run in runs if run.names_in_state(JobState.FAILED))
    every = [job for run in runs for job in run.jobs]
    if unended := [job.name for job in every if job.finished_seconds is None and job.state != JobState.FAILED]:
        yield f"{under}, {len(unended)} of {counted(total, 'job')} had not ended: {listed(unended)}."
    if held := sum(run.passes_held for run in runs):
        yield f"{under}, {counted(held, 'pass', 'passes')} could not observe the jobs and changed nothing."


def cost_text(moves: Sequence[JobMove]) -> str:
    """`paused 5.2 s, no step lost`; empty where nothing was moved, and as much as is known."""
    pauses = [move.pause_seconds for move in moves if move.pause_seconds is not None]
    lost = [move.steps_lost for move in moves if move.steps_lost is not None]
    parts = [f"paused {sum(pauses):.1f} s"] if pauses else []
    parts += [counted(round(sum(lost)), "step") + " lost" if sum(lost) else "no step lost"] if lost else []
    unseen = len(moves) - len(pauses)
    return ", ".join([*parts, f"{unseen} not seen at work again"] if unseen else parts)


# --- cells -------------------------------------------------------------------------------------------------------


def _cells(result: DemoResult, cell: Callable[[int], Cell]) -> tuple[Cell, ...]:
    return tuple(cell(place) for place in range(len(result.runs)))


def _block(result: DemoResult, measure: Measure) -> Block:
    return Block(measure.heading, tuple(job_rows(result, measure)), measure.name)


def _mean_row(result: DemoResult, measure: Measure) -> Row:
    cells = _cells(result, lambda place: _mean_cell(result, place, measure))
    return Row(measure.mean_label, cells, measure.mean_name)


def _mean_cell(result: DemoResult, place: int, measure: Measure) -> Cell:
    """The mean as it is, and its ratio over the jobs that both runs can be compared on.

    A mean over 7 jobs of one run and 8 of another says nothing: a slow job that never ended would make its
    run look faster. So where the jobs differ, the ratio is that of the common ones and the note says so.
    """
    found, notes = [], []
    for pair in comparable(result, place):
        before, after = _measured(pair.base, measure), _measured(pair.run, measure)
        if both := [name for name in before if name in after]:
            found.append((fmean(before[name] for name in both), fmean(after[name] for name in both)))
        if not len(both) == len(before) == len(after):
            notes.append(f"over {counted(len(both), 'common job')}" if both else "nothing to compare")
    shown = [run.mean(measure) for run in result.runs_of(place)]
    return _judged(measure, shown, found, "; ".join(dict.fromkeys(notes)))


def _makespan_cell(result: DemoResult, place: int) -> Cell:
    found = [(pair.base.makespan_seconds, pair.run.makespan_seconds) for pair in comparable(result, place)]
    return _judged(JCT, [run.makespan_seconds for run in result.runs_of(place)], found)


def _job_cell(result: DemoResult, place: int, name: str, measure: Measure) -> Cell:
    jobs = [job for run in result.runs_of(place) if (job := run.job(name)) is not None]
    if not jobs:
        return duration(once(None), note="did not run")
    states = dict.fromkeys(plain(job.state) for job in jobs if job.state != JobState.FINISHED)
    no_loss = measure is TIME_TO_90 and any(job.no_loss for job in jobs)
    both = [(_measured(pair.base, measure), _measured(pair.run, measure)) for pair in comparable(result, place)]
    found = [(before.get(name), after.get(name)) for before, after in both]
    return _judged(measure, map(measure.of, jobs), found, "no loss" if no_loss else ", ".join(states))


def _judged(
    measure: Measure, shown: Iterable[float | None], found: Iterable[tuple[float | None, float | None]], note: str = ""
) -> Cell:
    """The mean over the rounds, with its ratio over those in which both sides are known."""
    both = [(before, after) for before, after in found if before is not None and after is not None]
    return compared(_over_rounds(shown), both, measure.tolerance_seconds, measure.same_ratio, note)


def _over_rounds(values: Iterable[float | None]) -> Estimate:
    return estimate([value for value in values if value is not None])


def _measured(run: RunResult, measure: Measure) -> dict[str, float]:
    return {job.name: value for job in run.jobs if (value := measure.of(job)) is not None}


def _changes(runs: Sequence[RunResult]) -> Cell:
    """`14 resizes, 2 placed or moved`; of several rounds their mean."""
    resizes, moves = fmean(run.resizes_applied for run in runs), fmean(run.moves_applied for run in runs)
    digits = 0 if len(runs) == 1 else 1
    parts = [f"{resizes:.{digits}f} {'resize' if resizes == 1 and not digits else 'resizes'}"] * bool(resizes)
    return Cell(", ".join([*parts, *[f"{moves:.{digits}f} placed or moved"] * bool(moves)]) or "none")


def _other_cpu(runs: Sequence[RunResult]) -> Cell:
    """`0.12 cores`."""
    used = _over_rounds(run.other_cpu_cores for run in runs)
    return Cell(UNKNOWN if used.mean is None else f"{plus_minus(used, 2)} cores")


def _path(job: JobResult | None) -> Cell:
    """Where a job ran in the first round, and what it cost it to get there: `node-1 → node-2`."""
    if job is None or not job.node:
        return Cell(UNKNOWN)
    return Cell(plain(" → ".join([*(move.from_node for move in job.moves), job.node])), note=cost_text(job.moves))
