"""An upgrade and the way back, each in the middle of a move, with squeezed pods and under a freeze: nothing is lost."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.controller_process import ControllerProcess
from support.fault_stage import QUICK_LEASE_SECONDS, STORED, Stage
from support.moving_stage import THERE, UNBOUNDED, MovingStage, Once, suspends
from support.rendering import ROOT
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION
from testbed.histories.check import contradictions
from testbed.histories.events import Event

FORMER = "a93b335c8f62cb9dca9a04b348b1c4fd438adac1"
"""The version before."""
SQUEEZED = {"cpu": {"min": "50m", "max": "100m"}}


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A checkout of the version before."""
    parts = ("controller", "exporters", "tests/support")
    archive = subprocess.run(["git", "archive", FORMER, *parts], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this checkout has no history: {archive.stderr.decode()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tmp_path / "former", filter="data")
    return tmp_path / "former"


@pytest.mark.faults
@pytest.mark.usefixtures("needs_suspending")
def test_jobs_moves_originals_and_freezes_outlive_an_upgrade_and_the_way_back(
    history: Callable[[], list[Event]], moves: MovingStage, former: Path
) -> None:
    stage = moves.stage
    stage.lease_seconds = QUICK_LEASE_SECONDS

    before = start(stage, former)
    stage.pods("a", "b")
    stage.policy(pods=jobs("DoesNotExist"), resources=SQUEEZED)
    to = {"name": "shift", "parameters": {"to": THERE}}
    stage.policy("shift", policy=to, pods=jobs("Exists"), migration=UNBOUNDED)
    stage.wait_for_limits({"a": 100, "b": 100})
    shift(moves, "first", before)

    freeze = {"metadata": {"name": stage.namespace}, "spec": {"scope": "namespace", "name": stage.namespace}}
    stage.kubectl.apply({"apiVersion": API_VERSION, "kind": "Freeze", **freeze})
    stage.stack.callback(stage.kubectl.run, "delete", "freeze", stage.namespace, "--ignore-not-found")
    now = start(stage)
    moves.wait_until_pinned("first")
    stage.pods("c")
    now.wait_for_passes(2)
    assert stage.limits("a", "b", "c") == {"a": 100, "b": 100, "c": 300}
    stage.kubectl.run("delete", "freeze", stage.namespace)
    stage.wait_for_limits({"a": 100, "b": 100, "c": 100})
    shift(moves, "second", now)

    start(stage, former)
    moves.wait_until_pinned("second")
    for training in ("first", "second"):
        moves.wait_moved(training)
    stage.pods("d")
    stage.wait_for_limits(dict.fromkeys("abcd", 100))
    assert {name: stage.originals()[name] for name in "abcd"} == dict.fromkeys("abcd", STORED)
    stage.delete_policy()
    stage.wait_for_limits(dict.fromkeys("abcd", 300))
    assert contradictions(history(), settled=True) == []


def start(stage: Stage, checkout: Path | None = None) -> ControllerProcess:
    """A replica of this version, or of the one in a checkout, that ends once it has suspended a Job."""
    gateway = stage.gateway()
    started = stage.controller(gateway, checkout=checkout)
    gateway.after = Once(suspends, started.kill)
    return started


def shift(moves: MovingStage, training: str, controller: ControllerProcess) -> None:
    """Start a training, which the policy moves; the controller ends half-way."""
    moves.trainings.start(moves.trainings.job(training))
    wait_for(f"{training} is suspended", controller.is_running, lambda runs: not runs)


def jobs(operator: str) -> dict[str, object]:
    """Selects pods that have a Job, or none."""
    return {"matchExpressions": [{"key": "job-name", "operator": operator}]}
