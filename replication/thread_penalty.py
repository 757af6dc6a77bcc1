"""What threads beyond the CPU in effect cost: `python -m replication.thread_penalty` measures it, by library.

1, 2 and 4 equal trainings run at once, each with as many threads as the machine has cores; one alone with one thread
tells what a step takes without penalty. Others may use the machine meanwhile: a window counts for the threads on each
core that it had, with the CPU in effect as the exporter reads it. The simulator's table has what all windows around 1,
2, 4, 8 and 16 threads a core took together. One round in four is not in it: the simulator's CPU-seconds are compared
with that.

The windows are added to those that are kept; without `thread_penalty.json` it begins anew. A library that is not
installed keeps what it has.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
import typer
from rich.console import Console

from replication.thread_steps import TRAININGS
from slopewise.reports.estimates import student_t
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Instance, Physics, PolicyRun, SimJob, SimNode
from slopewise.simulator.world.threads import Penalty, Threads
from slopewise_exporter.threads.at_start import NUMBERS, waiting

ROOT = Path(__file__).resolve().parents[1]
KEPT = Path(__file__).with_name("thread_penalty.json")
TABLE = ROOT / "controller" / "slopewise" / "simulator" / "thread_penalties.csv"
BASE = ("hist-gradient-boosting", "openblas")
"""They come with what this project needs itself; the others with `make test-frameworks`."""

BEHAVIOURS = ("spin", "wait")
AT_ONCE = (1, 2, 4)
ROUNDS = 8
HELD_OUT = 3
"""Of four rounds, the one that is not in the table."""

ONE_IN = 4

SECONDS = 0.8
"""Of a window of one training, from the end of its first step: 250 trees of one thread."""

SECONDS_OF_SEVERAL = 3.0
"""Their threads get into each other's way for a second or more, and then do not."""

IDLE_PERCENT, IDLE_WAIT_SECONDS = 15.0, 15.0
"""A training alone waits for so long until others use less than that of the CPU: else no window has a core a thread."""

BAR = 0.15
"""How far the simulated CPU-seconds of windows may be from the real ones."""

AROUND = (1, 2, 4, 8, 16)
"""Threads a core of the table's rows: each stands for windows with up to 1.41 times as many or as few."""

COLUMNS = "library,behaviour,threads_per_core,cpu_ratio,speed_ratio"
HEAD = """\
# What n threads of a training on c cores in effect cost: CPU-seconds a step over those of one thread, and steps a
# second over those of one thread with as much CPU. `python -m replication.thread_penalty` wrote it.
"""


class Window(NamedTuple):
    """All trainings of one window together."""

    round: int
    at_once: int
    steps: float
    cpu_seconds: float
    seconds: float
    """In the mean, and so is the next."""
    cores: float
    """CPU in effect of one training. All windows of one library and behaviour have as many threads."""


class Measured(NamedTuple):
    """The windows of one library and behaviour."""

    threads: int
    """Of each training."""
    windows: Sequence[Window]
    alone: Sequence[Window]
    """With one thread."""

    @property
    def step_cpu_seconds(self) -> float:
        """CPU-seconds of a step of one thread."""
        return statistics.median(each.cpu_seconds / each.steps for each in self.alone)

    def penalty(self, window: Window) -> Penalty:
        """What its threads cost.

        Worked example: a step of one thread takes 0.1 CPU-seconds, and 2 threads on one core do 2 a second with all of
        it: 5 times the CPU, and a fifth of the speed.
        """
        step, in_effect = self.step_cpu_seconds, window.cores
        speed = window.steps / window.at_once / window.seconds * step / in_effect
        return Penalty(self.threads / in_effect, window.cpu_seconds / window.steps / step, speed)

    def around(self, *, held_out: bool) -> dict[int, list[Window]]:
        """The windows of the table, or the others, by the row that stands for them."""
        found: dict[int, list[Window]] = {}
        for window in self.windows:
            if (window.round % ONE_IN == HELD_OUT) == held_out:
                around = 2 ** round(math.log2(max(1.0, self.threads / window.cores)))
                found.setdefault(around, []).append(window)
        return {around: found[around] for around in AROUND if around in found}

    def penalties(self) -> list[Penalty]:
        """The table's rows."""
        return [self.penalty(together(windows)) for windows in self.around(held_out=False).values()]


