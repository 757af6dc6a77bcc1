"""`python -m replication.recording`: train every model alone and some in pairs, and write what the exporter showed.

The trainings run in the environment of `make test-frameworks`, each on one core of its own; those of a pair share one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, TypeVar

import sklearn
import typer
from rich.console import Console

from replication.recording.catalogue import PAIRS, STEPS

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "controller" / "slopewise" / "simulator" / "recorded"
PAIRED = ROOT / "replication" / "recorded_pairs.csv"
DIGITS = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
SAME_EVERY_TIME = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
PAIR_COLUMNS = "training,beside,cpu_seconds_per_step_alone,cpu_seconds_per_step_beside,same_losses"

Task = TypeVar("Task")
Result = TypeVar("Result")
Start = Callable[[str, Path, int], "subprocess.Popen[bytes]"]


def main(
    frameworks: Annotated[Path, typer.Option(help="The Python that has PyTorch and Keras.")] = ROOT
    / ".venv-frameworks/bin/python",
    only: Annotated[list[str] | None, typer.Option(help="Only this training, and no pairs.")] = None,
) -> None:
    """Record the losses of the papers' models; 8 CPU-minutes alone and 4 in pairs."""
    err = Console(stderr=True)
    if unknown := sorted(set(only or ()) - STEPS.keys()):
        err.print(f"--only {unknown[0]}: there is no such training; use one of {', '.join(STEPS)}.")
        raise typer.Exit(2)
    began = time.monotonic()
    start, cores = partial(_started, frameworks), Cores()
    RECORDED.mkdir(exist_ok=True)
    each(lambda name: alone(start, name, cores), only or list(STEPS), len(cores))
    if not only:
        rows = each(lambda pair: beside(start, pair, cores), PAIRS, len(cores))
        PAIRED.write_text("\n".join((PAIR_COLUMNS, *chain(*rows))) + "\n", encoding="utf-8")
    err.print(f"{len(only or STEPS)} trainings, {time.monotonic() - began:.0f} s")


class Cores:
    """The cores of this process, each lent to one training or pair at a time."""

    def __init__(self) -> None:
        self._free: SimpleQueue[int] = SimpleQueue()
        self._count = len(os.sched_getaffinity(0))
        for core in os.sched_getaffinity(0):
            self._free.put(core)

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def one(self) -> Iterator[int]:
        """A core that no other training uses meanwhile."""
        core = self._free.get()
        try:
            yield core
        finally:
            self._free.put(core)


def each(do: Callable[[Task], Result], tasks: Sequence[Task], at_once: int) -> list[Result]:
    """The results in the order of the tasks; the first error ends it."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(do, tasks))


def alone(start: Start, name: str, cores: Cores) -> None:
    """Record one training."""
    with cores.one() as core:
        _ended(name, start(name, RECORDED / f"{name}.csv", core))


def beside(start: Start, pair: tuple[str, str], cores: Cores) -> list[str]:
    """Record two trainings that share a core; for each a line of what that changed."""
    with tempfile.TemporaryDirectory(prefix="slopewise-record-") as folder, cores.one() as core:
        files = {name: Path(folder) / f"{name}.csv" for name in pair}
        running = {name: start(name, file, core) for name, file in files.items()}
        for name, process in running.items():
            _ended(name, process)
        return [_pair_row(name, other, files[name]) for name, other in (pair, pair[::-1])]


def _pair_row(name: str, other: str, file: Path) -> str:
    alone_facts, alone_table = _parts(RECORDED / f"{name}.csv")
    facts, table = _parts(file)
    costs = (alone_facts["cpu_seconds_per_step"], facts["cpu_seconds_per_step"])
    return ",".join((name, other, *costs, "yes" if table == alone_table else "no"))


def _parts(file: Path) -> tuple[Mapping[str, str], list[str]]:
    """The facts and the table of a recorded file."""
    lines = file.read_text(encoding="utf-8").splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    return facts, [line for line in lines if not line.startswith("#")]


def _started(python: Path, name: str, out: Path, core: int) -> subprocess.Popen[bytes]:
    options = ("--digits", str(DIGITS), "--out", str(out), "--core", str(core))
    return subprocess.Popen(
        [str(python), "-m", "replication.recording.training", name, *options],
        cwd=ROOT,
        env={**os.environ, **SAME_EVERY_TIME, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "exporters")))},
    )


def _ended(name: str, process: subprocess.Popen[bytes]) -> None:
    if process.wait() != 0:
        raise SystemExit(f"{name} ended with status {process.returncode}; its error is above.")


if __name__ == "__main__":
    typer.run(main)
