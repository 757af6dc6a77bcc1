"""Starting commands behind a gate, and ending them with all their children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import eventually, runs

from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.launcher import (
    Command,
    Launcher,
    ManagedProcess,
    single_thread_environment,
    start_unrecorded,
    terminate_all,
)
from slopewise.adapters.local.limiters.duty_cycle import DutyCycleLimiter
from slopewise.errors import ActuationError, SlopewiseError, UsageError

PYTHON = [sys.executable, "-S", "-c"]
ASLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture
def start(journal: Journal, tmp_path: Path) -> Iterator[Callable[..., ManagedProcess]]:
    """Start a command named `job`; ended after the test."""
    started = []

    def start(
        *arguments: str,
        admit: Callable[[int], None] | None = None,
        members: Callable[[], Sequence[int]] = tuple,
        **settings: Any,
    ) -> ManagedProcess:
        command = Command("job", arguments, tmp_path / "job.log", **settings)
        started.append(Launcher(journal).start(command, admit, members))
        return started[-1]

    yield start
    for process in started:
        process.terminate(grace_seconds=0.0)


def test_a_command_leads_its_own_session_and_its_status_is_reported(start: Callable[..., ManagedProcess]) -> None:
    process = start(*PYTHON, "import os, sys; print(os.getsid(0) == os.getpid()); sys.exit(3)")
    assert eventually(lambda: process.poll() is not None)
    assert process.poll() == 3
    assert process.tail() == "True"
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, "it keeps its pid until it is terminated"
    assert process.terminate() == 3
    assert not psutil.pid_exists(process.pid)
    assert process.poll() == 3


def test_nothing_runs_before_admission(start: Callable[..., ManagedProcess], journal: Journal, tmp_path: Path) -> None:
    seen: list[object] = []

    def admit(pid: int) -> None:
        [path] = (tmp_path / "state").glob("*.journal")
        seen.append((psutil.Process(pid).name(), f'"pid":{pid}' in path.read_text()))
        time.sleep(0.1)
        seen.append((tmp_path / "job.log").read_text())

    process = start("echo", "hello", admit=admit)
    assert seen == [("sh", True), ""]
    assert eventually(lambda: process.tail() == "hello")


def test_a_command_that_was_not_admitted_never_runs(start: Callable[..., ManagedProcess], tmp_path: Path) -> None:
    def refuse(pid: int) -> None:
        refused.append(pid)
        raise ActuationError("job: no cgroup.")

    refused: list[int] = []
    with pytest.raises(ActuationError, match="no cgroup"):
        start("touch", str(tmp_path / "trace"), admit=refuse)
    assert not runs(refused[0])
    assert not (tmp_path / "trace").exists()


def test_a_gate_whose_controller_is_killed_never_opens(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from pathlib import Path
from slopewise.adapters.local.crash_journal import Journal
from slopewise.adapters.local.launcher import Command, Launcher
journal = Journal.open(Path({str(tmp_path / "state")!r}), "killed")
def die(pid):
    print(pid, flush=True)
    os.kill(os.getpid(), 9)
Launcher(journal).start(Command("job", ["touch", {str(tmp_path / "trace")!r}], Path({str(tmp_path / "log")!r})), die)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert eventually(lambda: not runs(int(done.stdout)))
    assert not (tmp_path / "trace").exists()


def test_arguments_environment_and_folder_are_passed_on(start: Callable[..., ManagedProcess], tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    code = "import os, sys; print(sys.argv[1:], os.environ['OMP_NUM_THREADS'], os.getcwd(), sys.stdin.read() == '')"
    process = start(
        *PYTHON, code, "two words", "$HOME", "", "--", environment=single_thread_environment(), working_directory=folder
    )
    assert eventually(lambda: process.poll() == 0)
    assert process.tail() == f"['two words', '$HOME', '', '--'] 1 {folder} True"
    script = folder / "train.sh"
    script.write_text("#!/bin/sh\necho trained\n")
    script.chmod(0o755)
    relative = start("./train.sh", working_directory=folder)
    assert eventually(lambda: relative.tail().endswith("trained"))


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (["no-such-program-1"], {}, "job: its command 'no-such-program-1' is not an executable file on the PATH"),
        (["./no-such"], {}, r"job: its command './no-such' is not an executable file in /"),
        ([], {}, "job: its command is empty"),
        (["true"], {"working_directory": Path("/none")}, r"job: its working directory /none does not exist"),
    ],
)
def test_a_command_that_cannot_be_started_is_reported_with_its_job(
    start: Callable[..., ManagedProcess], arguments: list[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        start(*arguments, **settings)


def test_a_log_that_cannot_be_written_is_reported_with_its_job(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(SlopewiseError, match=r"job: its log .* cannot be written \(No such file"):
        Launcher(journal).start(Command("job", ["true"], tmp_path / "none" / "log"))


def test_terminate_ends_children_that_outlived_the_command(start: Callable[..., ManagedProcess]) -> None:
    process = start(
        *PYTHON, f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-S', '-c', {ASLEEP!r}]); print(p.pid)"
    )
    assert eventually(lambda: process.poll() == 0)
    child = int(process.tail())
    assert runs(child)
    assert process.terminate() == 0
    assert not runs(child)


def test_a_command_that_ignores_the_request_is_killed(start: Callable[..., ManagedProcess]) -> None:
    process = start(*PYTHON, STUBBORN)
    assert eventually(lambda: process.tail() == "ready")
    assert process.terminate(grace_seconds=0.1) == -signal.SIGKILL
    polite = start(*PYTHON, "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(3)); time.sleep(600)")
    assert (polite.kill(), polite.poll()) == (-signal.SIGKILL, -signal.SIGKILL)


def left_behind(
    start: Callable[..., ManagedProcess], limiter: DutyCycleLimiter, code: str
) -> tuple[ManagedProcess, int]:
    """A command in the limiter's care that ended, and the process of it that left its group before."""
    launch = f"subprocess.Popen([sys.executable, '-S', '-c', {code!r}], start_new_session=True)"
    process = start(
        *PYTHON,
        f"import subprocess, sys; print({launch}.pid)",
        admit=partial(limiter.admit, "job"),
        members=partial(limiter.members, "job"),
    )
    assert eventually(lambda: process.poll() == 0)
    return process, int(process.tail().split()[0])


