"""Runs one training under the exporter and keeps what a scrape shows of it: loss over the fraction of its steps.

It runs in the environment that has the frameworks, on one core, e.g. `python -m replication.recording.training
gru-pytorch --digits digits.csv.gz --out gru.csv`. `python -m replication.recording` starts all of them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple, Protocol

from replication.recording.catalogue import SEED, STEPS
from slopewise_exporter import Reporter, __version__

POINTS = 300
"""About so many steps are kept; the others differ by noise."""

STAGES = ("train", "train_ema")


class Learner(Protocol):
    """One training; its file's class `Learner` is built with `(seed, file of the digits)`."""

    samples_per_step: int

    def step(self) -> float:
        """Do one optimiser step; its loss before the step, on the samples of the step."""


class Recording(NamedTuple):
    """What one training did."""

    points: list[tuple[float, ...]]
    """Fraction of the steps, and the loss of each stage."""
    cpu_seconds: float
    ready_seconds: float
    """How long it ran or waited for data, not for a core that others used; like `cpu_seconds` without the scrapes."""


def main() -> None:
    """Train, and write one file."""
    arguments = _arguments()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    learner = _learner(arguments.name, arguments.digits)
    recording = record(learner, arguments.name, arguments.steps)
    facts = {**_facts(arguments.name, learner, arguments.steps), **_costs(recording, arguments.steps)}
    arguments.out.write_text(text_of(facts, recording.points), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=STEPS)
    parser.add_argument("--digits", type=Path, required=True, help="scikit-learn's digits.csv.gz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="instead of those of the catalogue")
    parser.add_argument("--core", type=int, help="run on this core alone")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or STEPS[arguments.name]
    return arguments


def _learner(name: str, digits_file: Path) -> Learner:
    """The training by that name, the same every time."""
    os.environ["KERAS_BACKEND"] = "torch"
    import torch  # noqa: PLC0415 - Keras reads its backend when it is imported

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    if name.endswith("-keras"):
        import keras  # noqa: PLC0415

        keras.utils.set_random_seed(SEED)
    module = importlib.import_module(f"replication.recording.trainings.{name.replace('-', '_')}")
    learner: Learner = module.Learner(SEED, digits_file)
    return learner


def record(learner: Learner, name: str, steps: int) -> Recording:
    """All steps of a training, with a scrape after each that is kept."""
    points, cpu_seconds, ready_seconds = [], 0.0, 0.0
    every = -(-steps // POINTS)
    with Reporter(0, planned_steps=steps, model=name, address="127.0.0.1", linger_seconds=0) as reporter:
        for step in range(1, steps + 1):
            ready_began, cpu_began = _ready_seconds(), process_time()
            reporter.step(loss=learner.step(), samples=learner.samples_per_step)
            cpu_seconds += process_time() - cpu_began
            ready_seconds += _ready_seconds() - ready_began
            if step == 1 or step % every == 0 or step == steps:
                losses = scraped(reporter.port)
                points.append((step / steps, *(losses[stage] for stage in STAGES)))
    return Recording(points, cpu_seconds, ready_seconds)


def scraped(port: int | None) -> Mapping[str, float]:
    """The losses that the endpoint shows now, by stage."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'^training_loss\{[^}]*stage="(\w+)"[^}]*\} (\S+)$', text, re.MULTILINE)
    return {stage: float(value) for stage, value in found}


def _facts(name: str, learner: Learner, steps: int) -> dict[str, object]:
    """What it takes to do it again."""
    framework = "keras" if name.endswith("-keras") else "torch"
    backend = f" on torch {version('torch')}" if framework == "keras" else ""
    first_line = (importlib.import_module(type(learner).__module__).__doc__ or "").splitlines()[0]
    return {
        "model": first_line,
        "framework": f"{framework} {version(framework)}{backend}",
        "with": f"Python {platform.python_version()}, slopewise-exporter {__version__}, {platform.machine()}",
        "command": f"make record ONLY={name}",
        "seed": SEED,
        "steps": steps,
        "samples_per_step": learner.samples_per_step,
    }


def _costs(recording: Recording, steps: int) -> dict[str, object]:
    return {
        "cpu_seconds": f"{recording.cpu_seconds:.1f}",
        "cpu_seconds_per_step": f"{recording.cpu_seconds / steps:.3g}",
        "cores": f"{recording.cpu_seconds / recording.ready_seconds:.2f}",
    }


def text_of(facts: Mapping[str, object], points: list[tuple[float, ...]]) -> str:
    """The file: facts as comments, then a table with a column for each stage of `training_loss`."""
    lines = [f"# {key}: {value}" for key, value in facts.items()]
    lines.append(",".join(("done_ratio", *STAGES)))
    lines += [",".join(f"{number:.5g}" for number in point) for point in points]
    return "\n".join(lines) + "\n"


def _ready_seconds() -> float:
    """The time, less what the main thread has waited for a core while others ran, where the kernel counts that."""
    try:
        waited = int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except OSError:
        waited = 0.0
    return perf_counter() - waited


if __name__ == "__main__":
    main()
