"""Makes scenarios of Pollux' workloads: `python -m replication.pollux FOLDER --out DIRECTORY`.

FOLDER has files of `petuum/adaptdl`, branch `osdi21-artifact` (Apache-2.0): `workload-N.csv` from `simulator/workloads`
(name, arrival, kind, replicas, batch size), and for each kind a folder as in `simulator/traces`, with
`validation-BATCH.csv` (the metric after each epoch) and `placements.csv` (step times). They are not part of this
project. DIRECTORY gets `pollux-N.yaml` for each workload, with CSV files of its jobs and curves beside it.

A replica is a core here. The work of a job is the iterations of the measured batch size nearest to its own, times the
step time of one replica at its share of the batch, times its replicas. It can use as many cores as it has replicas, up
to a node's. Its curve is the metric's way from its first value to its best; a metric that got worse again gets worse.

Worked example: 100 iterations, a batch of 64 on 4 replicas, 0.5 s a step of 16: 200 core-seconds, on up to 4 cores.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
import yaml

NODES, NODE_CORES = 6, 4
"""Contended: the work is 4 to 5 times what they do in the 8 hours of the arrivals."""

NOISE = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """A row of a workload."""

    name: str
    arrive_seconds: float
    kind: str
    replicas: int
    batch: int


@dataclass(frozen=True)
class Kind:
    """The measured trainings of one model."""

    folder: Path

    @cached_property
    def batches(self) -> list[int]:
        """The measured batch sizes."""
        found = (re.fullmatch(r"validation-(\d+)\.csv", each.name) for each in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    @cached_property
    def _step_seconds(self) -> tuple[list[float], list[float]]:
        """Batch sizes of one replica alone, ascending, and the time of a step."""
        rows = [row for row in _rows(self.folder / "placements.csv") if row["placement"] == "1"]
        pairs = sorted((float(row["local_bsz"]), float(row["step_time"])) for row in rows)
        return [size for size, _ in pairs], [seconds for _, seconds in pairs]

    def nearest(self, batch: int) -> int:
        """The measured batch size nearest to this one."""
        return min(self.batches, key=lambda each: abs(each - batch))

    def step_seconds(self, share: float) -> float:
        """Of one replica; a share above all measured ones takes several steps of the largest."""
        sizes, seconds = self._step_seconds
        return float(np.interp(share, sizes, seconds)) * max(1.0, share / sizes[-1])

    def curve(self, batch: int) -> list[tuple[float, float]]:
        """(iterations, metric) after each epoch."""
        rows = _rows(self.folder / f"validation-{self.nearest(batch)}.csv")
        return [(float(row["iteration"]), float(row["metric"])) for row in rows]

    def work_cpu_seconds(self, job: Job) -> float:
        """Core-seconds until its last epoch."""
        iterations, _ = self.curve(job.batch)[-1]
        return iterations * self.step_seconds(job.batch / job.replicas) * job.replicas


def read_workload(path: Path) -> list[Job]:
    """The jobs of a workload, in the file's order."""
    return [
        Job(row["name"], float(row["time"]), row["application"], int(row["num_replicas"]), int(row["batch_size"]))
        for row in _rows(path)
    ]


def convert(folder: Path, out: Path) -> list[Path]:
    """Write a scenario for each workload in `folder`; their paths."""
    out.mkdir(parents=True, exist_ok=True)
    found = sorted(folder.glob("workload-*.csv"))
    if not found:
        raise typer.BadParameter(f"{folder} has no workload-N.csv; give the folder of Pollux' files")
    return [_write(path, read_workload(path), folder, out) for path in found]


def _write(path: Path, jobs: Sequence[Job], folder: Path, out: Path) -> Path:
    name = path.stem.replace("workload", "pollux")
    kinds = {kind: Kind(folder / kind) for kind in {job.kind for job in jobs}}
    models: dict[str, object] = {}
    rows = []
    for job in jobs:
        kind, model = kinds[job.kind], f"{job.kind}-{job.batch}"
        work = round(kind.work_cpu_seconds(job), 3)
        cores = min(job.replicas, NODE_CORES)
        rows.append((job.name, model, job.arrive_seconds, work, cores))
        if model in models:
            continue
        curve = kind.curve(job.batch)
        _table(out / f"{model}.csv", ("iteration", "metric"), curve)
        better = "more" if curve[-1][1] > curve[0][1] else "less"
        measured = {"file": f"./{model}.csv", "x": "iteration", "y": "metric", "better": better}
        models[model] = {"workCpuSeconds": work, "noise": NOISE, "curve": {"csv": measured}}
    _table(out / f"{name}-jobs.csv", ("name", "model", "arriveSeconds", "workCpuSeconds", "parallelism"), rows)
    scenario = {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name, "description": f"Pollux' {path.stem} (OSDI 2021), {NODES} nodes"},
        "spec": {
            "nodes": [{"name": "w", "count": NODES, "cpu": NODE_CORES, "memoryGiB": 64}],
            "jobs": f"./{name}-jobs.csv",
            "models": models,
            "scrapeSeconds": 15,
            "intervalSeconds": 60,
            "policies": [
                "marginal",
                "flowcon",
                "specon",
                "las",
                {"name": "fair", "label": "fifo", "defaultScheduler": "fifo"},
                "srpt-oracle",
            ],
            "seeds": 4,
        },
    }
    file = out / f"{name}.yaml"
    file.write_text(yaml.safe_dump(scenario, sort_keys=False), encoding="utf-8")
    return file


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def main(
    folder: Annotated[Path, typer.Argument(help="Pollux' workloads and traces.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Option(help="Where the scenarios are written.")],
) -> None:
    """Write a scenario for each of Pollux' workloads in FOLDER."""
    for path in convert(folder, out):
        typer.echo(f"wrote {path}")


if __name__ == "__main__":
    typer.run(main)
