"""Adding up what changing processes use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
from support.cgroup_trees import StartPython
from support.waiting import eventually

from slopewise.adapters.local.limiters.process_group import (
    CLOCK_SECONDS,
    ProcessMeter,
    group_members,
    running,
)

WRITES = "import os; f = open({path!r}, 'wb'); f.write(b'x' * 1_000_000); f.flush(); os.fsync(f.fileno())"
BURNS = "import time\nwhile time.process_time() < 0.2: pass\n"


def test_a_collected_childs_time_is_not_counted_twice(start_python: StartPython) -> None:
    shell = start_python(
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-S', '-c', {BURNS!r}]); time.sleep(600)"
    )
    meter = ProcessMeter()
    assert eventually(lambda: len(group_members(shell.pid)) == 2)
    assert eventually(lambda: meter.read(group_members(shell.pid)).cpu_seconds > 0.13)
    assert eventually(lambda: len(group_members(shell.pid)) == 1)
    times = psutil.Process(shell.pid).cpu_times()
    assert times.children_user + times.children_system > 0.13
    assert abs(meter.read(group_members(shell.pid)).cpu_seconds - sum(times[:4])) < 0.1


def has_worked(pid: int) -> bool:
    return cpu_seconds(pid) > 0.15


def test_what_ended_processes_used_stays_on_the_books(start_python: StartPython) -> None:
    meter, totals = ProcessMeter(), []
    for _ in range(3):
        process = start_python(BURNS + "time.sleep(600)")
        assert eventually(partial(has_worked, process.pid))
        totals.append(meter.read([process.pid]).cpu_seconds)
        process.kill()
        process.wait()
        assert meter.read([process.pid]).memory_bytes == 0.0
    assert totals == sorted(totals)
    assert totals[-1] > 0.4


def test_what_a_process_used_before_it_came_among_the_others_is_not_counted(start_python: StartPython) -> None:
    process, meter = start_python(BURNS + "time.sleep(600)"), ProcessMeter()
    assert eventually(partial(has_worked, process.pid))
    assert eventually(lambda: time.time() > psutil.Process(process.pid).create_time() + 2 * CLOCK_SECONDS)
    assert meter.read([]).cpu_seconds == 0.0
    assert meter.read([process.pid]).cpu_seconds == 0.0
    process.kill()
    process.wait()
    assert meter.read([]).cpu_seconds == 0.0


def test_bytes_written_to_storage_are_those_that_the_kernel_counts(start_python: StartPython, tmp_path: Path) -> None:
    done = tmp_path / "done"
    process = start_python(
        WRITES.format(path=str(tmp_path / "file")) + f"; open({str(done)!r}, 'w'); import time; time.sleep(600)"
    )
    assert eventually(done.exists)
    counters = psutil.Process(process.pid).io_counters()
    assert ProcessMeter().read([process.pid]).block_io_bytes == counters.read_bytes + counters.write_bytes


def test_an_ended_process_does_not_run_and_its_time_is_read_until_collected(start_python: StartPython) -> None:
    process = start_python(BURNS)
    assert eventually(lambda: running([process.pid]) == [])
    assert group_members(process.pid) == [process.pid]
    assert ProcessMeter().read([process.pid]).cpu_seconds > 0.15


def test_two_threads_read_one_after_the_other() -> None:
    meter, inside, second_done = ProcessMeter(), threading.Event(), threading.Event()

    def slowly() -> Iterator[int]:
        inside.set()
        overtaken.append(second_done.wait(0.2))
        yield os.getpid()

    def second() -> None:
        meter.read([os.getpid()])
        second_done.set()

    overtaken: list[bool] = []
    first = threading.Thread(target=meter.read, args=(slowly(),))
    first.start()
    assert inside.wait(30)
    other = threading.Thread(target=second)
    other.start()
    first.join()
    other.join()
    assert overtaken == [False]


def cpu_seconds(pid: int) -> float:
    return sum(psutil.Process(pid).cpu_times()[:4])