def together(windows: Sequence[Window]) -> Window:
    """One long window of a single training.

    What threads cost differs from second to second, up to 40 times where they spin. All steps over all the time are
    what a run of minutes has; a median of short windows is not.
    """
    seconds = math.fsum(each.seconds for each in windows)
    return Window(
        windows[0].round,
        1,
        math.fsum(each.steps / each.at_once for each in windows),
        math.fsum(each.cpu_seconds / each.at_once for each in windows),
        seconds,
        math.fsum(each.cores * each.seconds for each in windows) / seconds,
    )


Kept = Mapping[str, Mapping[str, Measured]]
"""By library and behaviour."""


def _pooled(of_library: Mapping[str, Measured]) -> dict[str, Measured]:
    """Each with the windows alone of both: one thread neither spins nor waits."""
    alone = [window for found in of_library.values() for window in found.alone]
    return {behaviour: found._replace(alone=alone) for behaviour, found in of_library.items()}


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
        for behaviour, found in _pooled(of_library).items()
        for each in found.penalties()
        if of_library.keys() >= set(BEHAVIOURS)
    ]
    return HEAD + "\n".join((COLUMNS, *lines)) + "\n"


def margin(*sides: Sequence[Window]) -> float:
    """Half of the 95 % interval of how far the steps for the CPU of two sides are apart, as a share of them.

    Windows of one side differ by what ran meanwhile, and means of a few windows do too. Worked example: 98 and 102
    steps a CPU-second on one side, 49 and 51 on the other, each 2 % off: 4.3 · 2.8 % for two degrees of freedom.
    """
    rates = [[window.steps / window.cpu_seconds for window in windows] for windows in sides]
    degrees = sum(len(side) - 1 for side in rates)
    if degrees < 1 or not all(rates):
        return math.inf
    squares = math.fsum((rate / statistics.fmean(side) - 1) ** 2 for side in rates for rate in side)
    return student_t(degrees) * math.sqrt(squares / degrees * math.fsum(1 / len(side) for side in rates))


def section(kept: Kept) -> str:
    """The penalties, the CPU-seconds of windows that are not in them beside the simulator's, and how many are near."""
    off = []
    lines = [
        "| library | threads | a core | CPU-seconds a step | speed | windows | CPU-seconds of others | simulated |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for library, of_library in sorted(kept.items()):
        for behaviour, found in _pooled(of_library).items():
            rows, others = found.penalties(), found.around(held_out=True)
            for row, (around, windows) in zip(rows, found.around(held_out=False).items(), strict=True):
                compared = "– | –"
                if around in others:
                    other = together(others[around])
                    simulated = simulated_cpu_seconds(rows, other, found)
                    ratio = simulated / other.cpu_seconds
                    half = ratio * margin(windows, others[around])
                    off.append((ratio - 1, half))
                    compared = f"{other.cpu_seconds:.1f} | {simulated:.1f} ({ratio - 1:+.0%} ± {half:.0%})"
                lines.append(
                    f"| {library} | {behaviour} | {row.threads_per_core:.1f} | ×{row.cpu_ratio:.2f} "
                    f"| ×{row.speed_ratio:.3f} | {len(windows)} | {compared} |"
                )
    within = sum(abs(each) <= BAR for each, _ in off)
    surely = sum(abs(each) + half <= BAR for each, half in off)
    never = sum(abs(each) - half > BAR for each, half in off)
    verdict = (
        f"{'Passed' if surely == len(off) else 'Missed'}: {within} of {len(off)} are within {100 * BAR:.0f} %. "
        f"With the whole interval {surely} within, {never} beyond; too few windows to say: {len(off) - surely - never}."
    )
    return "\n".join((*lines, "", verdict)) + "\n"


# --- measuring -------------------------------------------------------------------------------------------------


def measured(library: str, python: str, behaviour: str, cores: int, first_round: int) -> Measured:
    """More windows of one library and behaviour."""
    environment = {name: text for name, text in os.environ.items() if name not in NUMBERS}
    environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'exporters'}", "CUDA_VISIBLE_DEVICES": ""}
    environment |= waiting(environment) if behaviour == "wait" else {}
    command = [python, "-m", "replication.thread_steps", library]
    with ExitStack() as stack:
        trainings = []
        for _ in range(max(AT_ONCE)):
            training = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
            trainings.append(stack.enter_context(training))
            stack.callback(training.kill)
        for training in trainings:
            _answer(training)
        _window(trainings, cores, 0, 0.1)  # what is loaded and built at a first step is not counted
        rounds = range(first_round, first_round + ROUNDS)
        windows = [
            _window(trainings[:at_once], cores, number, SECONDS if at_once == 1 else SECONDS_OF_SEVERAL)
            for number in rounds
            for at_once in AT_ONCE
        ]
        return Measured(cores, windows, [_window(trainings[:1], 1, number, SECONDS) for number in rounds])


