"""Scenarios of published jobs with GPUs, from small tables of the same layout, and the oracle that knows them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.instances import a_sim_job
from typer.testing import CliRunner

from replication import outside_runs
from replication.marginal_runs import run_missing
from replication.outside import PAGE, app, read
from replication.outside_runs import divided, load_all, page, run_oracle
from slopewise.model import CpuAllocation
from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import Scenario, load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import SimJob

PROFILES = """gpus,model,task,cpus,relative_speed,iteration_seconds_at_3_cpus
1,hungry,image,1,0.4,0.6
1,hungry,image,3,1,0.6
1,hungry,image,12,3,0.6
1,flat,language,1,1,0.5
1,flat,language,3,1,0.5
1,flat,language,12,1,0.5
2,hungry,image,3,1,0.7
2,hungry,image,12,1.4,0.7
"""

JOBS = """job,model,arrival_seconds,seconds_at_3_cpus_per_gpu,gpus,iterations
0,hungry,0,600,1,1000
1,flat,0.5,500,1,1000
2,hungry,1,700,2,1000
3,flat,2,500,4,1000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "profiles.csv").write_text(PROFILES)
    (tmp_path / "jobs-static.csv").write_text(JOBS)
    return tmp_path


def invoked(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["synergy", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def written(folder: Path) -> Scenario:
    code, output = invoked("--data", folder, "--nodes", 1, "--out", folder / "out.yaml")
    assert (code, output) == (0, f"wrote {folder / 'out.yaml'}\n")
    return load_scenario(str(folder / "out.yaml"))


def by_name(of: Scenario) -> dict[str, SimJob]:
    return {job.name: job for job in draw(of, 1).jobs}


def test_a_job_has_its_models_speeds_and_cpu_in_proportion_to_its_gpus(written: Scenario) -> None:
    job = by_name(written)["job-0"]
    assert job.allocation == CpuAllocation(3000, 3000)
    assert job.steps_planned == 1000
    assert job.accelerator is not None
    assert job.accelerator.step_seconds == pytest.approx(0.2)
    assert [1 / job.accelerator.steps_per_second(cores) for cores in (1, 3, 12, 24)] == pytest.approx(
        [1.5, 0.6, 0.2, 0.2]
    )
    assert job.work_cpu_seconds == pytest.approx(1000 * 3 * 0.6)


def test_jobs_of_several_gpus_have_their_own_profile_or_that_of_one_as_often(written: Scenario) -> None:
    jobs = by_name(written)
    assert (jobs["job-2"].model, jobs["job-3"].model) == ("hungry-2", "flat-4")
    assert jobs["job-2"].allocation == CpuAllocation(6000, 6000)
    own, four = jobs["job-2"].accelerator, jobs["job-3"].accelerator
    assert own is not None
    assert four is not None
    assert (own.count, four.count) == (2, 4)
    assert [1 / own.steps_per_second(cores) for cores in (6, 24)] == pytest.approx([0.7, 0.5])
    assert 1 / four.steps_per_second(4) == pytest.approx(0.5)


def test_cpu_in_proportion_takes_the_published_time(written: Scenario) -> None:
    outcome = run(draw(written, 1), policy_runs(written)[0])
    assert {job.name: job.jct_seconds for job in outcome.jobs} == pytest.approx(
        {"job-0": 600, "job-1": 500, "job-2": 700, "job-3": 500}
    )


def test_refuses_a_folder_of_which_it_is_not_clear_what_to_read(folder: Path) -> None:
    (folder / "jobs-other.csv").write_text(JOBS)
    code, output = invoked("--data", folder, "--out", folder / "out.yaml")
    assert code == 2
    assert "choose one with --jobs" in output
    assert invoked("--data", folder, "--out", folder / "out.yaml", "--jobs", "jobs-other.csv")[0] == 0
    assert "nothing to do" in invoked("--data", folder, "--jobs", "jobs-other.csv")[1]


def test_refuses_to_simulate_a_job_of_more_gpus_than_a_server_has(folder: Path) -> None:
    (folder / "jobs-static.csv").write_text(JOBS.replace("500,4,1000", "500,16,1000"))
    code, output = invoked("--data", folder, "--nodes", 1, "--run")
    assert code == 2
    assert "wants 16 accelerators" in output


def a_job(name: str, *speeds: tuple[float, float]) -> SimJob:
    """It comes with 3 cores."""
    device = Accelerator(count=1, step_seconds=1 / speeds[-1][1], input_cpu_seconds=3.0, step_speeds=speeds)
    return a_sim_job(name, 300.0, accelerator=device, allocation=CpuAllocation(3000, 3000))


class TestTheOracle:
    def test_gives_what_one_does_not_need_to_one_that_is_faster_with_it(self) -> None:
        assert divided([a_job("flat", (1, 1)), a_job("hungry", (3, 1), (5, 2))], 6) == [1, 5]

    def test_makes_no_job_slower_than_with_the_cpu_that_it_came_with(self) -> None:
        steep, gentle = a_job("steep", (3, 1), (6, 4)), a_job("gentle", (2, 0.5), (3, 1))
        assert divided([steep, gentle], 6) == [3, 3]

    def test_is_no_slower_than_cpu_in_proportion(self, written: Scenario) -> None:
        instance = draw(written, 1)
        fair = run(instance, policy_runs(written)[0])
        times = {job.name: job.jct_seconds for job in run_oracle(instance).jobs}
        assert times["job-0"] == pytest.approx(200, rel=0.01)
        for job in fair.jobs:
            ours = times[job.name]
            assert ours is not None
            assert job.jct_seconds is not None
            assert ours <= job.jct_seconds * 1.001


class TestFigures:
    def test_are_ratios_to_cpu_in_proportion(self, written: Scenario, folder: Path) -> None:
        kept = outside_runs.run(written, [1, 2], 1, read(folder).flat)
        assert list(kept.policies) == ["fair", "fair share", "marginal share", "fair no limits", "oracle"]
        assert kept.policies["fair"]["jct_mean_ratio"] == [1, 1]
        assert kept.policies["fair"]["own_worst_ratio"] == pytest.approx([1, 1])
        assert kept.policies["fair"]["flat_raised"] == [0, 0]
        (first, _) = kept.policies["oracle"]["jct_mean_ratio"]
        # job-2 has 7 cores until job-0 ends, then 19
        assert first == pytest.approx((200 + 500 + 578 + 500) / (600 + 500 + 700 + 500), rel=0.01)

    def test_of_a_run_that_was_stopped_go_on_with_the_missing_seeds(self, written: Scenario, folder: Path) -> None:
        flat = read(folder).flat
        simulate = partial(outside_runs.run, written, workers=1, flat=flat)
        first = next(run_missing(None, [1, 2], 1, simulate))
        assert first.seeds == [1]
        whole = outside_runs.run(written, [1, 2], 1, flat)
        assert list(run_missing(first, [1, 2], 1, simulate)) == [whole]
        assert list(run_missing(whole, [1, 2], 1, simulate)) == []


def test_the_page_is_what_the_kept_figures_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load_all())
