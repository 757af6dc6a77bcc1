"""Adding up what changing processes use."""

from __future__ import annotations

from pathlib import Path

import psutil

from controller.adapters.limiters.process_group import ProcessMeter, group_members, running

WRITES = "import os; f = open({path!r}, 'wb'); f.write(b'x' * 1_000_000); f.flush(); os.fsync(f.fileno())"
BURNS = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_a_collected_childs_time_is_not_counted_twice(start_python, eventually):
    shell = start_python(
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-S', '-c', {BURNS!r}]); time.sleep(600)"
    )
    meter = ProcessMeter()
    assert eventually(lambda: len(group_members(shell.pid)) == 2)
    assert eventually(lambda: meter.read(group_members(shell.pid)).cpu_seconds > 0.2)
    assert eventually(lambda: len(group_members(shell.pid)) == 1)
    times = psutil.Process(shell.pid).cpu_times()
    assert times.children_user + times.children_system > 0.2
    assert abs(meter.read(group_members(shell.pid)).cpu_seconds - sum(times[:4])) < 0.1


def test_what_ended_processes_used_stays_on_the_books(start_python, eventually):
    process = start_python(BURNS + "time.sleep(600)")
    meter = ProcessMeter()
    assert eventually(lambda: meter.read([process.pid]).cpu_seconds > 0.25)
    before = meter.read([process.pid])
    process.kill()
    process.wait()
    after = meter.read([process.pid])
    assert after.cpu_seconds >= before.cpu_seconds
    assert after.memory_bytes == 0.0


def test_totals_never_go_back_over_several_generations(start_python, eventually):
    meter, totals = ProcessMeter(), []
    for _ in range(3):
        process = start_python(BURNS + "time.sleep(600)")
        assert eventually(lambda pid=process.pid: cpu_seconds(pid) > 0.25)
        totals.append(meter.read([process.pid]).cpu_seconds)
        process.kill()
        process.wait()
    assert totals == sorted(totals)
    assert totals[-1] > 0.6


def test_bytes_written_to_storage_are_those_that_the_kernel_counts(start_python, tmp_path: Path, eventually):
    done = tmp_path / "done"
    process = start_python(
        WRITES.format(path=str(tmp_path / "file")) + f"; open({str(done)!r}, 'w'); import time; time.sleep(600)"
    )
    assert eventually(done.exists)
    counters = psutil.Process(process.pid).io_counters()
    assert ProcessMeter().read([process.pid]).block_io_bytes == counters.read_bytes + counters.write_bytes


def test_an_ended_process_does_not_run_but_its_time_can_be_read_until_it_is_collected(start_python, eventually):
    process = start_python(BURNS)
    assert eventually(lambda: running([process.pid]) == [])
    assert group_members(process.pid) == [process.pid]
    assert ProcessMeter().read([process.pid]).cpu_seconds > 0.25


def cpu_seconds(pid: int) -> float:
    return sum(psutil.Process(pid).cpu_times()[:4])
