"""Renders the figures of a sweep as a table, with the caveats that apply to them.

Terminal and report show the same rows. Cells are `Text` and never markup, because a policy's label is foreign; nothing
is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slopewise.reports.estimates import Estimate, Verdict
from slopewise.reports.wording import counted, plain, plus_minus
from slopewise.simulator.results.measures import is_overlap, measure, verdict
from slopewise.simulator.results.sweep_result import SweepResult

_STYLES: dict[Verdict | None, str] = {"better": "green", "worse": "red", "same": "dim", "unclear": "dim", None: ""}

# Fixed: a column with a least width is widened after the others were fitted beside it, and the last one is cut off. The
# longest word of a label, "efficiencies", is not broken however many policies there are.
_LABEL_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one policy, e.g. the mean and half its interval; of other policies than the baseline its ratio."""

    text: str
    badge: str = ""
    """E.g. `×0.82 ± 0.03 better`; empty where there is nothing to compare."""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: a cell for each policy, in the order of the policies."""

    measure: str
    label: str
    cells: tuple[Cell, ...]


def rows(result: SweepResult) -> list[Row]:
    """A row for each measure that is anywhere more than 0, but the overlaps, of which many jobs make dozens."""
    summary, ratios = result.summary(), result.ratio_to_fair()
    names = shown_measures(result)
    return [
        Row(
            name,
            measure(name).label,
            tuple(_cell(name, summary[policy][name], ratios.get(policy, {}).get(name)) for policy in result.policies),
        )
        for name in names
    ]


def shown_measures(result: SweepResult) -> list[str]:
    """The measures with something to see, by name."""
    return [name for name in result.measures if not is_overlap(name) and not _is_zero(result, name)]


def caveats(result: SweepResult) -> list[str]:
    """Sentences: too few seeds, jobs that did not end, a scenario that proves nothing."""
    return [*_on_the_sweep(result), *(note for each in result.policies for note in _on_policy(result, each))]


def comparison(result: SweepResult) -> RenderableType:
    """The table of a sweep, each ratio to the baseline below its figure, then the caveats."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(plain(result.scenario), style="bold"), overflow="fold", width=_LABEL_WIDTH)
    for policy in result.policies:
        table.add_column(Text(plain(policy), style="bold"), overflow="fold")
    for row in rows(result):
        table.add_row(Text(row.label), *(_cell_text(cell) for cell in row.cells))
    notes = Table.grid(padding=(0, 1, 0, 0))
    for note in caveats(result):
        notes.add_row(Text("note", style="yellow"), Text(note, overflow="fold"))
    return Group(table, "", Text(legend(result), style="dim"), notes)


def legend(result: SweepResult) -> str:
    """How to read a cell."""
    text = (
        f"Mean over {counted(len(result.seeds), 'seed')} ± half of its 95 % interval; × is the mean ratio to "
        f"{plain(result.baseline)}, seed by seed; unclear: its interval holds 1."
    )
    zero = [measure(name).label for name in result.measures if not is_overlap(name) and _is_zero(result, name)]
    return f"{text} Left out, 0 under every policy: {'; '.join(zero)}." if zero else text


def _is_zero(result: SweepResult, name: str) -> bool:
    return not any(figures.value(name) for of_policy in result.figures.values() for figures in of_policy)


def _cell(name: str, ours: Estimate, ratio: Estimate | None) -> Cell:
    of = measure(name)
    text = f"{plus_minus(ours, 1)} {of.unit}" if of.unit else plus_minus(ours, 2)
    if ratio is None or ratio.mean is None:
        return Cell(text)
    judgement = verdict(of, ratio)
    return Cell(text, f"×{plus_minus(ratio, 2)}" + (f" {judgement}" if judgement else ""), judgement)


def _cell_text(cell: Cell) -> Text:
    text = Text(cell.text)
    if cell.badge:
        text.append(f"\n{cell.badge}", style=_STYLES[cell.verdict])
    return text


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
