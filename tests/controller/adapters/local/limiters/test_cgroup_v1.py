"""cgroup v1: on a file tree, and on the real kernel where we have the rights."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cgroup_trees import FileTree, ReadOnlyTree, StartPython
from support.pipes import piped
from support.waiting import eventually

from slopewise.adapters.local.cleanup import ORDER, MadeCgroup, MovedProcesses
from slopewise.adapters.local.crash_journal import Journal, read_journal
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.limiters.cgroup_v1 import CgroupV1Limiter
from slopewise.errors import ActuationError, MissingToolError, UsageError
from slopewise.model import CpuAllocation

STARTS_SLEEPING_CHILD = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
BUSY = "while True: pass"
ASLEEP = "import time; time.sleep(600)"
STARTS_BUSY_CHILD_WHEN_TOLD = f"import subprocess, sys; input(); subprocess.run([sys.executable, '-S', '-c', {BUSY!r}])"


@dataclass(frozen=True)
class Run:
    """The cgroups of a run below ours."""

    own: dict[str, Path]
    journal: Journal

    def of(self, job: str = "1-mnist", controller: str = "cpu") -> Path:
        return self.own[controller] / f"slopewise-{self.journal.run_id}" / job


@pytest.fixture
def run(tmp_path: Path, file_tree: FileTree, journal: Journal) -> Run:
    return Run({name: file_tree.plant(tmp_path / "cgroup" / name) for name in ("cpu", "cpuacct")}, journal)


@pytest.fixture
def limiter(run: Run, file_tree: Any) -> CgroupV1Limiter:
    limiter = CgroupV1Limiter(run.own["cpu"], run.own["cpuacct"], run.journal, file_tree)
    limiter.prepare()
    return limiter


def test_every_hierarchy_has_its_cgroup(limiter: CgroupV1Limiter, run: Run) -> None:
    limiter.admit("mnist", 4711)
    for controller in ("cpu", "cpuacct"):
        assert (run.of(controller=controller) / "cgroup.procs").read_text().split() == ["4711"]
    assert limiter.read("mnist") == UNLIMITED


def test_hierarchies_mounted_together_count_once(run: Run, file_tree: FileTree) -> None:
    limiter = CgroupV1Limiter(run.own["cpu"], run.own["cpu"], run.journal, file_tree)
    limiter.prepare()
    limiter.admit("mnist", 4711)
    assert limiter.usage("mnist").cpu_seconds_total == 0.0


def test_a_limit_is_a_quota_of_100_ms(limiter: CgroupV1Limiter, run: Run) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_limit("mnist", 250)
    assert (run.of() / "cpu.cfs_quota_us").read_text() == "25000"
    assert (run.of() / "cpu.cfs_period_us").read_text() == "100000"
    assert limiter.read("mnist") == CpuAllocation(250, 1000)
    limiter.set_limit("mnist", 1)
    assert limiter.read("mnist").limit_millicores == 10, "the kernel takes no less"
    (run.of() / "cpu.cfs_quota_us").unlink()
    with pytest.raises(ActuationError, match=r"mnist: .*1-mnist cannot be used \(No such file"):
        limiter.set_limit("mnist", 250)


def test_a_request_is_written_as_kubelets_write_it_and_read_as_it_was_set(limiter: CgroupV1Limiter, run: Run) -> None:
    limiter.admit("mnist", 4711)
    for millicores, shares in ((250, "256"), (1000, "1024"), (1, "2")):
        limiter.set_request("mnist", millicores)
        assert (run.of() / "cpu.shares").read_text() == shares
    for millicores in (333, 1500):
        limiter.set_request("mnist", millicores)
        assert limiter.read("mnist").request_millicores == millicores


def test_a_run_weighs_what_its_jobs_do(limiter: CgroupV1Limiter, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    limiter.admit("a", 4711)
    limiter.admit("b", 4712)
    limiter.set_request("b", 500)
    assert (run.of("cpu.shares")).read_text() == "1536"
    limiter.release("a")
    assert (run.of("cpu.shares")).read_text() == "512"


def test_cpu_time_is_the_cgroups_counter(limiter: CgroupV1Limiter, run: Run) -> None:
    limiter.admit("mnist", 4711)
    (run.of(controller="cpuacct") / "cpuacct.usage").write_text("1500000000")
    usage = limiter.usage("mnist")
    assert (usage.cpu_seconds_total, usage.network_io_bytes_total) == (1.5, None)
    limiter.release("mnist")
    limiter.restore("mnist", UNLIMITED)
    assert limiter.usage("mnist").cpu_seconds_total is None


def test_close_leaves_no_directory(limiter: CgroupV1Limiter, run: Run) -> None:
    limiter.admit("a", 4711)
    limiter.admit("b/../../c", 4712)
    limiter.close()
    assert [entry for path in run.own.values() for entry in path.iterdir() if entry.is_dir()] == []


def test_without_rights_nothing_is_left(run: Run, read_only_tree: ReadOnlyTree) -> None:
    limiter = CgroupV1Limiter(run.own["cpu"], run.own["cpuacct"], run.journal, read_only_tree)
    with pytest.raises(MissingToolError, match="Permission denied"):
        limiter.prepare()
    assert not run.of("").exists()


@dataclass(frozen=True)
class Family:
    """Two processes, by their pids: one in a cgroup beside ours, with a child in one below that."""

    process: int
    child: int
    own: dict[str, Path]
    files: FileTree

    def put(self, pid: int, *place: str) -> None:
        for root in self.own.values():
            for directory in (root / place[0], root.joinpath(*place)):
                if not directory.exists():
                    self.files.make(directory)
            self.files.move(pid, root.joinpath(*place))

    def places(self, *pids: int) -> list[str]:
        """Of the parent and its child unless others are named: where each is in both hierarchies, which agree."""
        found = []
        for pid in pids or (self.process, self.child):
            (place,) = {str(self.files.of_process(pid)[name].relative_to(root)) for name, root in self.own.items()}
            found.append(place)
        return found


class TestAttach:
    """A running process comes with its children, and goes back to where each came from."""

    @pytest.fixture
    def family(self, run: Run, file_tree: FileTree, start_python: StartPython) -> Family:
        process = start_python(STARTS_SLEEPING_CHILD)
        assert eventually(lambda: len(psutil.Process(process.pid).children()) == 1)
        (child,) = psutil.Process(process.pid).children()
        family = Family(process.pid, child.pid, run.own, file_tree)
        family.put(process.pid, "theirs")
        family.put(child.pid, "theirs", "below")
        return family

    def test_both_are_limited_and_go_back_at_their_release(
        self, limiter: CgroupV1Limiter, run: Run, family: Family
    ) -> None:
        limiter.attach("train", family.process)
        assert family.places() == [f"slopewise-{run.journal.run_id}/1-train"] * 2
        limiter.set_limit("train", 250)
        assert limiter.read("train") == CpuAllocation(250, 1000)
        limiter.release("train")
        assert family.places() == ["theirs", "theirs/below"]
        assert not run.of("1-train").exists()

    def test_the_end_of_the_session_puts_back_too(self, limiter: CgroupV1Limiter, family: Family) -> None:
        limiter.attach("train", family.process)
        limiter.close()
        assert set(family.places(family.child)) == {"theirs/below"}

    def test_what_was_started_since_goes_where_its_parent_came_from(
        self, limiter: CgroupV1Limiter, run: Run, family: Family, start_python: StartPython
    ) -> None:
        limiter.attach("train", family.process)
        stranger = start_python(ASLEEP).pid  # of no parent that was attached: goes where the attached one came from
        for controller in run.own:
            family.files.move(stranger, run.of("1-train", controller))
        limiter.release("train")
        assert family.places(stranger) == ["theirs"]

    def test_without_its_cgroup_it_goes_where_released_jobs_go(self, limiter: CgroupV1Limiter, family: Family) -> None:
        limiter.attach("train", family.process)
        for root in family.own.values():
            family.files.remove(root / "theirs" / "below")
        limiter.release("train")
        assert family.places() == ["theirs", "."]

    def test_one_that_a_session_manages_is_refused_and_not_moved(
        self, limiter: CgroupV1Limiter, family: Family
    ) -> None:
        family.put(family.child, "slopewise-other", "1-a")
        with pytest.raises(UsageError, match=f"process {family.child} is managed already"):
            limiter.attach("train", family.process)
        assert family.places(family.process) == ["theirs"]

    def test_one_whose_cgroup_cannot_be_left_stays_with_all_of_its_children(
        self, limiter: CgroupV1Limiter, family: Family, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        move = family.files.move

        def refusing(pid: int, directory: Path) -> None:
            if pid == family.child and "1-train" in directory.parts:
                raise PermissionError(errno.EACCES, "Permission denied", str(directory))
            move(pid, directory)

        monkeypatch.setattr(family.files, "move", refusing)
        with pytest.raises(UsageError, match=r"cannot leave its cgroup .*theirs \(Permission denied\); run"):
            limiter.attach("train", family.process)
        assert family.places() == ["theirs", "theirs/below"]
        with pytest.raises(ActuationError, match="train: no such job"):
            limiter.read("train")

    def test_a_child_that_waits_to_be_collected_is_in_no_cgroup_and_hinders_nothing(
        self, limiter: CgroupV1Limiter, family: Family, start_python: StartPython
    ) -> None:
        process = start_python("import os, time; os.fork() or os._exit(0); time.sleep(600)")
        found = psutil.Process(process.pid)
        assert eventually(lambda: [each.status() for each in found.children()] == [psutil.STATUS_ZOMBIE])
        family.put(process.pid, "theirs")
        limiter.attach("train", process.pid)
        limiter.release("train")
        assert family.places(process.pid) == ["theirs"]

    def test_one_whose_cgroup_is_not_seen_or_may_not_be_written_is_refused(
        self, limiter: CgroupV1Limiter, family: Family, start_python: StartPython, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unseen = start_python(ASLEEP).pid
        with pytest.raises(UsageError, match=f"process {unseen} is in a cgroup that is not seen from here"):
            limiter.attach("train", unseen)
        monkeypatch.setattr("os.access", lambda *_: False)
        with pytest.raises(UsageError, match=r"could not be put back into its cgroup .*theirs"):
            limiter.attach("train", family.process)

    def test_after_a_kill_the_journal_puts_back(
        self, limiter: CgroupV1Limiter, family: Family, journal: Journal
    ) -> None:
        limiter.attach("train", family.process)
        entries = read_journal(journal._path)
        (moved,) = [each for each in entries if isinstance(each, MovedProcesses)]
        assert ORDER.index(MovedProcesses) < ORDER.index(MadeCgroup)
        assert moved.clean_up("another-run") is None
        assert "theirs/below" not in family.places()
        assert moved.put_back(family.files)
        assert family.places() == ["theirs", "theirs/below"]


# --- the real kernel -----------------------------------------------------------------------------------------


@pytest.fixture
def real(real_cgroups: dict[str, Path], journal: Journal) -> Iterator[CgroupV1Limiter]:
    limiter = CgroupV1Limiter(real_cgroups["cpu"], real_cgroups["cpuacct"], journal)
    limiter.prepare()
    yield limiter
    limiter.close()


@pytest.fixture
def real_run(real_cgroups: dict[str, Path], journal: Journal) -> Run:
    return Run(real_cgroups, journal)


def throttled_periods(directory: Path) -> int:
    stat = dict(line.split() for line in (directory / "cpu.stat").read_text().splitlines())
    return int(stat["nr_throttled"])


@pytest.mark.alone
@pytest.mark.cgroups
def test_the_kernel_throttles_the_child_of_a_job(
    real: CgroupV1Limiter, real_run: Run, start_python: StartPython
) -> None:
    process, directory = start_python(STARTS_BUSY_CHILD_WHEN_TOLD), real_run.of("1-busy")
    real.admit("busy", process.pid)
    real.set_limit("busy", 250)
    piped(process.stdin).write(b"\n")
    piped(process.stdin).flush()
    assert eventually(lambda: len((directory / "cgroup.procs").read_text().split()) == 2)
    before = real.usage("busy")
    assert eventually(lambda: throttled_periods(directory) >= 8)
    after = real.usage("busy")
    assert before.cpu_seconds_total is not None
    assert after.cpu_seconds_total is not None
    used = after.cpu_seconds_total - before.cpu_seconds_total
    assert 0 < used < 0.6 * (after.sampled_at_seconds - before.sampled_at_seconds)
    assert (after.memory_bytes or 0) > 1_000_000


@pytest.mark.cgroups
def test_a_released_job_runs_on_alone(real: CgroupV1Limiter, real_run: Run, start_python: StartPython) -> None:
    process = start_python(ASLEEP)
    real.admit("sleeper", process.pid)
    real.set_limit("sleeper", 50)
    real.close()
    assert process.poll() is None
    for controller, own in real_run.own.items():
        if controller in ("cpu", "cpuacct"):
            assert not real_run.of("", controller).exists()
            assert str(process.pid) in (own / "cgroup.procs").read_text().split()


@pytest.mark.cgroups
def test_a_limit_above_its_parents_is_an_error(real: CgroupV1Limiter, real_run: Run, start_python: StartPython) -> None:
    real.admit("job", start_python(ASLEEP).pid)
    real.set_limit("job", 200)
    real_run.of("cpu.cfs_quota_us").write_text("50000")
    with pytest.raises(ActuationError, match="Invalid argument"):
        real.set_limit("job", 1000)
    assert real.read("job").limit_millicores == 200
