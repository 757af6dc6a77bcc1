"""What the fault tests share: a stage of their own on the cluster, and the cluster's components one at a time."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.cluster import Kubectl, PodShape
from support.fault_stage import Stage
from support.movable import MovableTrainings, shared_volume
from support.moving_stage import MovingStage
from support.trainers import Trainers
from support.waiting import wait_for

from slopewise.crds.schema.definitions import definitions, training_policies
from testbed.histories.collect import collecting
from testbed.histories.events import Event
from testbed.histories.reading import read
from testbed.settings import Settings

_LOCK = Path(tempfile.gettempdir()) / "cluster-fault.lock"


@pytest.fixture(scope="package", autouse=True)
def kinds(kubectl: Kubectl) -> Iterator[None]:
    """Our custom resources are served, as they are defined today, and admit policies of the tests."""
    kubectl.apply(*definitions().values())
    kubectl.apply(training_policies(others=True))
    looks = ("get", "growth,tp,freezes", "-A")
    wait_for("the kinds are served", lambda: kubectl.attempt(*looks), lambda seen: seen.returncode == 0)
    yield
    kubectl.apply(training_policies())  # the definition that other tests expect


@pytest.fixture
def history(testbed_settings: Settings, tmp_path: Path) -> Iterator[Callable[[], list[Event]]]:
    """All that has happened on the cluster since the test began; to be asked for before the namespace is made."""
    folder = tmp_path / "history"
    with collecting(testbed_settings, folder) as collect:

        def read_all() -> list[Event]:
            collect()
            for diary in tmp_path.glob("shared/*/diary"):
                (folder / diary.parent.name).mkdir()
                shutil.copy(diary, folder / diary.parent.name)
            return read(folder)

        yield read_all


@pytest.fixture
def stage(
    kubectl: Kubectl, kubeconfig: Path, prometheus_url: str, namespace: str, idle: PodShape, tmp_path: Path
) -> Iterator[Stage]:
    """The test's namespace, and controllers that see nothing else."""
    with ExitStack() as stack:
        made = Stage(kubectl, kubeconfig, prometheus_url, namespace, idle, tmp_path, stack)
        yield made
        made.clean_up()


@pytest.fixture
def trainers(idle: PodShape) -> Trainers:
    """Pods that report a loss."""
    return Trainers(idle)


@pytest.fixture
def moves(stage: Stage, testbed_settings: Settings) -> Iterator[MovingStage]:
    """The stage with trainings that can be moved between the nodes of the test-bed, which mount the same volume."""
    trainings = MovableTrainings(stage.kubectl, stage.namespace, stage.idle, stage.folder / "shared")
    with shared_volume(trainings):
        yield MovingStage(stage, trainings)


@pytest.fixture
def alone() -> Iterator[None]:
    """No other test disturbs the cluster's components meanwhile."""
    with _locked():
        yield


@contextmanager
def _locked() -> Iterator[None]:
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
