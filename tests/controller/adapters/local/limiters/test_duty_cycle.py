"""Stop and continue: the plan of signals, and the real helper over real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import psutil
import pytest
from support.cgroup_trees import StartPython
from support.waiting import eventually

from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter, parallelism_cores
from slopewise.adapters.local.limiters.duty_cycle_helper import Event, plan
from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.errors import ActuationError

ASLEEP = "import time; time.sleep(600)"
A, B, C = (ProcessIdentity(pid, 0) for pid in (11, 12, 13))


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def helper_of(pid: int) -> psutil.Process | None:
    helpers = [child for child in psutil.Process(pid).children() if "duty_cycle_helper" in " ".join(child.cmdline())]
    return helpers[0] if helpers else None


def stays_running(pid: int) -> bool:
    """Never seen stopped over three periods."""
    for _ in range(60):
        if is_stopped(pid):
            return False
        time.sleep(0.005)
    return True


def is_running(pid: int) -> bool:
    return not is_stopped(pid)


def the_helper_of(pid: int) -> psutil.Process:
    """Right after its start it still has the command line of the process that starts it."""
    assert eventually(lambda: helper_of(pid) is not None)
    helper = helper_of(pid)
    assert helper is not None
    return helper


@pytest.fixture
def limiter() -> Iterator[DutyCycleLimiter]:
    limiter = DutyCycleLimiter("for a test", "run-1")
    yield limiter
    limiter.close()


def test_groups_take_turns_within_a_period() -> None:
    assert plan({A: 0.5, B: 0.25}) == [
        Event(0.0, A, signal.SIGCONT),
        Event(0.5, A, signal.SIGSTOP),
        Event(0.5, B, signal.SIGCONT),
        Event(0.75, B, signal.SIGSTOP),
    ]
    events = plan({A: 0.5, B: 0.25, C: 0.5})
    assert [event for event in events if event.group == C] == [
        Event(0.25, C, signal.SIGSTOP),
        Event(0.75, C, signal.SIGCONT),
    ], "a turn that does not fit goes on at the start of the period"


def test_a_job_is_known_by_the_threads_that_it_uses_while_it_runs_and_one_that_waits_counts_as_one() -> None:
    cores = len(os.sched_getaffinity(0))
    assert parallelism_cores(cpu_seconds=0.6 * cores, seconds=2.0, fraction=0.3) == pytest.approx(cores)
    assert parallelism_cores(cpu_seconds=0.1, seconds=2.0, fraction=0.5) == 1.0


def test_a_limited_job_is_stopped_and_continued(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    pid = start_python(ASLEEP).pid
    limiter.admit("job", pid)
    limiter.set_limit("job", 500)
    for _ in range(2):
        assert eventually(lambda: is_stopped(pid))
        assert eventually(lambda: not is_stopped(pid))
    assert limiter.read("job").limit_millicores == 500
    assert the_helper_of(os.getpid()).environ()["SLOPEWISE_RUN_ID"] == "run-1"


def test_a_job_without_a_limit_needs_no_helper(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    limiter.admit("job", start_python(ASLEEP).pid)
    limiter.set_limit("job", 1000)
    assert helper_of(os.getpid()) is None
    assert limiter.read("job").limit_millicores == 1000


def test_restore_release_and_close_let_a_job_run(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    pids = [start_python(ASLEEP).pid for _ in range(3)]
    for pid in pids:
        limiter.admit(str(pid), pid)
        limiter.set_limit(str(pid), 100)
        assert eventually(partial(is_stopped, pid))
    limiter.restore(str(pids[0]), UNLIMITED)
    limiter.release(str(pids[1]))
    for pid in pids[:2]:
        assert eventually(partial(is_running, pid))
        assert stays_running(pid)
    limiter.close()
    assert helper_of(os.getpid()) is None
    assert stays_running(pids[2])


def test_children_are_stopped_with_their_group(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {ASLEEP!r}])"
    pid = start_python(code).pid
    assert eventually(lambda: psutil.Process(pid).children())
    child = psutil.Process(pid).children()[0].pid
    limiter.admit("job", pid)
    limiter.set_limit("job", 100)
    assert eventually(lambda: is_stopped(child))


def test_a_killed_helper_is_replaced_at_the_next_look(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    pid = start_python(ASLEEP).pid
    limiter.admit("job", pid)
    limiter.set_limit("job", 100)
    helper = the_helper_of(os.getpid())
    helper.kill()
    assert eventually(lambda: helper.status() == psutil.STATUS_ZOMBIE)
    limiter.usage("job")
    assert the_helper_of(os.getpid()) != helper
    assert eventually(lambda: is_stopped(pid))


def test_the_helper_outlives_a_ctrl_c(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    pid = start_python(ASLEEP).pid
    limiter.admit("job", pid)
    limiter.set_limit("job", 500)  # half of each period, so that a look finds it running soon
    assert eventually(lambda: is_stopped(pid))
    helper = the_helper_of(os.getpid())
    helper.send_signal(signal.SIGINT)
    assert eventually(lambda: not is_stopped(pid))
    assert eventually(lambda: is_stopped(pid))
    assert helper.is_running()


CONTROLLER = """
import sys, time
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
limiter = DutyCycleLimiter("for a test")
limiter.admit("job", int(sys.argv[1]))
limiter.set_limit("job", 50)
time.sleep(600)
"""


def test_a_killed_controller_leaves_no_job_stopped_and_no_helper(start_python: StartPython) -> None:
    pid = start_python(ASLEEP).pid
    with subprocess.Popen([sys.executable, "-c", CONTROLLER, str(pid)]) as controller:
        try:
            assert eventually(lambda: is_stopped(pid))
            helper = the_helper_of(controller.pid)
        finally:
            controller.kill()
    assert eventually(lambda: not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE)
    assert stays_running(pid)


def test_a_stranger_with_a_reused_pid_is_never_stopped(start_python: StartPython) -> None:
    pid = start_python(ASLEEP).pid
    former_owner = ProcessIdentity(pid, identify(pid).started_ticks - 1)
    assert former_owner.signal_group(signal.SIGSTOP) is False
    assert stays_running(pid)
    assert identify(pid).signal_group(signal.SIGSTOP) is True
    assert eventually(lambda: is_stopped(pid))


def test_a_process_in_our_own_group_is_not_admitted(limiter: DutyCycleLimiter) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ASLEEP]) as process:
        try:
            with pytest.raises(ActuationError, match="leads no group of its own"):
                limiter.admit("job", process.pid)
        finally:
            process.kill()


def test_a_request_is_refused_with_the_remedy(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    limiter.admit("job", start_python(ASLEEP).pid)
    with pytest.raises(ActuationError, match=r"job: a request of 250m needs cgroups.*use control: limits"):
        limiter.set_request("job", 250)


def test_an_ended_job_is_reported_and_its_restore_works(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    process = start_python("pass")
    limiter.admit("job", process.pid)
    process.wait()
    with pytest.raises(ActuationError, match="job: no such job"):
        limiter.set_limit("job", 250)
    limiter.restore("job", UNLIMITED)
    assert limiter.usage("job").cpu_seconds_total == 0.0


def test_a_job_that_was_just_admitted_is_seen_at_once(limiter: DutyCycleLimiter, start_python: StartPython) -> None:
    for name in ("first", "second"):
        limiter.admit(name, start_python(ASLEEP).pid)
        assert (limiter.usage(name).memory_bytes or 0) > 0
