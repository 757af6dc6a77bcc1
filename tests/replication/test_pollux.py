"""Scenarios of Pollux' workloads, from small files of the same layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from support.printing import words
from typer.testing import CliRunner

from replication.pollux import convert, main
from slopewise.simulator.curves import Points
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.sweep import simulate
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import SimJob

WORKLOAD = """name,time,application,num_replicas,batch_size
small-0,10,small,4,64
small-1,500,small,1,100
wide-2,30,wide,16,32
"""

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,8,0.3,0.001
1,16,0.5,0.001
1,32,0.9,0.001
2,8,9,0.001
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    at = tmp_path / "pollux"
    for kind, (batch, metrics) in {"small": (64, (0.2, 0.9, 0.8)), "wide": (32, (100, 30, 40))}.items():
        (at / kind).mkdir(parents=True)
        (at / kind / "placements.csv").write_text(PLACEMENTS)
        rows = "".join(f"{i},{50 * i},{metric},1,1\n" for i, metric in enumerate(metrics, start=1))
        (at / kind / f"validation-{batch}.csv").write_text(f"progress,iteration,metric,grad_sqr,grad_var\n{rows}")
    (at / "small" / "validation-512.csv").write_text("progress,iteration,metric,grad_sqr,grad_var\n1,7,0.1,1,1\n")
    (at / "workload-3.csv").write_text(WORKLOAD)
    return at


@pytest.fixture
def jobs(folder: Path, tmp_path: Path) -> dict[str, SimJob]:
    (path,) = convert(folder, tmp_path / "out")
    assert path.name == "pollux-3.yaml"
    return {job.name: job for job in draw(load_scenario(str(path)), 1).jobs}


def test_work_is_iterations_of_the_nearest_batch_times_the_step_at_its_share_times_replicas(
    jobs: dict[str, SimJob],
) -> None:
    assert jobs["small-0"].work_cpu_seconds == pytest.approx(150 * 0.5 * 4)  # 16 of 64 on each of 4
    assert jobs["wide-2"].work_cpu_seconds == pytest.approx(150 * 0.3 * 16)  # 2 of 32: no step is shorter than of 8
    assert jobs["small-1"].work_cpu_seconds == pytest.approx(150 * 0.9 * 100 / 32)  # steps of the largest that fits


def test_a_job_can_use_its_replicas_up_to_a_node(jobs: dict[str, SimJob]) -> None:
    assert {name: job.parallelism_cores for name, job in jobs.items()} == {"small-0": 4, "small-1": 1, "wide-2": 4}
    assert {name: job.arrive_seconds for name, job in jobs.items()} == {"small-0": 10, "small-1": 500, "wide-2": 30}


def test_metrics_that_should_rise_are_turned_round_and_what_gets_worse_again_does(jobs: dict[str, SimJob]) -> None:
    for name, at_the_end in (("small-0", 1 / 7), ("wide-2", 1 / 7)):
        curve = jobs[name].curve
        assert isinstance(curve, Points)
        assert [curve.at(x) for x in (0.0, 1 / 3, 2 / 3, 1.0)] == pytest.approx([1.0, 1.0, 0.0, at_the_end])
        assert jobs[name].noise == 0.02


def test_the_scenario_runs_with_the_queue_as_a_baseline(folder: Path, tmp_path: Path) -> None:
    (path,) = convert(folder, tmp_path / "out")
    scenario = load_scenario(str(path))
    assert "fifo" in [each.label for each in policy_runs(scenario)]
    result = simulate(scenario, [1], 1, policies=["marginal", "fifo"])
    assert all(figures[0].not_ended == 0 for figures in result.figures.values())


def test_a_folder_without_workloads_is_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "no workload-N.csv" in words(result.output.replace("│", " "))  # the folder's path may break a line
