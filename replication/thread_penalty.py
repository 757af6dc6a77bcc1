"""What threads beyond the CPU in effect cost: `python -m replication.thread_penalty` measures it, by library.

1, 2 and 4 equal trainings run at once, each with as many threads as the machine has cores, and then with one thread
each. None ends before all have counted. A ratio is of two windows that follow
one another: CPU-seconds a step, and steps a second with as much CPU. The simulator's table has the medians. One
repetition more is not in it: the CPU-seconds that the simulator gives are compared with that.

The windows take 6 minutes. A library that is not installed keeps the figures that it has.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from replication.thread_steps import TRAININGS
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
"""Equal trainings with as many threads as there are cores: so many threads on each core."""

REPETITIONS = 3
"""In the table; one more is compared with it."""

THREADS_SECONDS, ONE_SECONDS = 1.5, 0.7
"""Of a window. One thread alone varies less."""

MAX_ERROR = 0.15
COLUMNS = "library,behaviour,threads_per_core,cpu_ratio,speed_ratio"
HEAD = """\
# What n threads of a training on c cores in effect cost, beside equal trainings: CPU-seconds a step over those of one
# thread, and steps a second over those of one thread with as much CPU. `python -m replication.thread_penalty` wrote it.
"""


class Took(NamedTuple):
    """One window, all trainings together."""

    steps: int
    cpu_seconds: float
    seconds: float
    """In the mean."""


class Pair(NamedTuple):
    """Two windows, one after the other."""

    at_once: int
    threads: Took
    one: Took


class Measured(NamedTuple):
    """All windows of one library."""

    cores: int
    load: float
    """Of the machine when they began, by other programs."""
    pairs: Mapping[str, Sequence[Pair]]
    """By behaviour; of each number at once the last one is not in the table."""

    def penalties(self, behaviour: str) -> list[Penalty]:
        """As in the table."""
        return [penalty(pairs[:-1], self.cores) for pairs in self._by_number(behaviour)]

    def held_out(self, behaviour: str) -> list[Pair]:
        """What is not in the table."""
        return [pairs[-1] for pairs in self._by_number(behaviour)]

    def _by_number(self, behaviour: str) -> Iterator[list[Pair]]:
        for at_once in AT_ONCE:
            yield [pair for pair in self.pairs[behaviour] if pair.at_once == at_once]


def penalty(pairs: Sequence[Pair], cores: int) -> Penalty:
    """The medians of pairs with as many trainings at once.

    Worked example: on 2 cores, 2 trainings of 2 threads take 5 CPU-seconds for 10 steps in 2.5 s, and with one thread
    each 1 CPU-second for 10 steps in 0.5 s: 5 times the CPU of a step, and a fifth of the speed.
    """
    in_effect = cores / pairs[0].at_once
    cpu = [_cpu_per_step(pair.threads) / _cpu_per_step(pair.one) for pair in pairs]
    speed = [_speed(pair.threads) / in_effect / (_speed(pair.one) / min(1.0, in_effect)) for pair in pairs]
    return Penalty(float(pairs[0].at_once), statistics.median(cpu), statistics.median(speed))


def _cpu_per_step(took: Took) -> float:
    return took.cpu_seconds / took.steps


def _speed(took: Took) -> float:
    return took.steps / took.seconds


def simulated_cpu_seconds(penalties: Sequence[Penalty], real: Pair, cores: int) -> float:
    """CPU-seconds of the window with threads, as simulated from its steps and from what they take with one thread."""
    work = real.threads.steps / real.at_once * _cpu_per_step(real.one)
    threads = Threads(cores, "spin", tuple(penalties))
    jobs = tuple(
        SimJob(f"job-{number}", "real", 0.0, work, None, parallelism_cores=float(cores), threads=threads)
        for number in range(real.at_once)
    )
    instance = Instance("real", 1, (SimNode("here", cores, 2**34),), jobs, Physics(contention_ratio=0.0))
    return sum(job.served_cpu_seconds for job in run(instance, PolicyRun("fair", "fair")).jobs)


def table(kept: Mapping[str, Measured]) -> str:
    """The simulator's file."""
    lines = [
        f"{library},{behaviour},{each.threads_per_core:g},{each.cpu_ratio:.3f},{each.speed_ratio:.3f}"
        for library, found in sorted(kept.items())
        for behaviour in BEHAVIOURS
        for each in found.penalties(behaviour)
    ]
    return HEAD + "\n".join((COLUMNS, *lines)) + "\n"


