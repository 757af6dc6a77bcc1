"""What the limiters' tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cgroup_trees import FileTree, ReadOnlyTree, StartPython, UnifiedTree
from support.pipes import piped

from slopewise.adapters.local.limiters.cgroup_files import own_cgroups


@pytest.fixture
def file_tree() -> FileTree:
    return FileTree()


@pytest.fixture
def read_only_tree() -> ReadOnlyTree:
    return ReadOnlyTree()


@pytest.fixture
def unified_tree() -> UnifiedTree:
    return UnifiedTree()


@pytest.fixture
def real_cgroups() -> dict[str, Path]:
    """Our own cgroups of v1; the test is skipped where we may not make any below them."""
    own = own_cgroups()
    try:
        for controller in ("cpu", "cpuacct"):
            probe = own[controller] / f"slopewise-probe-{os.getpid()}"
            probe.mkdir()
            probe.rmdir()
    except (OSError, KeyError) as error:
        pytest.skip(f"needs cgroup v1 and the right to create cgroups in it: {error!r}")
    return own


@pytest.fixture
def start_python() -> Iterator[StartPython]:
    """Start Python code as the leader of a session of its own, with a pipe to it; ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        piped(process.stdin).close()
        process.wait()
