"""cgroup v1: on a file tree, and on the real kernel where we have the rights."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cgroup_trees import FileTree, ReadOnlyTree, StartPython
from support.pipes import piped
from support.waiting import eventually

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.limiters.cgroup_v1 import CgroupV1Limiter
from slopewise.errors import ActuationError, MissingToolError
from slopewise.model import CpuAllocation

BUSY = "while True: pass"
ASLEEP = "import time; time.sleep(600)"
STARTS_BUSY_CHILD_WHEN_TOLD = f"import subprocess, sys; input(); subprocess.run([sys.executable, '-S', '-c', {BUSY!r}])"


@pytest.fixture
def own(tmp_path: Path, file_tree: Any) -> dict[str, Path]:
    return {name: file_tree.plant(tmp_path / "cgroup" / name) for name in ("cpu", "cpuacct")}


@pytest.fixture
def limiter(own: dict[str, Path], journal: Journal, file_tree: Any) -> CgroupV1Limiter:
    limiter = CgroupV1Limiter(own["cpu"], own["cpuacct"], journal, file_tree)
    limiter.prepare()
    return limiter


def run_directory(own: dict[str, Path], journal: Journal, controller: str = "cpu") -> Path:
    return own[controller] / f"slopewise-{journal.run_id}"


def test_a_job_gets_a_cgroup_of_its_own_in_every_hierarchy(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal
) -> None:
    limiter.admit("mnist", 4711)
    for controller in ("cpu", "cpuacct"):
        procs = run_directory(own, journal, controller) / "1-mnist" / "cgroup.procs"
        assert procs.read_text().split() == ["4711"]


def test_hierarchies_mounted_together_are_used_once(
    own: dict[str, Path], journal: Journal, file_tree: FileTree
) -> None:
    limiter = CgroupV1Limiter(own["cpu"], own["cpu"], journal, file_tree)
    limiter.prepare()
    limiter.admit("mnist", 4711)
    assert limiter.usage("mnist").cpu_seconds_total == 0.0


def test_an_admitted_job_has_no_limit_and_the_weight_of_everyone(limiter: CgroupV1Limiter) -> None:
    limiter.admit("mnist", 4711)
    assert limiter.read("mnist") == UNLIMITED


def test_a_limit_is_a_quota_of_each_tenth_of_a_second(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal
) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_limit("mnist", 250)
    directory = run_directory(own, journal) / "1-mnist"
    assert (directory / "cpu.cfs_quota_us").read_text() == "25000"
    assert (directory / "cpu.cfs_period_us").read_text() == "100000"
    assert limiter.read("mnist") == CpuAllocation(250, 1000)


@pytest.mark.parametrize("millicores", [1, 9, 10])
def test_a_limit_below_what_the_kernel_accepts_becomes_the_least_it_accepts(
    limiter: CgroupV1Limiter, millicores: int
) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_limit("mnist", millicores)
    assert limiter.read("mnist").limit_millicores == 10


@pytest.mark.parametrize(("millicores", "shares"), [(250, "256"), (1000, "1024"), (1, "2")])
def test_a_request_is_written_as_the_kubelet_writes_it(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal, millicores: int, shares: str
) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_request("mnist", millicores)
    assert (run_directory(own, journal) / "1-mnist" / "cpu.shares").read_text() == shares


@pytest.mark.parametrize("millicores", [20, 250, 333, 999, 1500])
def test_a_request_is_read_as_it_was_set(limiter: CgroupV1Limiter, millicores: int) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_request("mnist", millicores)
    assert limiter.read("mnist").request_millicores == millicores


def test_restore_gives_back_what_was_before_the_first_change(limiter: CgroupV1Limiter) -> None:
    limiter.admit("mnist", 4711)
    original = limiter.read("mnist")
    limiter.set_limit("mnist", 250)
    limiter.set_request("mnist", 20)
    limiter.restore("mnist", original)
    assert limiter.read("mnist") == original


def test_a_run_weighs_as_much_as_its_jobs_together(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal
) -> None:
    shares = run_directory(own, journal) / "cpu.shares"
    limiter.admit("a", 4711)
    limiter.admit("b", 4712)
    limiter.set_request("b", 500)
    assert shares.read_text() == "1536"
    limiter.release("a")
    assert shares.read_text() == "512"


def test_cpu_time_comes_from_the_cgroups_own_counter(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal
) -> None:
    limiter.admit("mnist", 4711)
    (run_directory(own, journal, "cpuacct") / "1-mnist" / "cpuacct.usage").write_text("1500000000")
    usage = limiter.usage("mnist")
    assert usage.cpu_seconds_total == 1.5
    assert usage.network_io_bytes_total is None


def test_a_job_that_is_gone_has_no_usage_and_its_restore_is_no_error(limiter: CgroupV1Limiter) -> None:
    limiter.admit("mnist", 4711)
    limiter.release("mnist")
    limiter.restore("mnist", UNLIMITED)
    assert limiter.usage("mnist").cpu_seconds_total is None


def test_a_limit_for_an_unknown_job_is_refused_by_name(limiter: CgroupV1Limiter) -> None:
    with pytest.raises(ActuationError, match="mnist: no such job"):
        limiter.set_limit("mnist", 250)


def test_a_quota_that_the_kernel_refuses_is_reported_with_its_place(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal
) -> None:
    limiter.admit("mnist", 4711)
    (run_directory(own, journal) / "1-mnist" / "cpu.cfs_quota_us").unlink()
    with pytest.raises(ActuationError, match=r"mnist: .*1-mnist cannot be used \(No such file"):
        limiter.set_limit("mnist", 250)


def test_release_moves_what_still_runs_to_our_own_cgroup(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal
) -> None:
    limiter.admit("mnist", 4711)
    limiter.release("mnist")
    assert not (run_directory(own, journal) / "1-mnist").exists()
    assert "4711" in (own["cpu"] / "cgroup.procs").read_text().split()


def test_close_leaves_no_directory(limiter: CgroupV1Limiter, own: dict[str, Path]) -> None:
    limiter.admit("a", 4711)
    limiter.admit("b/../../c", 4712)
    limiter.close()
    assert [entry for path in own.values() for entry in path.iterdir() if entry.is_dir()] == []


def test_without_rights_nothing_is_left_and_the_reason_is_reported(
    own: dict[str, Path], journal: Journal, read_only_tree: ReadOnlyTree
) -> None:
    limiter = CgroupV1Limiter(own["cpu"], own["cpuacct"], journal, read_only_tree)
    with pytest.raises(MissingToolError, match="Permission denied"):
        limiter.prepare()
    assert not run_directory(own, journal).exists()


# --- the real kernel -----------------------------------------------------------------------------------------


@pytest.fixture
def real(real_cgroups: dict[str, Path], journal: Journal) -> Iterator[CgroupV1Limiter]:
    limiter = CgroupV1Limiter(real_cgroups["cpu"], real_cgroups["cpuacct"], journal)
    limiter.prepare()
    yield limiter
    limiter.close()


def throttled_periods(directory: Path) -> int:
    stat = dict(line.split() for line in (directory / "cpu.stat").read_text().splitlines())
    return int(stat["nr_throttled"])


@pytest.mark.alone
@pytest.mark.cgroups
def test_the_kernel_throttles_a_busy_job_at_its_limit(
    real: CgroupV1Limiter, real_cgroups: dict[str, Path], journal: Journal, start_python: StartPython
) -> None:
    process = start_python(BUSY)
    real.admit("busy", process.pid)
    real.set_limit("busy", 250)
    directory = run_directory(real_cgroups, journal) / "1-busy"
    before = real.usage("busy")
    assert eventually(lambda: throttled_periods(directory) >= 8)
    after = real.usage("busy")
    assert before.cpu_seconds_total is not None
    assert after.cpu_seconds_total is not None
    used = after.cpu_seconds_total - before.cpu_seconds_total
    assert 0 < used < 0.6 * (after.sampled_at_seconds - before.sampled_at_seconds)
    assert (after.memory_bytes or 0) > 1_000_000


@pytest.mark.alone
@pytest.mark.cgroups
def test_children_of_a_job_are_under_its_limit_too(
    real: CgroupV1Limiter, real_cgroups: dict[str, Path], journal: Journal, start_python: StartPython
) -> None:
    process = start_python(STARTS_BUSY_CHILD_WHEN_TOLD)
    real.admit("parent", process.pid)
    real.set_limit("parent", 100)
    piped(process.stdin).write(b"\n")
    piped(process.stdin).flush()
    directory = run_directory(real_cgroups, journal) / "1-parent"
    assert eventually(lambda: len((directory / "cgroup.procs").read_text().split()) == 2)
    assert eventually(lambda: throttled_periods(directory) > 0)


@pytest.mark.cgroups
def test_the_kernel_holds_the_weight(
    real: CgroupV1Limiter, real_cgroups: dict[str, Path], journal: Journal, start_python: StartPython
) -> None:
    real.admit("light", start_python(ASLEEP).pid)
    real.set_request("light", 20)
    assert (run_directory(real_cgroups, journal) / "1-light" / "cpu.shares").read_text() == "20\n"
    assert real.read("light") == CpuAllocation(None, 20)


@pytest.mark.cgroups
def test_a_released_job_runs_on_and_no_cgroup_is_left(
    real: CgroupV1Limiter, real_cgroups: dict[str, Path], journal: Journal, start_python: StartPython
) -> None:
    process: subprocess.Popen[bytes] = start_python(ASLEEP)
    real.admit("sleeper", process.pid)
    real.set_limit("sleeper", 50)
    real.close()
    assert process.poll() is None
    for controller in ("cpu", "cpuacct"):
        assert not run_directory(real_cgroups, journal, controller).exists()
        assert str(process.pid) in (real_cgroups[controller] / "cgroup.procs").read_text().split()


@pytest.mark.cgroups
def test_a_limit_above_that_of_a_cgroup_over_it_is_an_error_of_this_job_alone(
    real: CgroupV1Limiter, real_cgroups: dict[str, Path], journal: Journal, start_python: StartPython
) -> None:
    real.admit("job", start_python(ASLEEP).pid)
    run = run_directory(real_cgroups, journal)
    real.set_limit("job", 200)
    (run / "cpu.cfs_quota_us").write_text("50000")
    with pytest.raises(ActuationError, match="Invalid argument"):
        real.set_limit("job", 1000)
    assert real.read("job").limit_millicores == 200