@pytest.mark.parametrize("code", [ASLEEP, STUBBORN])
def test_a_process_out_of_its_group_ends(start: Callable[..., ManagedProcess], journal: Journal, code: str) -> None:
    limiter = DutyCycleLimiter("for a test", journal.run_id)
    process, daemon = left_behind(start, limiter, code)
    assert eventually(lambda: code == ASLEEP or "ready" in process.tail())
    assert limiter.members("job") == [process.pid, daemon] or limiter.members("job") == [daemon]
    process.terminate(grace_seconds=0.2)
    assert not runs(daemon)
    limiter.release("job")
    assert limiter.members("job") == []


def test_a_process_of_another_run_or_job_is_no_member(start: Callable[..., ManagedProcess], journal: Journal) -> None:
    limiter = DutyCycleLimiter("for a test", "another-run")
    process, daemon = left_behind(start, limiter, ASLEEP)
    try:
        assert limiter.members("job") == []
        process.terminate(grace_seconds=0.0)
        assert runs(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_all_are_signalled_before_one_is_waited_for(start: Callable[..., ManagedProcess], tmp_path: Path) -> None:
    """The first ends only when the second has been signalled: one after the other, the first would be killed."""
    reported = tmp_path / "reported"
    waits = (
        "import os, signal, sys, time\n"
        "def end(*_):\n"
        f"    while not os.path.exists({str(reported)!r}): time.sleep(0.01)\n"
        "    sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(600)"
    )
    reports = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(reported)!r}, 'w').close(); sys.exit(8)\n"
        "signal.signal(signal.SIGTERM, end); print('ready', flush=True); time.sleep(600)"
    )
    first, second = start(*PYTHON, waits), start(*PYTHON, reports)
    assert eventually(lambda: first.tail().split() == ["ready", "ready"])
    terminate_all([first, second], grace_seconds=5.0)
    assert (first.poll(), second.poll()) == (7, 8)
    terminate_all([first, second])


def test_a_command_without_a_journal_leads_a_session_of_its_own_too(tmp_path: Path) -> None:
    process = start_unrecorded(Command("job", ["sleep", "600"], tmp_path / "log"))
    assert os.getsid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGSTOP)
    assert process.terminate() == -signal.SIGTERM, "a stopped one can still end politely"


def test_only_the_command_is_asked_to_end_and_helpers_are_waited_for(start: Callable[..., ManagedProcess]) -> None:
    wait_for_helper = f"""
import signal, subprocess, sys
helper = subprocess.Popen([sys.executable, '-S', '-c', {ASLEEP!r}])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143 if helper.poll() is None else 1))
print(helper.pid, flush=True)
helper.wait()
"""
    process = start(*PYTHON, wait_for_helper)
    assert eventually(lambda: process.tail().isdecimal())
    os.killpg(process.pid, signal.SIGSTOP)  # as a duty cycle would have it
    process.ask_to_end()
    assert eventually(lambda: process.poll() == 143)
    assert runs(int(process.tail()))
    assert not process.is_over()
    process.signal(signal.SIGTERM)
    assert eventually(process.is_over)
    assert process.terminate() == 143
    process.ask_to_end()  # its pid may be a stranger's by now
    assert process.poll() == 143


def test_the_tail_is_the_end_of_a_long_log(start: Callable[..., ManagedProcess]) -> None:
    process = start(*PYTHON, "for i in range(100_000): print(i)")
    assert eventually(lambda: process.poll() == 0)
    assert process.tail(2) == "99998\n99999"
