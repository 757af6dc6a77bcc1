"""Simulates published workloads whose files are no part of this project: `python -m replication.outside`.

`synergy --data FOLDER --nodes 8 --out FILE` makes a scenario of Synergy's jobs with GPUs (OSDI 2022), `synergy --data
FOLDER --run` simulates them and writes `replication/synergy.md`. FOLDER has two files, made from the artifact
`msr-fiddle/synergy` (MIT):

- `profiles.csv`: `gpus`, `model`, `cpus` (for each GPU), `relative_speed` (1 with 3 CPUs for each GPU), and
  `iteration_seconds_at_3_cpus`;
- `jobs-NAME.csv`: `job`, `model`, `arrival_seconds`, `gpus`, `iterations`. `--jobs` chooses among several.

A job comes with CPU in proportion to its GPUs, as request and as limit. Its steps are as fast as its profile says,
straight between two measured numbers of CPUs. Where a model has no profile of so many GPUs, each is taken as one alone.

`algoperf` and `taskset` simulate trainings whose losses were recorded, and write the pages of these names, which say
what FOLDER holds (`outside_pages.py`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
import yaml

from replication import outside_pages, outside_runs
from replication.marginal_runs import run_missing, save
from replication.outside_pages import Study
from slopewise.errors import SlopewiseError
from slopewise.simulator.scenario.scenario import load_scenario

PAGE = Path(__file__).with_name("synergy.md")

NODE_GPUS, NODE_CORES = 8, 24
"""Synergy's servers."""

PROPORTION = NODE_CORES / NODE_GPUS
"""Cores that a job comes with, for each of its GPUs."""

SECONDS = "iteration_seconds_at_3_cpus"

CURVE: Mapping[str, object] = {"exponential": {"k": 5}}
"""No losses are published: all jobs have this one."""

POLICIES: Sequence[Mapping[str, object]] = (
    {"name": "fair", "label": "fair share", "accelerators": "Share"},
    {"name": "marginal", "label": "marginal share", "accelerators": "Share"},
    {"name": "fair", "label": "fair no limits", "control": "requests"},
)
"""Beside `fair`, which is CPU in proportion. Without limits the kernel gives away what others leave."""


Kind = tuple[str, int]
"""A model, and the GPUs of a job of it."""

Profile = Sequence[tuple[float, float]]
"""(cores of all GPUs together, steps a second) as measured, ascending."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Published jobs with their profiles."""

    rows: Sequence[Mapping[str, str]]
    profiles: Mapping[Kind, Profile]

    @property
    def names(self) -> dict[Kind, str]:
        """The scenario's models, by kind of its jobs."""
        found = sorted({(row["model"], int(row["gpus"])) for row in self.rows})
        return {(model, gpus): model if gpus == 1 else f"{model}-{gpus}" for model, gpus in found}

    def profile(self, kind: Kind) -> Profile:
        """That of so many GPUs, or of one GPU as many times; ValueError where the model has none."""
        model, gpus = kind
        of_one = [(gpus * cores, speed) for cores, speed in self.profiles.get((model, 1), ())]
        if not (found := self.profiles.get(kind, of_one)):
            raise ValueError(f"profiles.csv has no row of {model} with {gpus} GPUs or one; add its speeds")
        return found

    def speed(self, kind: Kind) -> float:
        """Steps a second with CPU in proportion."""
        cores, speeds = zip(*self.profile(kind), strict=True)
        return float(np.interp(kind[1] * PROPORTION, cores, speeds))

    @property
    def flat(self) -> set[str]:
        """The names of the models that more CPU than in proportion does not speed up."""
        return {name for kind, name in self.names.items() if self.profile(kind)[-1][1] <= self.speed(kind)}


def read(folder: Path, jobs: str | None = None) -> Workload:
    """The workload of a folder; ValueError where there is not one file of jobs, or a column is missing."""
    found = sorted(folder.glob("jobs-*.csv")) if jobs is None else [folder / jobs]
    if len(found) != 1:
        raise ValueError(f"{folder} has {len(found)} files named jobs-*.csv; choose one with --jobs")
    profiles: dict[Kind, list[tuple[float, float]]] = {}
    for row in _rows(folder / "profiles.csv", ("gpus", "model", "cpus", "relative_speed", SECONDS)):
        gpus, speed = int(row["gpus"]), float(row["relative_speed"]) / float(row[SECONDS])
        profiles.setdefault((row["model"], gpus), []).append((gpus * float(row["cpus"]), speed))
    jobs_rows = _rows(found[0], ("job", "model", "arrival_seconds", "gpus", "iterations"))
    return Workload(jobs_rows, {kind: sorted(points) for kind, points in profiles.items()})


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if missing := [column for column in columns if not rows or column not in rows[0]]:
        raise ValueError(f"{path.name} has no column {missing[0]}; see the docstring of replication/outside.py")
    return rows


def scenario(workload: Workload, nodes: int) -> dict[str, object]:
    """The scenario of a workload on so many of Synergy's servers, as in its file."""
    names = workload.names
    jobs = [
        {
            "name": f"job-{row['job']}",
            "model": names[row["model"], int(row["gpus"])],
            "arriveSeconds": float(row["arrival_seconds"]),
            "steps": int(row["iterations"]),
        }
        for row in workload.rows
    ]
    server = {"name": "s", "count": nodes, "cpu": NODE_CORES, "memoryGiB": 500, "accelerators": NODE_GPUS}
    return {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "synergy", "description": f"Synergy's jobs (OSDI 2022) on {nodes} of its servers"},
        "spec": {
            "nodes": [server],
            "jobs": jobs,
            "models": {name: _model(workload, kind) for kind, name in names.items()},
            "scrapeSeconds": 15,
            "intervalSeconds": 60,
            "contentionRatio": 0,
            "control": "limits",
            "policies": [dict(each) for each in POLICIES],
        },
    }


