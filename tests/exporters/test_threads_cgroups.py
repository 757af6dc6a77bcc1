"""The CPU in effect from the kernel's own files: nested cgroups, a container's view of them, and pressure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.cgroups]

ASKS = "from slopewise_exporter.threads.cpu import CpuReader as R, limit_cores; print(limit_cores(), R()._pressure())"
VERSION_1 = (
    "mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/cpu; mount -t cgroup -o cpu none /sys/fs/cgroup/cpu"
)
VERSION_2 = "mount -t cgroup2 none /sys/fs/cgroup"


@pytest.fixture
def unified() -> Iterator[Path]:
    """A cgroup of version 2 below that of this process, with no controller."""
    root = next(filter(Path.is_dir, map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"))))
    own = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), None)
    kernel = (root / "cgroup.controllers").exists() and Path("/proc/pressure/cpu").exists()
    if own is None or not kernel or os.geteuid() != 0:
        pytest.skip("cannot create a cgroup of version 2 with a pressure")
    folder = root / own.removeprefix("0::").lstrip("/") / f"slopewise-threads-{uuid4().hex}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def asked(folder: Path, container: str = "") -> list[str]:
    """The limit in cores and the pressure of a process in a cgroup; with these mounts, as in a container of its own."""
    inside = f'{container}; exec "$@"' if container else 'exec "$@"'
    namespaces = ["unshare", "-m", "-C"] if container else []
    joins = f'echo $$ > {folder}/cgroup.procs; exec "$@"'
    command = [*namespaces, "sh", "-ec", inside, "sh", sys.executable, "-c", ASKS]
    process = subprocess.run(["sh", "-ec", joins, "sh", *command], capture_output=True, text=True, check=False)
    if process.returncode and namespaces and "Operation not permitted" in process.stderr:
        pytest.skip("cannot mount in a namespace of its own")
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


def test_a_quota_above_is_the_limit_where_it_is_the_tighter_one(cgroup: Path) -> None:
    inner = cgroup / "inner"
    inner.mkdir()
    try:
        (cgroup / "cpu.cfs_quota_us").write_text("50000")
        assert asked(inner)[0] == "0.5"
        (inner / "cpu.cfs_quota_us").write_text("20000")
        assert asked(inner)[0] == "0.2"
    finally:
        inner.rmdir()


def test_a_container_of_version_1_sees_its_quota_in_its_root(cgroup: Path) -> None:
    (cgroup / "cpu.cfs_quota_us").write_text("50000")
    assert asked(cgroup, VERSION_1)[0] == "0.5"


def test_a_cgroup_has_a_pressure_of_its_own_seen_from_outside_and_from_its_container(unified: Path) -> None:
    for container in ("", VERSION_2):
        _, pressure = asked(unified, container)
        assert 0 <= float(pressure) < 60
