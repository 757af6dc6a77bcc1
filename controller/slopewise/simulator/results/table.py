"""Renders the figures of a sweep as a table, with the caveats that apply to them.

Terminal and report show the same rows. Cells are `Text` and never markup, because a policy's label is foreign; nothing
is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from slopewise.reports.cells import Row, Word
from slopewise.reports.columns import remarks
from slopewise.reports.comparison_table import ComparisonTable
from slopewise.reports.estimates import Estimate
from slopewise.reports.wording import counted, plain, plus_minus
from slopewise.simulator.results.measures import MATTERING, SHOWN, in_order, is_overlap, measure, verdict
from slopewise.simulator.results.sweep_result import SweepResult


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


def comparison(result: SweepResult, *, everything: bool = False) -> RenderableType:
    """The table of a sweep, each with its ratio to the baseline, then the caveats; of the measures six, or all."""
    whole = rows(result)
    chosen = in_order([name for name in MATTERING if name in {row.name for row in whole}][:SHOWN])
    shown = whole if everything else [row for row in whole if row.name in chosen]
    left_out = len(whole) - len(shown)
    more = f" {counted(left_out, 'more figure')}: --all." if left_out else ""
    return Group(
        ComparisonTable(result.scenario, result.policies, [("", shown)]),
        "",
        Text(f"{legend(result, zeros=everything)}{more}", style="dim"),
        remarks(("note", "yellow", note) for note in caveats(result)),
    )


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


def _cell(name: str, ours: Estimate, ratio: Estimate | None) -> Word:
    of = measure(name)
    text = f"{plus_minus(ours, 1)} {of.unit}" if of.unit else plus_minus(ours, 2)
    if ratio is None or ratio.mean is None:
        return Word(text)
    judgement = verdict(of, ratio)
    return Word(text, f"×{plus_minus(ratio, 2)}" + (f" {judgement}" if judgement else ""), verdict=judgement)


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