def section(kept: Mapping[str, Measured]) -> str:
    """The penalties, and the CPU-seconds of runs that are not in them beside the simulator's."""
    cores = {found.cores for found in kept.values()}
    lines = [
        f"Medians of {REPETITIONS} repetitions on {max(cores)} cores. The last three columns are of another run.",
        "",
        "| library | threads | trainings at once | CPU-seconds a step | speed | real CPU-seconds | simulated | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for library, found in sorted(kept.items()):
        for behaviour in BEHAVIOURS:
            for of, real in zip(found.penalties(behaviour), found.held_out(behaviour), strict=True):
                simulated = simulated_cpu_seconds(found.penalties(behaviour), real, found.cores)
                error = simulated / real.threads.cpu_seconds - 1
                lines.append(
                    f"| {library} | {behaviour} | {real.at_once} | ×{of.cpu_ratio:.2f} | ×{of.speed_ratio:.3f} "
                    f"| {real.threads.cpu_seconds:.1f} | {simulated:.1f} | {error:+.0%} |"
                )
    return "\n".join(lines) + "\n"


# --- measuring -------------------------------------------------------------------------------------------------


def measured(library: str, python: str, behaviour: str, cores: int) -> list[Pair]:
    """All windows of one library and behaviour."""
    environment = {name: text for name, text in os.environ.items() if name not in NUMBERS}
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
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
        _window(trainings, cores, 0.5)  # what is loaded and built at a first step is not counted
        return [
            Pair(
                at_once,
                _window(trainings[:at_once], cores, THREADS_SECONDS),
                _window(trainings[:at_once], 1, ONE_SECONDS),
            )
            for _ in range(REPETITIONS + 1)
            for at_once in AT_ONCE
        ]


def _window(trainings: Sequence[subprocess.Popen[str]], threads: int, seconds: float) -> Took:
    for training in trainings:
        _tell(training, f"{threads} {seconds}")
    answers = [tuple(map(float, _answer(training).split())) for training in trainings]
    for training in trainings:
        _tell(training, "stop")
    for training in trainings:
        _answer(training)
    steps, cpu_seconds, passed = (sum(column) for column in zip(*answers, strict=True))
    return Took(int(steps), cpu_seconds, passed / len(trainings))


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


def load() -> dict[str, Measured]:
    """What was measured, by library."""
    if not KEPT.exists():
        return {}
    document = json.loads(KEPT.read_text(encoding="utf-8"))
    return {
        library: Measured(
            found["cores"],
            found["load"],
            {
                behaviour: [Pair(at_once, Took(*threads), Took(*one)) for at_once, threads, one in pairs]
                for behaviour, pairs in found["pairs"].items()
            },
        )
        for library, found in document.items()
    }


def save(kept: Mapping[str, Measured]) -> None:
    """Keep it."""
    document = {library: found._asdict() for library, found in sorted(kept.items())}
    KEPT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


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
        load_before = os.getloadavg()[0]
        err.print(f"{library}, load {load_before:.1f}")
        pairs = {behaviour: measured(library, python, behaviour, cores) for behaviour in BEHAVIOURS}
        kept[library] = Measured(cores, load_before, pairs)
        save(kept)
    TABLE.write_text(table(kept), encoding="utf-8")
    print(section(kept))


if __name__ == "__main__":
    typer.run(main)
