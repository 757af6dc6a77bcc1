"""What tests of real runs on this machine share: tiny trainings, a workshop, and a look for leftovers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support.waiting import eventually

from slopewise.adapters.local.limiters.cgroup_files import own_cgroups
from slopewise.adapters.local.prometheus_server import PrometheusBinaries, PrometheusServer
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.local.plan import SessionPlan
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Job, Outcome, PassReport, Resize

TINY = Path(__file__).parents[1] / "support" / "tiny_training.py"
RUN_VARIABLE = "SLOPEWISE_RUN_ID"
INTERVAL_SECONDS = 4.0


STARTED: list[subprocess.Popen[str]] = []
"""The controllers that tests of this process have started."""


def tiny(
    name: str, seconds: float, way: str = "", arrive: float = 0.0, *, busy: bool = False, light: bool = False
) -> JobSpec:
    """A training of so many seconds; a busy one takes them from the CPU, and a light one a tenth of them."""
    command = [sys.executable, str(TINY), str(seconds), way, "busy" if busy else "light" if light else "idle"]
    return JobSpec(name, command, arrive)


def jobs_file(folder: Path, *jobs: JobSpec) -> Path:
    """The jobs as a user writes them."""
    path = folder / "jobs.yaml"
    entries = [
        {"name": job.name, "command": job.command, "arriveSeconds": job.arrive_seconds or 0.5 * place}
        for place, job in enumerate(jobs)
    ]
    path.write_text(yaml.safe_dump(entries))
    return path


def start_python(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Start a Python that is a controller, or runs one."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, **more)
    STARTED.append(process)
    return process


@dataclass
class Running:
    """One `slopewise` that a test has started, and what it has said so far."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=180)

    def stop(self) -> str:
        """In an orderly way; what it has printed."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=180)[0]


def a_policy(name: str = "flowcon", control: str = "limits", **spec: object) -> TrainingPolicy:
    behaviour = {"intervalSeconds": INTERVAL_SECONDS, "cooldownSeconds": 0, "maxStepRatio": 100, "minChangeRatio": 0}
    document = {
        "mode": "Auto",
        "policy": {"name": name},
        "resources": {"control": control, "cpu": {"min": "100m", "max": "64"}},
        "behaviour": behaviour,
        **spec,
    }
    return TrainingPolicy.model_validate({"spec": document})


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Journals of this test alone, so that tests never clean up after one another; no controller outlives a failure."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state"
    for process in STARTED:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=180)


@pytest.fixture
def workshop(prometheus_binaries: PrometheusBinaries, state_home: Path) -> Iterator[Workshop]:
    with Workshop(actuator="auto", announce=lambda _: None) as workshop:
        yield workshop


@pytest.fixture(scope="module")
def shared_workshop(
    prometheus_binaries: PrometheusBinaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    """For a run whose outcome several tests of a module look at; nothing of it is left after them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        before = leftovers()
        with Workshop(actuator="auto", announce=lambda _: None) as workshop:
            yield workshop
        assert leftovers() == before


@contextmanager
def running(
    workshop: Workshop, policy: TrainingPolicy, *jobs: JobSpec, nodes: int = 1, ours: bool = True, **more: Any
) -> Iterator[Session]:
    """A session whose jobs run in the background while the test does things to it; not `ours`: a user's commands.

    `more`: of the plan.
    """
    failures: list[BaseException] = []
    with Session(workshop, SessionPlan(policy, jobs, namespace="test", nodes=nodes, ours=ours, **more)) as session:

        def body() -> None:
            try:
                session.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        try:
            yield session
        finally:
            session.stop()
            thread.join(180)
        assert not failures
        assert not thread.is_alive()


def after_passes(session: Session, condition: Callable[[], object]) -> None:
    """Wait until `condition` holds, with a pass each second: what a window of four shows is not missed."""

    def holds() -> bool:
        if not condition():
            session.loop.trigger()
            time.sleep(1.0)
        return bool(condition())

    assert eventually(holds)


def observed(session: Session) -> list[PassReport]:
    return [report for report in session.all_reports() if report.snapshot is not None]


def observed_jobs(session: Session, name: str) -> list[Job]:
    """A job as each pass saw it."""
    jobs = (job for report in observed(session) for job in (report.snapshot.jobs if report.snapshot else ()))
    return [job for job in jobs if job.name == name]


def states(session: Session) -> dict[str, str]:
    return {name: record.state for name, record in session.supervisor.records.items()}


def reasons(session: Session, name: str) -> list[str]:
    """Why a job has its CPU, pass by pass."""
    decided = [report.decisions.reasons for report in observed(session) if report.decisions]
    return [reason[name] for reason in decided if name in reason]


def resizes(session: Session) -> list[Outcome[Resize]]:
    return [outcome for report in observed(session) for outcome in report.results.of(Resize)]


def own_prometheus(session: Session) -> PrometheusServer:
    """The Prometheus that the session started itself."""
    assert isinstance(session.prometheus, PrometheusServer)
    return session.prometheus


def marked_processes() -> list[psutil.Process]:
    """Processes that a run of this test started, and their children."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        ours = environment.get("XDG_STATE_HOME") == os.environ["XDG_STATE_HOME"]  # this test's alone: see state_home
        if process.pid != os.getpid() and ours and RUN_VARIABLE in environment:
            found.append(process)
    return found


def tiny_trainings() -> list[psutil.Process]:
    """The trainings that are really training: a command behind its gate is still a shell."""
    return [each for each in marked_processes() if str(TINY) in _command_line(each)[:2]]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


RUN_OF_PID = re.compile(r"slopewise-(run-)?\d{8}-\d{6}-(?P<pid>\d+)")


def leaked(paths: Iterable[Path]) -> set[Path]:
    """Those of this process, and of controllers that its tests have started and that are over; others run beside."""
    over = {process.pid for process in STARTED if process.poll() is not None}
    runs = ((path, RUN_OF_PID.match(path.name)) for path in paths)
    return {path for path, run in runs if run and int(run["pid"]) in {os.getpid(), *over}}


def leaked_cgroups() -> set[Path]:
    return leaked(path for folder in set(own_cgroups().values()) for path in folder.glob("slopewise-*"))


def leaked_folders() -> set[Path]:
    return leaked(Path(tempfile.gettempdir()).glob("slopewise-run-*"))


def leftovers() -> tuple[set[Path], set[Path], set[int]]:
    return leaked_cgroups(), leaked_folders(), {process.pid for process in marked_processes()}


@pytest.fixture
def nothing_left(state_home: Path) -> Iterator[None]:
    """No process, cgroup or temporary folder more than before the test."""
    before = leftovers()
    yield
    assert leftovers() == before
