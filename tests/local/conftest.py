"""What tests of real runs on this machine share: tiny trainings, a workshop, and a look for leftovers."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

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
def running(workshop: Workshop, policy: TrainingPolicy, *jobs: JobSpec) -> Iterator[Session]:
    """A session whose jobs run in the background while the test does things to it."""
    failures: list[BaseException] = []
    with Session(workshop, SessionPlan(policy, jobs, namespace="test")) as session:

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
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def marked_processes() -> list[psutil.Process]:
    """Processes that a run of ours started, and their children."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and RUN_VARIABLE in process.environ():
                found.append(process)
        except psutil.Error:
            continue
    return found


def tiny_trainings() -> list[psutil.Process]:
    """The trainings that are really training: a command behind its gate is still a shell."""
    return [each for each in marked_processes() if str(TINY) in _command_line(each)[:2]]


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def our_cgroups() -> list[Path]:
    return [path for folder in set(own_cgroups().values()) for path in folder.glob("slopewise-*")]


def our_folders() -> list[Path]:
    import tempfile

    return list(Path(tempfile.gettempdir()).glob("slopewise-run-*"))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process, cgroup or temporary folder more than before the test."""
    before = set(our_cgroups()), set(our_folders()), {p.pid for p in marked_processes()}
    yield
    after = set(our_cgroups()), set(our_folders()), {p.pid for p in marked_processes()}
    assert after == before
