"""What threads beyond the CPU in effect cost: `python -m replication.thread_penalty` measures it, by library.

1, 2 and 4 equal trainings run at once, each with as many threads as the machine has cores; one alone with one thread
says what a step takes without penalty. Others may use the machine meanwhile: a window counts for the threads on each
core that it had, with the CPU in effect as the exporter reads it. The simulator's table has what all windows around 1,
2, 4, 8 and 16 threads a core took together. One round in four is not in it: the simulator's CPU-seconds are compared
with that.

The windows are added to those that are kept; without `thread_penalty.json` it begins anew. A library that is not
installed keeps what it has. `--minutes 10` adds windows only where more of them would soon say whether the simulator is
within 15 %, as many on each side; best on an idle machine.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from replication.thread_steps import TRAININGS
from replication.thread_windows import (
    AT_ONCE,
    BESIDE_SECONDS,
    HELD_OUT,
    ONE_IN,
    ROOT,
    Due,
    Kept,
    Measured,
    Window,
    measured,
    pooled,
    together,
)
from slopewise.reports.estimates import student_t
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Instance, Physics, PolicyRun, SimJob, SimNode
from slopewise.simulator.world.threads import Penalty, Threads

KEPT = Path(__file__).with_name("thread_penalty.json")
TABLE = ROOT / "controller" / "slopewise" / "simulator" / "thread_penalties.csv"
BASE = ("hist-gradient-boosting", "openblas")
"""They come with what this project needs itself; the others with `make test-frameworks`."""

BEHAVIOURS = ("spin", "wait")
ROUNDS = 8
BAR = 0.15
"""How far the simulated CPU-seconds of windows may be from the real ones."""

FEWEST = 4
"""Windows of each side that show how much they differ."""

COLUMNS = "library,behaviour,threads_per_core,cpu_ratio,speed_ratio"
SHOWN = (
    *("library", "threads", "a core", "CPU-seconds a step", "speed", "windows"),
    *("CPU-seconds of others", "simulated", "more"),
)
HEAD = """\
# What n threads of a training on c cores in effect cost: CPU-seconds a step over those of one thread, and steps a
# second over those of one thread with as much CPU. `python -m replication.thread_penalty` wrote it.
"""


def simulated_cpu_seconds(penalties: Sequence[Penalty], window: Window, found: Measured) -> float:
    """CPU-seconds of a window as simulated: its steps with one thread each, on a node with the cores that it had."""
    work = window.steps / window.at_once * found.step_cpu_seconds
    threads = Threads(found.threads, "spin", tuple(penalties))
    jobs = tuple(
        SimJob(f"job-{number}", "real", 0.0, work, None, parallelism_cores=float(found.threads), threads=threads)
        for number in range(window.at_once)
    )
    node = SimNode("here", window.cores * window.at_once, 2**34)
    instance = Instance("real", 1, (node,), jobs, Physics(contention_ratio=0.0))
    return sum(job.served_cpu_seconds for job in run(instance, PolicyRun("fair", "fair")).jobs)


def table(kept: Kept) -> str:
    """The simulator's file."""
    lines = [
        f"{library},{behaviour},{each.threads_per_core:.2f},{each.cpu_ratio:.3f},{each.speed_ratio:.4f}"
        for library, of_library in sorted(kept.items())
        for behaviour, found in pooled(of_library).items()
        for each in found.penalties()
        if of_library.keys() >= set(BEHAVIOURS)
    ]
    return HEAD + "\n".join((COLUMNS, *lines)) + "\n"


def spread(*sides: Sequence[Window]) -> tuple[float, int]:
    """How far windows of one side are from its mean, as a share of it, and the degrees of freedom of that.

    Windows of one side differ by what ran meanwhile. Worked example: 98 and 102 steps a CPU-second on one side, 49 and
    51 on the other, each 2 % off: 0.028 with two degrees. Infinite where no side has two.
    """
    rates = [[window.steps / window.cpu_seconds for window in side] for side in sides]
    degrees = sum(len(side) - 1 for side in rates)
    if degrees < 1 or not all(rates):
        return math.inf, degrees
    squares = math.fsum((rate / statistics.fmean(side) - 1) ** 2 for side in rates for rate in side)
    return math.sqrt(squares / degrees), degrees


def margin(*sides: Sequence[Window]) -> float:
    """Half of the 95 % interval of how far the steps for the CPU of two sides are apart, as a share of them.

    Worked example: sides of two windows that differ by 0.028 each: 4.3 · 0.028 for two degrees of freedom.
    """
    share, degrees = spread(*sides)
    return math.inf if math.isinf(share) else student_t(degrees) * share * math.sqrt(sum(1 / len(s) for s in sides))