def _model(workload: Workload, kind: Kind) -> dict[str, object]:
    """Its work is counted in the CPU-seconds that a step takes with CPU in proportion."""
    profile, cpu_seconds = workload.profile(kind), kind[1] * PROPORTION / workload.speed(kind)
    device = {"count": kind[1], "stepSeconds": 1 / profile[-1][1], "inputCpuSeconds": cpu_seconds}
    accelerator = {**device, "stepSpeeds": [list(each) for each in profile]}
    return {"workCpuSeconds": cpu_seconds, "curve": CURVE, "accelerator": accelerator}


app = typer.Typer(add_completion=False, help=__doc__)


@app.callback()
def published() -> None:
    """Simulate workloads that others have published."""


@app.command()
def synergy(
    *,
    data: Annotated[Path, typer.Option(help="The folder of the two files.", exists=True, file_okay=False)],
    jobs: Annotated[str | None, typer.Option(help="The file of jobs, if there are several.")] = None,
    nodes: Annotated[list[int] | None, typer.Option(min=1, help="Servers; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the scenario is written.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Simulate, and write replication/synergy.md.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for each number of servers.")] = 24,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    go_on: Annotated[bool, typer.Option("--go-on", help="Keep the seeds that were run before.")] = False,
) -> None:
    """Make a scenario of Synergy's jobs with GPUs, or simulate them on 4, 8 and 13 servers."""
    if out is None and not run:
        raise typer.BadParameter("nothing to do; give --out FILE, --run, or both")
    try:
        workload = read(data, jobs)
        if out is not None:
            _write(out, scenario(workload, (nodes or [8])[0]))
            typer.echo(f"wrote {out}")
        for servers in nodes or outside_runs.SERVERS if run else ():
            _simulate(workload, servers, range(1, seeds + 1), workers, go_on=go_on)
    except (ValueError, SlopewiseError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error


Folder = Annotated[Path, typer.Option(help="The folder of the files.", exists=True, file_okay=False)]
Seeds = Annotated[int, typer.Option(min=2, help="Draws in all; of several sweeps as many of each.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes.")]
GoOn = Annotated[bool, typer.Option("--go-on", help="Keep the draws that were run before, by the same decisions.")]


@app.command()
def algoperf(*, data: Folder, seeds: Seeds = 24, workers: Workers = 1, go_on: GoOn = False) -> None:
    """Simulate AlgoPerf's runs on one node and on four, and write replication/algoperf.md."""
    _simulate_recorded(outside_pages.ALGOPERF, data, seeds, workers, go_on=go_on)


@app.command()
def taskset(*, data: Folder, seeds: Seeds = 24, workers: Workers = 1, go_on: GoOn = False) -> None:
    """Simulate trials of TaskSet's sweeps on one node and on four, and write replication/taskset.md."""
    _simulate_recorded(outside_pages.TASKSET, data, seeds, workers, go_on=go_on)


def _simulate_recorded(study: Study, data: Path, seeds: int, workers: int, *, go_on: bool) -> None:
    """Each draw is kept as it ends."""
    try:
        sweeps = study.read(data)
        before = outside_pages.load_all(study, outside_pages.KEPT) if go_on else {}
        for name, cluster in study.clusters.items():
            run = partial(outside_pages.run, study, sweeps, cluster, workers=workers)
            for kept in run_missing(before.get(name), _draws(seeds, len(sweeps)), workers, run):
                typer.echo(
                    f"wrote {save(outside_pages.key(study, name), kept, outside_pages.KEPT)}, to draw {kept.seeds[-1]}"
                )
    except (OSError, KeyError, ValueError, SlopewiseError) as error:
        typer.echo(f"--data {data}: {error}; replication/{study.name}.md says what the folder holds.", err=True)
        raise typer.Exit(2) from error
    all_kept = outside_pages.load_all(study, outside_pages.KEPT)
    typer.echo(f"wrote {outside_pages.write(study, all_kept, outside_pages.HERE)}")


def _draws(seeds: int, sweeps: int) -> range:
    """The seeds of each sweep; ValueError where there is none."""
    if seeds < sweeps:
        raise ValueError(f"--seeds {seeds} is fewer than the {sweeps} sweeps; draw each once at least")
    return range(1, seeds // sweeps + 1)


def _write(out: Path, document: Mapping[str, object]) -> None:
    out.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def _simulate(workload: Workload, servers: int, seeds: Sequence[int], workers: int, *, go_on: bool) -> None:
    """Keep the figures of each seed as it ends, and write the page from all that is kept."""
    with TemporaryDirectory() as folder:
        _write(file := Path(folder, "synergy.yaml"), scenario(workload, servers))
        loaded = load_scenario(str(file))
    before = outside_runs.load_all().get(servers) if go_on else None
    run = partial(outside_runs.run, loaded, workers=workers, flat=workload.flat)
    for kept in run_missing(before, seeds, workers, run):
        typer.echo(f"wrote {save(str(servers), kept, outside_runs.KEPT)}, to seed {kept.seeds[-1]}")
    PAGE.write_text(outside_runs.page(outside_runs.load_all()), encoding="utf-8")


if __name__ == "__main__":
    app()
