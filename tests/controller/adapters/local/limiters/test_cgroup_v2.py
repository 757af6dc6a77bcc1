"""cgroup v2, on a file tree that keeps the kernel's rules (`conftest.UnifiedTree`); the kernel moves processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.cgroup_trees import ReadOnlyTree, StartPython, UnifiedTree
from support.waiting import eventually

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.limiters.cgroup_files import UNIFIED, CgroupFiles, own_cgroups
from slopewise.adapters.local.limiters.cgroup_v2 import CgroupV2Limiter
from slopewise.errors import MissingToolError
from slopewise.model import CpuAllocation


@pytest.fixture
def own(tmp_path: Path, unified_tree: UnifiedTree) -> Path:
    return unified_tree.plant(tmp_path / "cgroup")


@pytest.fixture
def limiter(own: Path, journal: Journal, unified_tree: UnifiedTree) -> CgroupV2Limiter:
    limiter = CgroupV2Limiter(own, journal, unified_tree)
    limiter.prepare()
    return limiter


@pytest.fixture
def run(own: Path, journal: Journal) -> Path:
    return own / f"slopewise-{journal.run_id}"


def test_none_leaves_the_root_cgroup(own: Path, run: Path, journal: Journal, unified_tree: UnifiedTree) -> None:
    (own / "cgroup.type").unlink()
    limiter = CgroupV2Limiter(own, journal, unified_tree)
    limiter.prepare()
    assert (own / "cgroup.procs").read_text() == str(os.getpid())
    assert not (run / "0-controller").exists()
    limiter.admit("mnist", 4711)
    assert limiter.read("mnist") == UNLIMITED


def test_a_limit_is_a_quota_of_each_tenth_of_a_second(limiter: CgroupV2Limiter, run: Path) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_limit("mnist", 250)
    assert (run / "1-mnist" / "cpu.max").read_text() == "25000 100000"
    assert limiter.read("mnist") == CpuAllocation(250, 1000)
    limiter.set_request("mnist", 20)
    limiter.restore("mnist", UNLIMITED)
    assert limiter.read("mnist") == UNLIMITED
    assert (run / "1-mnist" / "cpu.max").read_text() == "max 100000"


@pytest.mark.parametrize(("millicores", "weight"), [(250, "25"), (1, "1"), (200_000, "10000")])
def test_a_request_is_a_weight_within_bounds(limiter: CgroupV2Limiter, run: Path, millicores: int, weight: str) -> None:
    limiter.admit("mnist", 4711)
    limiter.set_request("mnist", millicores)
    assert (run / "1-mnist" / "cpu.weight").read_text() == weight


def test_cpu_comes_from_the_cgroup_and_memory_from_its_processes(limiter: CgroupV2Limiter, run: Path) -> None:
    limiter.admit("self", os.getpid())
    (run / "1-self" / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")
    usage = limiter.usage("self")
    assert usage.cpu_seconds_total == 2.5
    assert (usage.memory_bytes or 0) > 1_000_000
    assert usage.block_io_bytes_total is not None


def test_a_released_job_goes_where_processes_may_be(limiter: CgroupV2Limiter, run: Path) -> None:
    limiter.admit("mnist", 4711)
    assert limiter.members("mnist") == [4711]
    limiter.release("mnist")
    assert (limiter.members("mnist"), (run / "1-mnist").exists()) == ([], False)
    assert "4711" in (run / "0-controller" / "cgroup.procs").read_text().split()


def test_the_controller_leaves_its_cgroup_and_close_puts_all_back(
    limiter: CgroupV2Limiter, own: Path, run: Path
) -> None:
    assert pids_in(own) == set()
    assert pids_in(run / "0-controller") == {str(os.getpid())}
    assert "cpu" in (own / "cgroup.subtree_control").read_text().split()
    limiter.admit("mnist", 4711)
    limiter.close()
    assert [entry for entry in own.iterdir() if entry.is_dir()] == []
    assert (own / "cgroup.subtree_control").read_text() == ""
    assert set((own / "cgroup.procs").read_text().split()) == {str(os.getpid()), "4711"}


PARENT = str(os.getppid() or os.getpid())
STRANGER = "99999999"
"""More than any pid: no parent and no child of another."""


@pytest.fixture
def session_scope(tmp_path: Path, unified_tree: UnifiedTree) -> Path:
    """A cgroup below one that can be seen, with this process, its parent and a stranger in it."""
    unified_tree.plant(tmp_path / "cgroup")
    scope = tmp_path / "cgroup" / "session-1.scope"
    unified_tree.make(scope)
    (tmp_path / "cgroup" / "cgroup.subtree_control").write_text("cpu")
    (scope / "cgroup.controllers").write_text("cpu")
    (scope / "cgroup.procs").write_text(f"{os.getpid()} {PARENT} {STRANGER}")
    return scope


def pids_in(directory: Path) -> set[str]:
    return set((directory / "cgroup.procs").read_text().split())


def test_strangers_in_our_cgroup_are_not_moved(
    session_scope: Path, journal: Journal, unified_tree: UnifiedTree
) -> None:
    before = pids_in(session_scope)
    with pytest.raises(MissingToolError, match=r"holds other processes too \(1\).*systemd-run --user --scope"):
        CgroupV2Limiter(session_scope, journal, unified_tree).prepare()
    assert list(session_scope.glob("slopewise-*")) == []
    assert pids_in(session_scope) == before


@pytest.mark.parametrize(
    ("where", "pids", "delegated"),
    [
        ("session_scope", {str(os.getpid()), PARENT}, False),
        ("session_scope", {str(os.getpid()), PARENT, STRANGER}, True),
        ("own", {str(os.getpid()), STRANGER}, False),
    ],
    ids=["the shell and make that wait for us", "everybody in a delegated cgroup", "everybody that a container sees"],
)
def test_who_is_ours_to_move_steps_aside_and_comes_back(
    request: pytest.FixtureRequest,
    journal: Journal,
    unified_tree: UnifiedTree,
    where: str,
    pids: set[str],
    delegated: bool,
) -> None:
    scope: Path = request.getfixturevalue(where)
    (scope / "cgroup.procs").write_text(" ".join(pids))
    if delegated:
        unified_tree.delegated.append(scope)
    limiter = CgroupV2Limiter(scope, journal, unified_tree)
    limiter.prepare()
    assert pids_in(scope / f"slopewise-{journal.run_id}" / "0-controller") == pids
    limiter.close()
    assert pids_in(scope) == pids


def test_a_process_that_cannot_be_seen_is_never_moved(own: Path, journal: Journal, unified_tree: UnifiedTree) -> None:
    (own / "cgroup.procs").write_text(f"{os.getpid()} 0")
    with pytest.raises(MissingToolError, match=r"holds other processes too \(1\)"):
        CgroupV2Limiter(own, journal, unified_tree).prepare()
    assert list(own.glob("slopewise-*")) == []


def test_a_delegated_cgroup_is_known_by_its_attribute(tmp_path: Path) -> None:
    assert not CgroupFiles().is_delegated(tmp_path)
    for name, value, delegated in (("user.delegate", b"0", False), ("user.delegate", b"1", True)):
        try:
            os.setxattr(tmp_path, name, value)
        except OSError:  # a file system without such attributes: then nothing is delegated
            assert not CgroupFiles().is_delegated(tmp_path)
        else:
            assert CgroupFiles().is_delegated(tmp_path) is delegated


def test_a_lack_of_rights_or_of_the_cpu_controller_is_refused_with_the_remedy(
    session_scope: Path, journal: Journal, read_only_tree: ReadOnlyTree, unified_tree: UnifiedTree
) -> None:
    (session_scope / "cgroup.procs").write_text(str(os.getpid()))
    with pytest.raises(MissingToolError, match="Permission denied") as caught:
        CgroupV2Limiter(session_scope, journal, read_only_tree).prepare()
    assert ("systemd-run --user" in str(caught.value)) is (os.geteuid() != 0)
    (session_scope / "cgroup.controllers").write_text("hugetlb")
    with pytest.raises(MissingToolError, match="has no cpu controller"):
        CgroupV2Limiter(session_scope, journal, unified_tree).prepare()
    assert list(session_scope.glob("slopewise-*")) == []


def test_two_runs_at_the_root_end_in_any_order(
    own: Path, journal: Journal, unified_tree: UnifiedTree, tmp_path: Path
) -> None:
    (own / "cgroup.type").unlink()
    other = Journal.open(tmp_path / "state", f"other-{os.getpid()}-{tmp_path.name}")
    first, second = (CgroupV2Limiter(own, one, unified_tree) for one in (journal, other))
    first.prepare()
    second.prepare()
    first.admit("mnist", 4711)
    first.close()
    assert [entry.name for entry in own.iterdir() if entry.is_dir()] == [f"slopewise-{other.run_id}"]
    assert "4711" in pids_in(own)
    second.admit("mnist", 4712)
    second.close()
    assert [entry for entry in own.iterdir() if entry.is_dir()] == []
    other.close()


def test_a_failure_half_way_puts_all_back(own: Path, run: Path, journal: Journal, unified_tree: UnifiedTree) -> None:
    class RefusesRun(UnifiedTree):
        def write(self, file: Path, value: str) -> None:
            self._demand(file != run / "cgroup.subtree_control" or value[0] == "-", 1, file)
            super().write(file, value)

    files = RefusesRun()
    files.roots = unified_tree.roots
    with pytest.raises(MissingToolError, match="Operation not permitted"):
        CgroupV2Limiter(own, journal, files).prepare()
    assert not run.exists()
    assert (own / "cgroup.procs").read_text().split() == [str(os.getpid())]
    assert (own / "cgroup.subtree_control").read_text() == ""


def test_an_attached_process_goes_back_to_where_it_stood_and_with_the_session_to_where_all_came_from(
    own: Path, run: Path, journal: Journal, unified_tree: UnifiedTree, start_python: StartPython
) -> None:
    pid = start_python("import time; time.sleep(600)").pid
    unified_tree.move(pid, own)
    unified_tree.delegated.append(own)
    limiter = CgroupV2Limiter(own, journal, unified_tree)
    limiter.prepare()
    assert unified_tree.of_process(pid) == {"": run / "0-controller"}
    limiter.attach("train", pid)
    assert unified_tree.of_process(pid) == {"": run / "1-train"}
    limiter.set_request("train", 250)
    assert (run / "1-train" / "cpu.weight").read_text() == "25"
    limiter.release("train")
    assert unified_tree.of_process(pid) == {"": run / "0-controller"}
    limiter.close()
    assert unified_tree.of_process(pid) == {"": own}


class WithoutCpu(CgroupFiles):
    """The kernel's own hierarchy where its CPU controller is on v1: processes are moved, and no CPU is given."""

    def read(self, file: Path) -> str:
        return "cpu" if file.name in ("cgroup.controllers", "cgroup.subtree_control") else super().read(file)

    def write(self, file: Path, value: str) -> None:
        if file.name == "cgroup.procs":
            super().write(file, value)


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Path]:
    """A real cgroup below our own; the test is skipped where there is none."""
    own = own_cgroups().get(UNIFIED, tmp_path)
    made = own / f"before-{os.getpid()}-{tmp_path.name}"
    try:
        made.mkdir()
        (made / "cgroup.procs").read_text()
    except OSError as error:
        pytest.skip(f"needs cgroup v2 and the right to create cgroups in it: {error!r}")
    yield made
    CgroupFiles().empty_and_remove(made, own)


@pytest.mark.cgroups
def test_the_kernel_moves_a_process_and_its_child(journal: Journal, before: Path, start_python: StartPython) -> None:
    limiter, files = CgroupV2Limiter(before.parent, journal, WithoutCpu()), CgroupFiles()
    process = start_python("import subprocess as s, time; s.Popen(['sleep', '600']); time.sleep(600)")
    assert eventually(lambda: psutil.Process(process.pid).children())
    pids = [process.pid, *(child.pid for child in psutil.Process(process.pid).children())]
    for pid in pids:
        files.move(pid, before)
    limiter.prepare()
    try:
        limiter.attach("train", process.pid)
        (inside,) = {files.of_process(pid)[UNIFIED] for pid in pids}
        assert inside.parent == before.parent / f"slopewise-{journal.run_id}"
        limiter.release("train")
        assert {files.of_process(pid)[UNIFIED] for pid in pids} == {before}
    finally:
        limiter.close()
    assert not inside.parent.exists()