class Compared(NamedTuple):
    """A row of the table, its windows, and those that are not in it beside what the simulator gives for their steps."""

    around: int
    row: Penalty
    windows: Sequence[Window]
    others: Sequence[Window]
    cpu_seconds: float = 0.0
    simulated: float = 0.0

    @property
    def off(self) -> float:
        """How far the simulated CPU-seconds are from the real ones, as a share of them."""
        return self.simulated / self.cpu_seconds - 1

    @property
    def half(self) -> float:
        """Half of the 95 % interval of that."""
        return (1 + self.off) * margin(self.windows, self.others)

    @property
    def is_decided(self) -> bool:
        """Whether the whole interval is within the bar, or beyond it; two windows may be alike by chance."""
        enough = min(len(self.windows), len(self.others)) >= FEWEST
        return enough and (abs(self.off) + self.half <= BAR or abs(self.off) - self.half > BAR)

    @property
    def missing(self) -> tuple[int, int]:
        """How many windows more are likely to decide, of the table and beside it: as many on each side are fewest.

        Worked example: windows that differ by 0.1 need 14 on each side for an interval of 0.075 each way, so that the
        simulator may be 0.075 off and is within 0.15 all the same.
        """
        if self.is_decided:
            return 0, 0
        share, _ = spread(self.windows, self.others)
        half = min(BAR, self.half) / 2 if self.others else BAR / 2
        likely = FEWEST if math.isinf(share) or not half else math.ceil(2 * (student_t(1000) * share / half) ** 2)
        each = max(FEWEST, likely)
        return max(0, each - len(self.windows)), max(0, each - len(self.others))


def compared(found: Measured) -> Iterator[Compared]:
    """Each row of one library and behaviour."""
    rows, others = found.penalties(), found.around(held_out=True)
    for row, (around, windows) in zip(rows, found.around(held_out=False).items(), strict=True):
        if around not in others:
            yield Compared(around, row, windows, ())
            continue
        other = together(others[around])
        simulated = simulated_cpu_seconds(rows, other, found)
        yield Compared(around, row, windows, others[around], other.cpu_seconds, simulated)


def section(kept: Kept) -> str:
    """The penalties, the CPU-seconds of windows that are not in them beside the simulator's, and how many are near."""
    lines = [f"| {' | '.join(SHOWN)} |", "|---" * len(SHOWN) + "|"]
    found = [
        (library, behaviour, each)
        for library, of_library in sorted(kept.items())
        for behaviour, of_behaviour in pooled(of_library).items()
        for each in compared(of_behaviour)
    ]
    for library, behaviour, each in found:
        beside = "– | –"
        if each.others:
            beside = f"{each.cpu_seconds:.1f} | {each.simulated:.1f} ({each.off:+.0%} ± {each.half:.0%})"
        lines.append(
            f"| {library} | {behaviour} | {each.row.threads_per_core:.1f} | ×{each.row.cpu_ratio:.2f} "
            f"| ×{each.row.speed_ratio:.3f} | {len(each.windows)} | {beside} | {sum(each.missing) or '–'} |"
        )
    others = [each for *_, each in found if each.others]
    within = sum(abs(each.off) <= BAR for each in others)
    surely = sum(each.is_decided and abs(each.off) <= BAR for each in others)
    never = sum(each.is_decided and abs(each.off) > BAR for each in others)
    soon = sum(map(len, plan(kept, 600.0).values()))
    verdict = (
        f"{'Passed' if surely == len(others) else 'Missed'}: {within} of {len(others)} are within {100 * BAR:.0f} %. "
        f"With the whole interval {surely} within, {never} beyond; too few windows to say: "
        f"{len(others) - surely - never}. `--minutes 10` would most likely decide {soon} rows more."
    )
    return "\n".join((*lines, "", verdict)) + "\n"


# --- measuring -------------------------------------------------------------------------------------------------


def plan(kept: Kept, seconds: float, only: Sequence[str] = ()) -> dict[tuple[str, str], list[Compared]]:
    """By library and behaviour, the rows that are told in so long altogether, those first that take least."""
    rows = [
        (sum(each.missing) * (Due(0, each.around, 1).seconds + BESIDE_SECONDS), library, behaviour, each)
        for library, of_library in kept.items()
        for behaviour, found in of_library.items()
        for each in compared(found)
        if each.around in AT_ONCE and not each.is_decided and library in (only or kept)
    ]
    told: dict[tuple[str, str], list[Compared]] = {}
    for takes, library, behaviour, each in sorted(rows, key=lambda row: row[0]):
        seconds -= takes
        if seconds >= 0:
            told.setdefault((library, behaviour), []).append(each)
    return told


