"""cgroup v1: on a file tree, and on the real kernel where we have the rights."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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


class Family(NamedTuple):
    """Two processes, by their pids."""

    process: int
    child: int


def journal_path_of(journal: Journal) -> Path:
    return journal._path


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


def test_every_hierarchy_has_its_cgroup(limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal) -> None:
    limiter.admit("mnist", 4711)
    for controller in ("cpu", "cpuacct"):
        procs = run_directory(own, journal, controller) / "1-mnist" / "cgroup.procs"
        assert procs.read_text().split() == ["4711"]
    assert limiter.read("mnist") == UNLIMITED


def test_hierarchies_mounted_together_count_once(own: dict[str, Path], journal: Journal, file_tree: FileTree) -> None:
    limiter = CgroupV1Limiter(own["cpu"], own["cpu"], journal, file_tree)
    limiter.prepare()
    limiter.admit("mnist", 4711)
    assert limiter.usage("mnist").cpu_seconds_total == 0.0


def test_a_limit_is_a_quota_of_100_ms(limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_limit("mnist", 250)
    directory = run_directory(own, journal) / "1-mnist"
    assert (directory / "cpu.cfs_quota_us").read_text() == "25000"
    assert (directory / "cpu.cfs_period_us").read_text() == "100000"
    assert limiter.read("mnist") == CpuAllocation(250, 1000)
    limiter.set_limit("mnist", 1)
    assert limiter.read("mnist").limit_millicores == 10, "the kernel takes no less"


@pytest.mark.parametrize(("millicores", "shares"), [(250, "256"), (1000, "1024"), (1, "2")])
def test_a_request_is_written_as_the_kubelet_writes_it(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal, millicores: int, shares: str
) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_request("mnist", millicores)
    assert (run_directory(own, journal) / "1-mnist" / "cpu.shares").read_text() == shares
    for other in (333, 1500):
        limiter.set_request("mnist", other)
        assert limiter.read("mnist").request_millicores == other


def test_a_run_weighs_what_its_jobs_do(
    limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    shares = run_directory(own, journal) / "cpu.shares"
    limiter.admit("a", 4711)
    limiter.admit("b", 4712)
    limiter.set_request("b", 500)
    assert shares.read_text() == "1536"
    limiter.release("a")
    assert shares.read_text() == "512"


def test_cpu_time_is_the_cgroups_counter(limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal) -> None:
    limiter.admit("mnist", 4711)
    (run_directory(own, journal, "cpuacct") / "1-mnist" / "cpuacct.usage").write_text("1500000000")
    usage = limiter.usage("mnist")
    assert usage.cpu_seconds_total == 1.5
    assert usage.network_io_bytes_total is None
    limiter.release("mnist")
    limiter.restore("mnist", UNLIMITED)
    assert limiter.usage("mnist").cpu_seconds_total is None


def test_a_refused_quota_names_its_cgroup(limiter: CgroupV1Limiter, own: dict[str, Path], journal: Journal) -> None:
    limiter.admit("mnist", 4711)
    (run_directory(own, journal) / "1-mnist" / "cpu.cfs_quota_us").unlink()
    with pytest.raises(ActuationError, match=r"mnist: .*1-mnist cannot be used \(No such file"):
        limiter.set_limit("mnist", 250)


def test_close_leaves_no_directory(limiter: CgroupV1Limiter, own: dict[str, Path]) -> None:
    limiter.admit("a", 4711)
    limiter.admit("b/../../c", 4712)
    limiter.close()
    assert [entry for path in own.values() for entry in path.iterdir() if entry.is_dir()] == []


def test_without_rights_nothing_is_left(own: dict[str, Path], journal: Journal, read_only_tree: ReadOnlyTree) -> None:
    limiter = CgroupV1Limiter(own["cpu"], own["cpuacct"], journal, read_only_tree)
    with pytest.raises(MissingToolError, match="Permission denied"):
        limiter.prepare()
    assert not run_directory(own, journal).exists()


class TestAttach:
    """A running process comes with its children, and goes back to where each came from."""

    @pytest.fixture
    def family(self, own: dict[str, Path], file_tree: FileTree, start_python: StartPython) -> Family:
        """A process in a cgroup beside ours, with a child in one below that."""
        process = start_python(STARTS_SLEEPING_CHILD)
        assert eventually(lambda: len(psutil.Process(process.pid).children()) == 1)
        (child,) = psutil.Process(process.pid).children()
        for root in own.values():
            for pid, place in ((process.pid, root / "theirs"), (child.pid, root / "theirs" / "below")):
                file_tree.make(place)
                file_tree.move(pid, place)
        return Family(process.pid, child.pid)

    def places(self, own: dict[str, Path], pid: int, tree: FileTree) -> list[str]:
        return [str(tree.of_process(pid)[name].relative_to(root)) for name, root in own.items()]

    def test_both_come_into_one_cgroup_that_can_be_limited_and_go_back_at_their_release(
        self, limiter: CgroupV1Limiter, own: dict[str, Path], family: Family, file_tree: FileTree, journal: Journal
    ) -> None:
        limiter.attach("train", family.process)
        inside = [f"slopewise-{journal.run_id}/1-train"] * 2
        assert [self.places(own, pid, file_tree) for pid in family] == [inside, inside]
        limiter.set_limit("train", 250)
        assert limiter.read("train") == CpuAllocation(250, 1000)
        limiter.release("train")
        assert [self.places(own, pid, file_tree) for pid in family] == [["theirs"] * 2, ["theirs/below"] * 2]
        assert not (run_directory(own, journal) / "1-train").exists()

    def test_what_was_started_since_goes_where_its_parent_came_from(
        self,
        limiter: CgroupV1Limiter,
        own: dict[str, Path],
        family: Family,
        file_tree: FileTree,
        journal: Journal,
        start_python: StartPython,
    ) -> None:
        limiter.attach("train", family.process)
        stranger = start_python(ASLEEP).pid  # of no parent that was attached: goes where the attached one came from
        for controller in own:
            file_tree.move(stranger, run_directory(own, journal, controller) / "1-train")
        limiter.release("train")
        assert self.places(own, stranger, file_tree) == ["theirs"] * 2

    def test_where_its_cgroup_is_gone_it_goes_where_released_jobs_go(
        self, limiter: CgroupV1Limiter, own: dict[str, Path], family: Family, file_tree: FileTree
    ) -> None:
        limiter.attach("train", family.process)
        for root in own.values():
            file_tree.remove(root / "theirs" / "below")
        limiter.release("train")
        assert self.places(own, family.child, file_tree) == ["."] * 2

    def test_one_that_a_session_manages_is_refused_and_nothing_is_moved(
        self, limiter: CgroupV1Limiter, own: dict[str, Path], family: Family, file_tree: FileTree
    ) -> None:
        for root in own.values():
            file_tree.make(root / "slopewise-other")
            file_tree.make(root / "slopewise-other" / "1-a")
            file_tree.move(family.child, root / "slopewise-other" / "1-a")
        with pytest.raises(UsageError, match=f"process {family.child} is managed already"):
            limiter.attach("train", family.process)
        assert self.places(own, family.process, file_tree) == ["theirs"] * 2

    def test_one_whose_cgroup_cannot_be_left_stays_with_all_of_its_children(
        self, limiter: CgroupV1Limiter, own: dict[str, Path], family: Family, file_tree: Any, monkeypatch: Any
    ) -> None:
        move = file_tree.move

        def refusing(pid: int, directory: Path) -> None:
            if pid == family.child and "1-train" in directory.parts:
                raise PermissionError(errno.EACCES, "Permission denied", str(directory))
            move(pid, directory)

        monkeypatch.setattr(file_tree, "move", refusing)
        with pytest.raises(UsageError, match=r"cannot leave its cgroup .*theirs \(Permission denied\); run"):
            limiter.attach("train", family.process)
        assert [self.places(own, pid, file_tree) for pid in family] == [["theirs"] * 2, ["theirs/below"] * 2]
        with pytest.raises(ActuationError, match="train: no such job"):
            limiter.read("train")

    def test_a_child_that_waits_to_be_collected_is_in_no_cgroup_and_hinders_nothing(
        self, limiter: CgroupV1Limiter, own: dict[str, Path], file_tree: FileTree, start_python: StartPython
    ) -> None:
        process = start_python("import os, time; os.fork() or os._exit(0); time.sleep(600)")
        found = psutil.Process(process.pid)
        assert eventually(lambda: [each.status() for each in found.children()] == [psutil.STATUS_ZOMBIE])
        for root in own.values():
            file_tree.make(root / "theirs")
            file_tree.move(process.pid, root / "theirs")
        limiter.attach("train", process.pid)
        limiter.release("train")
        assert self.places(own, process.pid, file_tree) == ["theirs"] * 2

    def test_one_whose_cgroup_is_not_seen_or_may_not_be_written_is_refused(
        self,
        limiter: CgroupV1Limiter,
        own: dict[str, Path],
        family: Family,
        start_python: StartPython,
        monkeypatch: Any,
    ) -> None:
        unseen = start_python(ASLEEP).pid
        with pytest.raises(UsageError, match=f"process {unseen} is in a cgroup that is not seen from here"):
            limiter.attach("train", unseen)
        monkeypatch.setattr("os.access", lambda *_: False)
        with pytest.raises(UsageError, match=r"could not be put back into its cgroup .*theirs"):
            limiter.attach("train", family.process)

    def test_after_a_kill_the_journal_puts_back_before_the_cgroup_is_removed(
        self, limiter: CgroupV1Limiter, own: dict[str, Path], family: Family, file_tree: FileTree, journal: Journal
    ) -> None:
        limiter.attach("train", family.process)
        entries, _ = read_journal(journal_path_of(journal))
        (moved,) = [each for each in entries if isinstance(each, MovedProcesses)]
        assert ORDER.index(MovedProcesses) < ORDER.index(MadeCgroup)
        assert moved.clean_up("another-run") is None
        assert self.places(own, family.child, file_tree) != ["theirs/below"] * 2
        assert moved.put_back(file_tree)
        assert self.places(own, family.child, file_tree) == ["theirs/below"] * 2


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
def test_the_kernel_throttles_a_busy_child_of_a_job_at_its_limit(
    real: CgroupV1Limiter, real_cgroups: dict[str, Path], journal: Journal, start_python: StartPython
) -> None:
    process = start_python(STARTS_BUSY_CHILD_WHEN_TOLD)
    real.admit("busy", process.pid)
    real.set_limit("busy", 250)
    directory = run_directory(real_cgroups, journal) / "1-busy"
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
