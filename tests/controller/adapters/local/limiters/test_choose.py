"""Choosing a limiter by trying, on machines laid out as file trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cgroup_trees import FileTree, ReadOnlyTree, UnifiedTree

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.limiters.cgroup_files import own_cgroups
from slopewise.adapters.local.limiters.choose import choose_limiter
from slopewise.errors import MissingToolError


def machine(tmp_path: Path, *lines: tuple[str, str, str]) -> Path:
    """A /proc/self whose hierarchies are (controllers, filesystem, mount point)."""
    proc_self = tmp_path / "self"
    proc_self.mkdir()
    mountinfo, cgroup = [], []
    for number, (controllers, filesystem, point) in enumerate(lines):
        mountinfo.append(f"{number} 1 0:1 / {point} rw - {filesystem} cgroup rw,{controllers}")
        cgroup.append(f"{number}:{controllers}:/")
    (proc_self / "mountinfo").write_text("\n".join(mountinfo))
    (proc_self / "cgroup").write_text("\n".join(cgroup))
    return proc_self


@pytest.fixture
def v1_machine(tmp_path: Path, file_tree: Any) -> Path:
    points = {name: file_tree.plant(tmp_path / "v1" / name) for name in ("cpu", "cpuacct")}
    return machine(tmp_path, *((name, "cgroup", str(point)) for name, point in points.items()))


def test_v2_is_taken_with_the_cpu_controller(tmp_path: Path, journal: Journal, unified_tree: UnifiedTree) -> None:
    own = unified_tree.plant(tmp_path / "v2")
    limiter = choose_limiter(journal, proc_self=machine(tmp_path, ("", "cgroup2", str(own))), files=unified_tree)
    assert limiter.description == "cgroup v2: quota (cpu.max) and weight (cpu.weight)"
    limiter.close()


def test_v1_is_taken_where_there_is_no_v2(v1_machine: Path, journal: Journal, file_tree: FileTree) -> None:
    limiter = choose_limiter(journal, proc_self=v1_machine, files=file_tree)
    assert limiter.description == "cgroup v1: quota (cpu.cfs_quota_us) and weight (cpu.shares)"
    assert limiter.controls == {"limits", "requests"}
    limiter.close()


def test_without_rights_it_stops_and_continues(
    v1_machine: Path, journal: Journal, read_only_tree: ReadOnlyTree
) -> None:
    limiter = choose_limiter(journal, proc_self=v1_machine, files=read_only_tree)
    assert limiter.description.startswith("stop and continue of process groups, limits only (no cgroups: ")
    assert "cgroup v2: not mounted" in limiter.description
    assert "Permission denied" in limiter.description
    assert limiter.controls == {"limits"}
    limiter.close()


def test_duty_cycling_tries_no_cgroup(v1_machine: Path, journal: Journal, file_tree: FileTree, tmp_path: Path) -> None:
    limiter = choose_limiter(journal, "duty-cycle", proc_self=v1_machine, files=file_tree)
    assert "as asked for" in limiter.description
    assert list((tmp_path / "v1").rglob("slopewise-*")) == []
    limiter.close()


def test_unusable_cgroups_are_an_error(v1_machine: Path, journal: Journal, read_only_tree: ReadOnlyTree) -> None:
    with pytest.raises(MissingToolError, match=r"Permission denied.*run as root, or use --actuator duty-cycle"):
        choose_limiter(journal, "cgroup", proc_self=v1_machine, files=read_only_tree)


def test_controllers_mounted_together_are_found_together(tmp_path: Path) -> None:
    proc_self = machine(tmp_path, ("cpu,cpuacct", "cgroup", "/sys/fs/cgroup/cpu,cpuacct"))
    assert own_cgroups(proc_self) == dict.fromkeys(("cpu", "cpuacct"), Path("/sys/fs/cgroup/cpu,cpuacct"))


def test_our_own_cgroup_is_found_below_the_part_that_a_container_sees(tmp_path: Path) -> None:
    proc_self = tmp_path / "self"
    proc_self.mkdir()
    (proc_self / "cgroup").write_text("4:cpu:/docker/ab/child\n")
    (proc_self / "mountinfo").write_text(
        "1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 /docker/ab /my\\040cgroups/cpu ro - cgroup cgroup rw,cpu\n"
    )
    assert own_cgroups(proc_self) == {"cpu": Path("/my cgroups/cpu/child")}


def test_a_cgroup_outside_of_what_is_mounted_cannot_be_used(tmp_path: Path) -> None:
    proc_self = tmp_path / "self"
    proc_self.mkdir()
    (proc_self / "cgroup").write_text("0::/../other\n")
    (proc_self / "mountinfo").write_text("2 1 0:2 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n")
    assert own_cgroups(proc_self) == {}


def test_without_any_cgroups_it_is_stop_and_continue(tmp_path: Path, journal: Journal) -> None:
    limiter = choose_limiter(journal, proc_self=tmp_path / "no such proc")
    assert "cgroup v1: not mounted" in limiter.description
    limiter.close()