def missing_windows(found: Measured, rows: Sequence[Compared]) -> list[Due]:
    """The windows that these rows miss, those of both sides and of all rows evenly over the time."""
    first = 1 + max((window.round for window in found.windows), default=-1)
    dues: list[tuple[float, Due]] = []
    for each in rows:
        for of_side, held_out in zip(each.missing, (False, True), strict=True):
            numbers = islice((n for n in count(first) if (n % ONE_IN == HELD_OUT) == held_out), of_side)
            dues += [((at + 0.5) / of_side, Due(n, each.around, found.threads)) for at, n in enumerate(numbers)]
    return [due for _, due in sorted(dues)]


def more(found: Measured, library: str, python: str, behaviour: str, dues: Sequence[Due]) -> Measured:
    """With these windows measured; those of one thread are alone."""
    windows = list(zip(dues, measured(library, python, behaviour, dues), strict=True))
    several = [window for due, window in windows if due.threads > 1]
    alone = [window for due, window in windows if due.threads == 1]
    return found._replace(windows=[*found.windows, *several], alone=[*found.alone, *alone])


def load() -> dict[str, dict[str, Measured]]:
    """What was measured."""
    if not KEPT.exists():
        return {}
    document = json.loads(KEPT.read_text(encoding="utf-8"))
    return {
        library: {
            behaviour: Measured(threads, *([Window(*each) for each in windows] for windows in lists))
            for behaviour, (threads, *lists) in of_library.items()
        }
        for library, of_library in document.items()
    }


def save(kept: Kept) -> None:
    """Keep it."""
    KEPT.write_text(json.dumps(kept, sort_keys=True).replace("]], ", "]],\n") + "\n", encoding="utf-8")


def main(
    *,
    frameworks: Annotated[Path, typer.Option(help="The Python that has LightGBM and PyTorch.")] = ROOT
    / ".venv-frameworks/bin/python",
    only: Annotated[list[str] | None, typer.Option(help="Only this library; the others keep their figures.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Only rows that are decided in so long.")] = None,
    render: Annotated[bool, typer.Option("--render", help="Measure nothing.")] = False,
) -> None:
    """Measure, write the simulator's table, and print how far simulated runs are from real ones."""
    err = Console(stderr=True)
    if unknown := sorted(set(only or ()) - TRAININGS.keys()):
        err.print(f"--only {unknown[0]}: there is no such library; use one of {', '.join(TRAININGS)}.")
        raise typer.Exit(2)
    kept, cores = load(), len(os.sched_getaffinity(0))
    if not kept and (render or minutes is not None):
        err.print(f"{KEPT.name} has no windows yet: measure some, without --render and --minutes.")
        raise typer.Exit(2)
    if not render and (threads := {found.threads for each in kept.values() for found in each.values()} - {cores}):
        err.print(f"{KEPT.name} is of {threads.pop()} cores, and here are {cores}: without it, all is measured anew.")
        raise typer.Exit(2)
    rows = None if minutes is None else plan(kept, 60.0 * minutes, only or ())
    for library in [] if render else only or TRAININGS:
        python = sys.executable if library in BASE else str(frameworks)
        if not Path(python).exists():
            err.print(f"{library}: left out, there is no {python}; `make test-frameworks` makes it.")
            continue
        of_library = kept.setdefault(library, {})
        for behaviour in BEHAVIOURS:
            found = of_library.get(behaviour, Measured(cores, [], []))
            if rows is None:
                first = len(found.alone)
                numbers = range(first, first + ROUNDS)
                dues = [Due(n, *each) for n in numbers for each in (*((at_once, cores) for at_once in AT_ONCE), (1, 1))]
            else:
                dues = missing_windows(found, rows.get((library, behaviour), ()))
            if dues:
                err.print(f"{library}, {behaviour}: {len(dues)} windows")
                of_library[behaviour] = more(found, library, python, behaviour, dues)
        save(kept)
    if kept:
        TABLE.write_text(table(kept), encoding="utf-8")
        print(section(kept))


app = typer.Typer(add_completion=False)
app.command()(main)


if __name__ == "__main__":
    app()
