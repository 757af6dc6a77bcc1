"""A demo on a machine that other programs use: fewer jobs, said before they start; a short demo keeps all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slopewise.adapters.local.machine_cpu import MachineCpu
from slopewise.demo import command
from slopewise.demo.workloads import FEWEST_JOBS, WorkloadName, build_workload, fewer_jobs, longest_seconds

TICKS = os.sysconf("SC_CLK_TCK")
CORES = 2.0


class Machine:
    """Two cores, of which others use so many between the first count and the second, ten seconds later."""

    def __init__(self, folder: Path, used_cores: float) -> None:
        self._path = folder / "stat"
        self._busy_ticks = round(10 * TICKS * used_cores / CORES)
        self._seconds = [0.0, 10.0]
        self._write(0, 0)

    def _write(self, busy: int, idle: int) -> None:
        self._path.write_text("".join(f"cpu{number} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for number in range(int(CORES))))

    def _clock(self) -> float:
        """Called after the counters were read."""
        self._write(self._busy_ticks, 10 * TICKS - self._busy_ticks)
        return self._seconds.pop(0)

    def counted(self) -> MachineCpu:
        return MachineCpu(range(int(CORES)), list, self._path, self._clock)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MEASURED_SECONDS", 0.0)


@pytest.mark.parametrize(("used", "run", "said"), [(0.1, 8, False), (1.0, 3, True), (2.0, 3, True)])
def test_where_others_use_the_cores_fewer_jobs_run_and_that_is_said(
    tmp_path: Path, used: float, run: int, said: bool
) -> None:
    jobs, announced = build_workload("trainings", 1.0, CORES), list[str]()
    chosen = command.beside_others("trainings", 1.0, jobs, Machine(tmp_path, used).counted(), announced.append)
    assert chosen == jobs[:run]
    message = f"Other programs use {used:.1f} of 2 cores: {run} of the 8 jobs run, so that the demo takes no longer."
    assert announced == ([message] if said else [])


def test_a_machine_whose_use_is_not_counted_runs_all(tmp_path: Path) -> None:
    jobs = build_workload("trainings", 1.0, CORES)
    unknown = MachineCpu(range(2), list, tmp_path / "missing")
    assert command.beside_others("trainings", 1.0, jobs, unknown, pytest.fail) == jobs


@pytest.mark.parametrize(("workload", "scale"), [("trainings", 0.12), ("served", 1.0), ("threads", 1.0)])
def test_a_demo_that_is_short_in_any_case_measures_nothing(
    tmp_path: Path, workload: WorkloadName, scale: float
) -> None:
    jobs, machine = build_workload(workload, scale, CORES), Machine(tmp_path, 2.0)
    assert command.beside_others(workload, scale, jobs, machine.counted(), pytest.fail) == jobs
    assert len(machine._seconds) == 2


@pytest.mark.parametrize(("cores", "scale"), [(1.0, 1.0), (2.0, 3.0)])
def test_what_runs_on_an_idle_machine_too_leaves_out_no_job_of_a_long_demo(cores: float, scale: float) -> None:
    jobs = build_workload("trainings", scale, cores)
    assert len(fewer_jobs("trainings", scale, jobs, cores, 0.97 * cores)) == len(jobs)
    assert len(fewer_jobs("trainings", scale, jobs, cores, 0.6 * cores)) < len(jobs)


@pytest.mark.parametrize("left", [2.0, 1.6, 1.3, 1.1, 0.9])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_what_is_left_takes_no_longer_than_a_hundred_seconds_or_than_all_on_an_idle_machine(
    left: float, scale: float
) -> None:
    jobs = build_workload("trainings", scale, CORES)
    chosen = fewer_jobs("trainings", scale, jobs, CORES, left)
    most = max(100.0, longest_seconds("trainings", scale, jobs, CORES))
    assert len(chosen) == FEWEST_JOBS or longest_seconds("trainings", scale, chosen, left) <= most
    if len(chosen) < len(jobs):
        assert longest_seconds("trainings", scale, jobs[: len(chosen) + 1], left) > most