def _window(trainings: Sequence[subprocess.Popen[str]], threads: int, number: int, seconds: float) -> Window:
    if len(trainings) == 1:
        _wait_for_others()
    for training in trainings:
        _tell(training, f"{threads} {seconds}")
    answers = [tuple(map(float, _answer(training).split())) for training in trainings]
    for training in trainings:
        _tell(training, "stop")
    for training in trainings:
        _answer(training)
    steps, cpu_seconds, passed, cores = (sum(column) for column in zip(*answers, strict=True))
    at_once = len(trainings)
    return Window(number, at_once, int(steps), cpu_seconds, passed / at_once, cores / at_once)


def _wait_for_others() -> None:
    """Until the others leave the machine alone, or no longer than that."""
    until = time.monotonic() + IDLE_WAIT_SECONDS
    while psutil.cpu_percent(0.2) > IDLE_PERCENT and time.monotonic() < until:
        pass


def _tell(training: subprocess.Popen[str], line: str) -> None:
    assert training.stdin is not None  # noqa: S101  it is a pipe
    training.stdin.write(f"{line}\n")
    training.stdin.flush()


def _answer(training: subprocess.Popen[str]) -> str:
    assert training.stdout is not None  # noqa: S101  it is a pipe
    line = training.stdout.readline()
    if not line:
        raise SystemExit(f"{training.args!r} has failed; its error is above.")
    return line


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
    render: Annotated[bool, typer.Option("--render", help="Measure nothing.")] = False,
) -> None:
    """Measure, write the simulator's table, and print how far simulated runs are from real ones."""
    err = Console(stderr=True)
    if unknown := sorted(set(only or ()) - TRAININGS.keys()):
        err.print(f"--only {unknown[0]}: there is no such library; use one of {', '.join(TRAININGS)}.")
        raise typer.Exit(2)
    kept, cores = load(), len(os.sched_getaffinity(0))
    for library in [] if render else only or TRAININGS:
        python = sys.executable if library in BASE else str(frameworks)
        if not Path(python).exists():
            err.print(f"{library}: left out, there is no {python}; `make test-frameworks` makes it.")
            continue
        of_library = kept.setdefault(library, {})
        for behaviour in BEHAVIOURS:
            before = of_library.get(behaviour, Measured(cores, [], []))
            first_round = len(before.alone)
            err.print(f"{library}, {behaviour}: rounds {first_round + 1} to {first_round + ROUNDS}")
            found = measured(library, python, behaviour, cores, first_round)
            of_library[behaviour] = Measured(cores, [*before.windows, *found.windows], [*before.alone, *found.alone])
        save(kept)
    TABLE.write_text(table(kept), encoding="utf-8")
    print(section(kept))


app = typer.Typer(add_completion=False)
app.command()(main)


if __name__ == "__main__":
    app()
