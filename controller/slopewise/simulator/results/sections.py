"""The report of a sweep: its figures with the caveats that apply to them, its charts, and one seed job by job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slopewise.reports import estimates
from slopewise.reports.cells import Cell, Row
from slopewise.reports.estimates import Estimate
from slopewise.reports.report import Cards, Chart, Comparison, Report, Section, Text, notes_of
from slopewise.reports.wording import counted, plain, plus_minus, ratio, seconds
from slopewise.simulator.results import charts
from slopewise.simulator.results.measures import MATTERING, SHOWN, in_order, is_overlap, measure, verdict
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.world.model import RunOutcome

MAX_JOBS = 200
"""As many rows as a person scrolls through; JSON and the trace have all."""

_MEANINGS = (
    "Completion times are from a job's arrival to its end, times to 90 % and 99 % until that part of its total "
    "improvement was really reached. The worst job is measured against its mean over eight runs without any controller "
    "that break ties otherwise. Simulated: the decisions are those of the real controller, the machines and the "
    "trainings are models."
)


def rows(result: SweepResult) -> list[Row]:
    """A row for each measure that is anywhere more than 0, but the overlaps, of which many jobs make dozens."""
    summary, ratios = result.summary(), result.ratio_to_fair()
    names = shown_measures(result)
    return [
        Row(
            measure(name).label,
            tuple(_cell(name, summary[policy][name], ratios.get(policy, {}).get(name)) for policy in result.policies),
            name,
        )
        for name in names
    ]


def shown_measures(result: SweepResult) -> list[str]:
    """The measures with something to see, by name."""
    return [name for name in result.measures if not is_overlap(name) and not _is_zero(result, name)]


def caveats(result: SweepResult) -> list[str]:
    """Sentences: too few seeds, jobs that did not end, a scenario that proves nothing."""
    return [*_on_the_sweep(result), *(note for each in result.policies for note in _on_policy(result, each))]


def report_of(result: SweepResult, *, everything: bool = False) -> Report:
    """The whole of it; a terminal has six of the measures, or all, and the notes.

    Of the seeds whose runs were kept, the first is shown job by job.
    """
    whole, policies = rows(result), [plain(policy) for policy in result.policies]
    chosen = in_order([name for name in MATTERING if name in {row.name for row in whole}][:SHOWN])
    shown = whole if everything else [row for row in whole if row.name in chosen]
    more = f" {counted(len(whole) - len(shown), 'more figure')}: --all." if len(shown) < len(whole) else ""
    notes = Text(f"{legend(result, zeros=everything)}{more}", "dim")
    scenario, drawn = plain(result.scenario), counted(len(result.seeds), "seed")
    return Report(
        f"Simulation of {scenario}",
        [
            Section("", [Comparison(scenario, policies, [("", shown)])], on="terminal"),
            Section("", [notes, *notes_of(caveats(result))], on="terminal"),
            Section("The comparison", [Comparison("Measure", policies, [("", whole)], legend(result))], on="page"),
            *_measures(result),
            *_seed(result, policies),
        ],
        f"{', '.join(policies)} over the same jobs, drawn from {drawn}.",
        caveats(result),
        [_MEANINGS],
    )


def _measures(result: SweepResult) -> Iterator[Section]:
    """A chart for each measure."""
    of_seeds = (
        "A point is a seed; a box holds the middle half of them, its line is the median, its dashed line the mean."
    )
    label = "by policy; the table above shows the same in figures"
    cards = [
        Section(
            "",
            [
                Chart(
                    f"measure-{of.name}",
                    of.label,
                    charts.measure_figure(result, of.name),
                    f"{of.label} {label}",
                    f"{of.better} is better" if of.better else "",
                )
            ],
        )
        for of in map(measure, shown_measures(result))
    ]
    if cards:
        yield Section("Each measure", [Text(of_seeds, "dim"), Cards(cards)], on="page")


def _seed(result: SweepResult, policies: Sequence[str]) -> Iterator[Section]:
    """Who ran where in the first seed whose runs were kept, all on one time axis and with the same colours."""
    seed = next((seed for seed in result.seeds if (result.baseline, seed) in result.runs), None)
    if seed is None:
        return
    runs = {policy: result.runs[policy, seed] for policy in result.policies}
    lanes = {policy: charts.shown_lanes(run) for policy, run in runs.items()}
    models, end_seconds = charts.models_of(runs.values()), max(run.ended_seconds for run in runs.values())
    left_out = max(nodes for _, nodes in lanes.values())
    key = (
        "A bar is a job on a node, coloured by its model. ▷ marks where it came by a slow move, ◇ by a "
        "rebalancing one."
        + (f" {counted(left_out, 'further node')} would not fit the page and are left out." if left_out else "")
    )
    gantts = [
        Chart(
            f"gantt-{number}",
            policy,
            charts.gantt_figure(shown, models, end_seconds),
            f"Jobs by node and time under {policy}; completion times are in the table below",
        )
        for number, (policy, (shown, _)) in enumerate(lanes.items(), start=1)
    ]
    yield Section(f"Who ran where, in seed {seed}", [Text(key, "dim"), *gantts], on="page")
    jobs = job_rows(result, runs)
    more = f". {len(jobs) - MAX_JOBS} more jobs are not shown" if len(jobs) > MAX_JOBS else ""
    caption = f"From its arrival to its end, with its ratio to {policies[0]}; one seed says little of one job{more}"
    table = Comparison("Job", ["Model", "Arrived", *policies], [("", jobs[:MAX_JOBS])], caption)
    yield Section(f"Completion time of each job, in seed {seed}", [table], on="page")


def job_rows(result: SweepResult, runs: Mapping[str, RunOutcome]) -> list[Row]:
    """Each job in order of arrival, which is the same under every policy: model, arrival, completion times."""
    times = {policy: {job.name: job.jct_seconds for job in run.jobs} for policy, run in runs.items()}
    base = times[result.baseline]
    return [
        Row(
            job.name,
            (
                Cell(plain(job.model)),
                Cell(seconds(job.arrived_seconds)),
                Cell(seconds(base[job.name])),
                *(_job_cell(times[policy][job.name], base[job.name]) for policy in result.policies[1:]),
            ),
        )
        for job in runs[result.baseline].jobs
    ]


def _job_cell(ours: float | None, base: float | None) -> Cell:
    if ours is None or not base:
        return Cell(seconds(ours))
    quotient = ours / base
    judgement = estimates.verdict("less", Estimate(quotient, None, None, 1))
    return Cell(seconds(ours), f"{ratio(quotient)} {judgement}", verdict=judgement)


def legend(result: SweepResult, *, zeros: bool = True) -> str:
    """How to read a cell, and which measures have no row because they are 0."""
    text = (
        f"Mean over {counted(len(result.seeds), 'seed')} ± half of its 95 % interval; × is the mean ratio to "
        f"{plain(result.baseline)}, seed by seed; unclear: its interval holds 1."
    )
    zero = [measure(name).label for name in result.measures if not is_overlap(name) and _is_zero(result, name)]
    return f"{text} Left out, 0 under every policy: {'; '.join(zero)}." if zero and zeros else text


def _is_zero(result: SweepResult, name: str) -> bool:
    return not any(figures.value(name) for of_policy in result.figures.values() for figures in of_policy)


def _cell(name: str, ours: Estimate, against: Estimate | None) -> Cell:
    of = measure(name)
    text = f"{plus_minus(ours, 1)} {of.unit}" if of.unit else plus_minus(ours, 2)
    if against is None or against.mean is None:
        return Cell(text)
    judgement = verdict(of, against)
    return Cell(text, f"×{plus_minus(against, 2)}" + (f" {judgement}" if judgement else ""), verdict=judgement)


def _on_the_sweep(result: SweepResult) -> Iterator[str]:
    if result.partial:
        yield f"Stopped early: {len(result.seeds)} of {counted(len(result.seeds_asked), 'seed')} were run to their end."
    if len(result.seeds) == 1:
        yield "One seed gives no interval: its differences may be chance."
    if len(result.policies) == 1:
        yield f"Only {plain(result.baseline)} ran: there is nothing to compare it with."
    yield from _on_cpu(result)
    if result.tuned_on:
        yield "Policies were tuned on this scenario: it says nothing about how well they do on others."


def _on_cpu(result: SweepResult) -> Iterator[str]:
    """Where every job has all that it can use under every policy, nothing can be shared out better."""
    by_seed = zip(*result.figures.values(), strict=True)
    ample = sum(not any(each.value("cpu_short_ratio") for each in of_seed) for of_seed in by_seed)
    if ample and ample == len(result.seeds):
        yield (
            "CPU was never short: every job always had all that it can use, so no share or limit could make one "
            "sooner; give fewer cores, or more jobs at the same time."
        )
    elif ample:
        yield (
            f"In {ample} of {counted(len(result.seeds), 'seed')} CPU was never short, so no share or limit could make "
            "a job sooner there."
        )


def _on_policy(result: SweepResult, policy: str) -> Iterator[str]:
    every = result.figures[policy]
    not_ended, jobs = sum(each.not_ended for each in every), sum(each.jobs for each in every)
    if not_ended:
        yield (
            f"Under {plain(policy)}, {not_ended} of {counted(jobs, 'job')} of all seeds had not ended: their "
            "completion times are in no mean and no ratio."
        )
    ratios = result.ratio_to_fair().get(policy, {})
    some = [name for name, each in ratios.items() if 0 < each.count < len(every) and not is_overlap(name)]
    if some:
        labels = "; ".join(measure(name).label for name in some)
        yield f"Under {plain(policy)}, not every seed has a ratio of these: {labels}."
