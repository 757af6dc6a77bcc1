"""Which running processes may become jobs, what is found out about them, and that nothing signals one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from support.exporters import Exporters
from support.limiting import FakeLimiter
from support.waiting import eventually
from support.worlds import FakeClock

from slopewise.adapters.local.attached import (
    ENDED,
    NO_METRICS,
    RUNS_ON,
    AttachedProcess,
    attachable,
    command_of,
    metrics_port,
)
from slopewise.adapters.local.job_processes import JobProcesses
from slopewise.adapters.local.job_record import CANCELLED
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.adapters.local.nodes import LocalNode
from slopewise.adapters.local.supervisor import Supervisor
from slopewise.config.jobs_file import JobSpec
from slopewise.errors import UsageError
from slopewise.model import MissingEvaluation, Node

SLEEPS = ["-S", "-c", "import time; time.sleep(600)"]
DAEMON = f"import os, subprocess, sys; print(subprocess.Popen([sys.executable, *{SLEEPS}], stdout=2).pid)"
"""Ends at once, so that what it has started is no child of this process."""


@pytest.fixture
def training() -> Iterator[psutil.Process]:
    """A process that this one has not started."""
    done = subprocess.run([sys.executable, "-S", "-c", DAEMON], stdout=subprocess.PIPE, text=True, check=True)
    process = psutil.Process(int(done.stdout))
    yield process
    if process.is_running():
        process.kill()


def refused(pid: int) -> str:
    with pytest.raises(UsageError) as caught:
        attachable(pid)
    return str(caught.value)


class TestAttachable:
    def test_none_that_is_not_there_or_is_of_the_session(self) -> None:
        pid = os.getpid()
        assert refused(2**22 + 1) == f"there is no process {2**22 + 1}; `ps -u` lists those of this user."
        assert "there is no process 0" in refused(0)
        assert f"there is no process {2**70}" in refused(2**70)
        assert (metrics_port(-5), command_of(-5)) == (None, ["process--5"])
        assert refused(pid) == f"process {pid} is this session, or has started it; give the process of a training."
        assert "is this session, or has started it" in refused(os.getppid())
        child = subprocess.Popen([sys.executable, *SLEEPS])
        try:
            assert f"process {child.pid} was started by this session" in refused(child.pid)
        finally:
            child.kill()
            child.wait()

    def test_a_thread_is_no_process(self, training: psutil.Process) -> None:
        other = next((each.id for each in psutil.Process().threads() if each.id != os.getpid()), None)
        if other is None:
            thread = Thread(target=training.wait, kwargs={"timeout": 600}, daemon=True)
            thread.start()
            other = thread.native_id
        assert f"there is no process {other}" in refused(other or 0)

    def test_none_of_others_or_of_the_kernel(self, training: psutil.Process, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: training.uids().real + 1)
        assert f"process {training.pid} is that of {training.username()}" in refused(training.pid)
        monkeypatch.undo()
        for name, nothing in (("cmdline", []), ("exe", "")):
            monkeypatch.setattr(psutil.Process, name, lambda _, nothing=nothing: nothing)
        assert f"process {training.pid} is a thread of the kernel" in refused(training.pid)

    def test_where_the_machine_has_no_cgroups_the_reason_is_said(self) -> None:
        with pytest.raises(UsageError, match=r"through cgroups, and here is only stop and continue .*not mounted"):
            DutyCycleLimiter("no cgroups: cgroup v2: not mounted").attach("train", 4711)


@contextmanager
def served(text: str) -> Iterator[int]:
    """The port of a server with these metrics."""
    with closing(Exporters()) as server:
        server.pages["/metrics"] = text
        yield int(server.address.rpartition(":")[2])


def test_the_metrics_of_a_training_are_found_among_the_ports_of_a_process(training: psutil.Process) -> None:
    assert (metrics_port(training.pid), command_of(training.pid)[1:]) == (None, SLEEPS)
    assert command_of(2**22 + 1) == [f"process-{2**22 + 1}"], "it is gone"
    loss = "# TYPE x gauge\ntraining_loss 1\n"
    with served("<html>"), served("# TYPE go_gc gauge\n"), served(loss) as port:
        assert metrics_port(os.getpid()) == port


def a_supervisor(folder: Path, limiter: FakeLimiter) -> Supervisor:
    nodes = [LocalNode(Node("local", 2.0, 2**30), frozenset({0}))]
    none: Any = None
    processes = JobProcesses(none, limiter, folder, FakeClock(), nodes, ours=False)
    made = Supervisor([], "run", processes, on_event=lambda: None)
    made.start()
    return made


class TestAttachedJob:
    def test_without_metrics_it_is_no_target_but_has_a_share(self, tmp_path: Path, training: psutil.Process) -> None:
        supervisor = a_supervisor(tmp_path, FakeLimiter())
        supervisor.attach(JobSpec("train", ["python"], 0.0), identify(training.pid))
        supervisor.attach(JobSpec("seen", ["python"], 0.0, port=9464), identify(training.pid))
        assert [group["labels"]["pod"] for group in supervisor.targets()] == ["seen"]
        causes = {job.name: job.missing_evaluation for job in supervisor.running()}
        assert causes == {"train": MissingEvaluation("NoTarget", NO_METRICS), "seen": None}

    def test_it_is_let_go_when_it_is_cancelled_and_runs_on(self, tmp_path: Path, training: psutil.Process) -> None:
        limiter = FakeLimiter()
        supervisor = a_supervisor(tmp_path, limiter)
        supervisor.attach(JobSpec("train", ["python"], 0.0, port=9464), identify(training.pid))
        assert (list(limiter.allocations), len(supervisor.targets())) == (["train"], 1)
        supervisor.cancel("train")
        assert supervisor.targets() == []
        record = supervisor.records["train"]
        assert (record.state, record.last_output_lines, list(limiter.allocations)) == (CANCELLED, RUNS_ON, [])
        assert training.status() != psutil.STATUS_ZOMBIE

    def test_its_end_is_seen_and_how_is_not_known(self, tmp_path: Path, training: psutil.Process) -> None:
        limiter = FakeLimiter()
        supervisor = a_supervisor(tmp_path, limiter)
        supervisor.attach(JobSpec("train", ["python"], 0.0), identify(training.pid))
        supervisor.poll()
        assert supervisor.records["train"].state == "running"
        training.kill()

        def ended() -> bool:
            supervisor.poll()
            return supervisor.records["train"].state == "ended"

        assert eventually(ended)
        assert (supervisor.records["train"].last_output_lines, limiter.allocations) == (ENDED, {})

    def test_nothing_signals_it(self, training: psutil.Process) -> None:
        process = AttachedProcess("train", identify(training.pid), lambda: [training.pid])
        process.signal(signal.SIGKILL)
        process.ask_to_end()
        assert (process.terminate(0.0), process.kill(), process.has_ended()) == (None, None, False)
        pid, ticks = identify(training.pid)
        assert AttachedProcess("train", ProcessIdentity(pid, ticks - 1), tuple).has_ended(), "another with its pid"
