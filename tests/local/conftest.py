"""What tests of real runs on this machine share: tiny trainings, a workshop, and a look for leftovers."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support import waiting

from controller.adapters.limiters.mounts import own_cgroups
from controller.adapters.prometheus_server import PrometheusBinaries
from controller.jobs import JobSpec
from controller.session import Session, SessionPlan, Workshop
from controller.settings import TrainingPolicy

TINY = Path(__file__).parents[1] / "support" / "tiny_training.py"
RUN_VARIABLE = "SLOPEWISE_RUN_ID"
INTERVAL_SECONDS = 4.0


def tiny(name: str, cpu_seconds: float, way: str = "", arrive: float = 0.0) -> JobSpec:
    return JobSpec(name, [sys.executable, str(TINY), str(cpu_seconds), way], arrive)


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
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journals of this test alone, so that tests never clean up after one another."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def workshop(prometheus_binaries: PrometheusBinaries, state_home: Path) -> Iterator[Workshop]:
    with Workshop(actuator="auto", announce=lambda _: None) as workshop:
        yield workshop


@contextmanager
def running(workshop: Workshop, policy: TrainingPolicy, *jobs: JobSpec, nodes: int = 1) -> Iterator[Session]:
    """A session whose jobs run in the background while the test does things to it."""
    failures: list[BaseException] = []
    with Session(workshop, SessionPlan(policy, jobs, namespace="test", nodes=nodes)) as session:

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
            thread.join(30)
        assert not failures
        assert not thread.is_alive()


def eventually(condition: Callable[[], object], seconds: float = 40.0) -> None:
    """Wait until `condition` holds; fails when it never does."""
    assert waiting.eventually(condition, seconds), "it never came to that"


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
    """Those of a run that is over, or of this process; other demos may be running beside the tests."""
    found = set()
    for path in paths:
        match = RUN_OF_PID.match(path.name)
        if match and (int(match["pid"]) == os.getpid() or not psutil.pid_exists(int(match["pid"]))):
            found.add(path)
    return found


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
