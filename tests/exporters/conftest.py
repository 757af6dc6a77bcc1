"""Reporters on free loopback ports, scrapes over real HTTP, and trainings as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.training_fixtures import (
    Fetch,
    InBackground,
    MakeReporter,
    Samples,
    Scrape,
    StandIn,
    StartProcess,
    StartTraining,
)

from slopewise_exporter import Reporter, fit_report
from slopewise_exporter.environment import RANK_VARIABLES
from slopewise_exporter.responses import ResponseReporter
from slopewise_exporter.threads.following import following

CPU_CONTROLLER = Path("/sys/fs/cgroup/cpu")
OURS = ("SLOPEWISE_EXPORTER_", "SLOPEWISE_THREADS", "SLOPEWISE_CHECKPOINT_", "KUBEFLOW_TRAINER_", "OTEL_", "POD_NAME")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever launched these tests must not decide what they see."""
    for name in [*RANK_VARIABLES, *(name for name in os.environ if name.startswith(OURS))]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def threads_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests' own process; a training that a test starts begins with what is the default."""
    monkeypatch.setattr(following, "wanted", 0)
    monkeypatch.setattr(following, "applied", 0)


@pytest.fixture(autouse=True)
def nothing_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the callbacks of an earlier test have logged is logged by those of this one too."""
    monkeypatch.setattr(fit_report.check, "_told", set())


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A CPU cgroup of version 1 below that of this process."""
    own = next((line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":cpu:" in line), None)
    if own is None or not os.access(CPU_CONTROLLER, os.W_OK) or os.geteuid() != 0:
        pytest.skip("cannot create a CPU cgroup of version 1")
    folder = CPU_CONTROLLER / own.split(":")[2].lstrip("/") / f"slopewise-threads-{uuid4().hex}"
    folder.mkdir()
    yield folder
    folder.rmdir()


@pytest.fixture(autouse=True)
def nothing_logged_by_earlier_tests(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A thread that an earlier test left, as one that tries to push for a while, logs none of this one's records."""
    earlier = {thread for thread in threading.enumerate() if thread is not threading.current_thread()}

    def of_this_test(_: object) -> bool:
        return threading.current_thread() not in earlier

    caplog.handler.addFilter(of_this_test)
    yield
    caplog.handler.removeFilter(of_this_test)


@pytest.fixture
def make_reporter() -> Iterator[MakeReporter]:
    """A reporter on a free loopback port that does not linger, unless told otherwise; closed at the end."""
    made: list[Reporter] = []

    def make(**arguments: object) -> Reporter:
        defaults: dict[str, object] = {"port": 0, "address": "127.0.0.1", "linger_seconds": 0}
        made.append(Reporter(**{**defaults, **arguments}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for reporter in made:
        reporter.end(failed=False, linger=False)


@pytest.fixture
def reporter(make_reporter: MakeReporter) -> Reporter:
    return make_reporter()


@pytest.fixture
def responses() -> Iterator[ResponseReporter]:
    """Of a served model, on a free loopback port."""
    one = ResponseReporter(0, address="127.0.0.1")
    yield one
    one.close()


def fetch(port: int | None, accept: str = "text/plain") -> str:
    request = Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def scrape(port: int | None) -> Samples:
    return {
        _series(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(fetch(port))
        for sample in family.samples
    }


def _series(name: str, labels: dict[str, str]) -> str:
    matchers = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{matchers}}}" if matchers else name


@pytest.fixture(name="fetch")
def fetch_fixture() -> Fetch:
    """The text of one scrape of a port."""
    return fetch


@pytest.fixture(name="scrape")
def scrape_fixture() -> Scrape:
    """The samples of one scrape of a port, by series."""
    return scrape


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Puts modules of these names and contents where a framework would be; ours that hold on to them go at the end."""
    ours: set[str] = set()

    def put(adapter: str, **frameworks: dict[str, object]) -> None:
        ours.update({"slopewise_exporter.pytorch", f"slopewise_exporter.{adapter}"})
        for name, contents in frameworks.items():
            module = ModuleType(name)
            module.__dict__.update(contents)
            monkeypatch.setitem(sys.modules, name, module)

    yield put
    for name in ours:
        sys.modules.pop(name, None)


@pytest.fixture
def in_background() -> InBackground:
    """Starts a call on a daemon thread, so that one which never returns fails its test and nothing else."""

    def start(call: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        return thread

    return start


@pytest.fixture
def start_process() -> Iterator[StartProcess]:
    """Starts a command with a free port and its streams in pipes; it and its children are killed at the end."""
    started: list[subprocess.Popen[Any]] = []

    def start(command: Sequence[str], environment: Mapping[str, str], **more: Any) -> subprocess.Popen[Any]:
        free = {"SLOPEWISE_EXPORTER_PORT": "0", "SLOPEWISE_EXPORTER_ADDRESS": "127.0.0.1"}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        variables = {**os.environ, **free, **environment}
        started.append(subprocess.Popen(command, env=variables, start_new_session=True, **options))
        return started[-1]

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its forked children
        process.communicate()


@pytest.fixture
def start_training(start_process: StartProcess, tmp_path: Path) -> StartTraining:
    """Runs a script as a process of its own."""
    numbers = count()

    def start(script: str, **environment: str) -> subprocess.Popen[str]:
        path = tmp_path / f"training_{next(numbers)}.py"
        path.write_text(script)
        variables = {"SLOPEWISE_EXPORTER_LINGER_SECONDS": "120", **environment}
        return start_process([sys.executable, str(path)], variables, text=True)

    return start
