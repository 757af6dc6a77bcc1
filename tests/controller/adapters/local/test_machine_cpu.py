"""What everything else on this machine uses: from the kernel's counters, without our own processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from slopewise.adapters.local.machine_cpu import CpuCount, LeftByOthers, MachineCpu, OtherUse, RunningJobs
from slopewise.model import Node

TICKS = os.sysconf("SC_CLK_TCK")
SPIN = [sys.executable, "-c", "while True: pass"]


def line(name: str, user: float = 0.0, idle: float = 0.0, iowait: float = 0.0, steal: float = 0.0) -> str:
    """A line of /proc/stat of so many seconds, with guest time that is part of user."""
    fields = (user, 0, 0, idle, iowait, 0, 0, steal, user, 0)
    return " ".join([name, *(str(round(each * TICKS)) for each in fields)])


def machine(folder: Path, *lines: str, cpus: tuple[int, ...] = (0, 1)) -> MachineCpu:
    path = folder / "stat"
    path.write_text("\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 12345", "ctxt 1"]))
    return MachineCpu(cpus, list, path)


def count(at: float, busy: float, ours: float, counted: float | None = None) -> CpuCount:
    return CpuCount(at, busy, 2 * at if counted is None else counted, ours)


def test_busy_is_what_is_neither_idle_nor_waiting_on_our_own_cores(tmp_path: Path) -> None:
    read = machine(tmp_path, line("cpu0", 3, 5, 1, 1), line("cpu1", 4, 6), line("cpu10", 100)).count()
    assert read is not None
    assert (read.busy_seconds, read.counted_seconds) == (8.0, 20.0), "stolen time is use of others"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (count(0, 100, 50), count(10, 116, 62), OtherUse(0.4)),
        (count(0, 0, 0), count(10, 19.9, 20.0), OtherUse(0.0)),  # the two counts are rounded apart
        (count(0, 0, 0), replace(count(10, 5, 0), sessions_seconds=6.0), OtherUse(0.5, 0.5)),
        (count(0, 0, 0, counted=0), count(10, 0, 9, counted=0), None),  # a sandbox that shows zeros
    ],
)
def test_use_of_others_without_ours(
    tmp_path: Path, before: CpuCount, after: CpuCount, expected: OtherUse | None
) -> None:
    use = machine(tmp_path).use(before, after)
    assert (use and astuple(use)) == (expected and pytest.approx(astuple(expected)))


@pytest.mark.parametrize("text", ["", "cpu0 zero", "cpu0 1 2"])
def test_a_machine_that_shows_no_counters_is_not_known(tmp_path: Path, text: str) -> None:
    cpu = machine(tmp_path, text)
    before, after = cpu.count(), cpu.count()
    assert cpu.use(before, after) is None
    assert MachineCpu((0,), list, tmp_path / "missing").count() is None
    node = Node("local", 2.0, 1)
    assert LeftByOthers({"local": CountedMachine([None])}).of(node) == node, "it keeps all of its CPU"


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SPIN)
    yield process
    process.kill()
    process.wait()


@pytest.mark.alone
@pytest.mark.processes
def test_a_strangers_process_is_seen_and_ours_is_not(busy: subprocess.Popen[bytes]) -> None:
    """The same process counted as ours and as a stranger's: the difference is what it used."""
    cpus = os.sched_getaffinity(0)
    ours, strange = MachineCpu(cpus, lambda: [busy.pid]), MachineCpu(cpus, list)
    first = ours.count(), strange.count()
    time.sleep(3)
    second = ours.count(), strange.count()
    with_it, without_it = strange.use(first[1], second[1]), ours.use(first[0], second[0])
    assert with_it is not None
    assert without_it is not None
    assert with_it.other_cores - without_it.other_cores > 0.2


class CountedMachine(MachineCpu):
    """Two cores that tests count."""

    def __init__(self, counts: list[CpuCount | None]) -> None:
        super().__init__((0, 1))
        self.counts = counts

    def count(self) -> CpuCount | None:
        return self.counts.pop(0)


def test_what_others_leave_is_known_after_five_seconds_and_follows_their_use_of_the_last_minute() -> None:
    """Others use 0.5 cores for 100 s, and nothing from then on; the run uses 1 core."""
    times = [0.0, 3.0, *(20.0 * number for number in range(1, 10))]
    counts = [count(at, at + 0.5 * min(at, 100.0), at) for at in times]
    left = LeftByOthers({"local": CountedMachine([*counts])})
    found = [left.of(Node("local", 2.0, 1)).available_cores for _ in times]
    assert found[:2] == [None, None]
    assert found[2:] == pytest.approx([1.5, 1.5, 1.5, 1.5, 1.5, 1.5 + 1 / 6, 1.5 + 2 / 6, 2.0, 2.0])


@pytest.mark.parametrize(
    ("theirs", "running", "left"),
    [
        (1.0, RunningJobs(1, 1), 0.95),  # of the 1.9 that no program uses; they leave 0.9
        (0.4, RunningJobs(1, 1), 1.5),  # it does not use its part
        (1.9, RunningJobs(1, 3), 0.475),
        (1.9, RunningJobs(0, 1), 0.0),
        (1.9, RunningJobs(1, 0), 0.0),  # has just ended
    ],
)
def test_sessions_share_what_others_leave_as_one_would(theirs: float, running: RunningJobs, left: float) -> None:
    """Other programs use 0.1 of 2 cores, the jobs of another session `theirs`."""
    counts = [replace(count(at, at * (0.1 + theirs), 0.0), sessions_seconds=at * theirs) for at in (0.0, 20.0)]
    shared = LeftByOthers({"local": CountedMachine([*counts])}, lambda: running)
    found = [shared.of(Node("local", 2.0, 1)).available_cores for _ in counts]
    assert found[0] is None
    assert found[1] == pytest.approx(left)
