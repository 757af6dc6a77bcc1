"""A policy document's passes over a simulated instance, written to a decision record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.instances import a_sim_job, a_sim_node, an_instance

from slopewise.config.pass_settings import pass_settings, policy_of, reads_points
from slopewise.config.training_policy import TrainingPolicy, as_json
from slopewise.decision_record.files import BoundedFile
from slopewise.decision_record.recorder import Recorder
from slopewise.feedback.pass_settings import PassSettings
from slopewise.model import NO_FREEZES, Freezes, Observation, PassReport
from slopewise.policies import PolicyProtocol
from slopewise.ports import Observer, Ports
from slopewise.reconcile import reconcile
from slopewise.simulator import engine
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import Instance
from slopewise.simulator.world.world import World

MEBIBYTE = 2**20


def a_document(policy: str, interval_seconds: float = 20.0, **spec: Any) -> TrainingPolicy:
    return TrainingPolicy.model_validate(
        {
            "metadata": {"name": "recorded"},
            "spec": {"policy": {"name": policy}, "behaviour": {"intervalSeconds": interval_seconds}, "mode": "Auto"}
            | spec,
        }
    )


def three_jobs() -> Instance:
    """One that ends early, one with a plan, and one that arrives later."""
    jobs = [a_sim_job("short", 60.0), a_sim_job("long", 300.0, steps_planned=1000), a_sim_job("late", 200.0, 60.0)]
    return an_instance(jobs, [a_sim_node()], seed=5)


@dataclass(frozen=True)
class Recorded:
    """A run's decision record, and the reports of its passes."""

    path: Path
    reports: list[PassReport]


@dataclass
class Freezing:
    """An Observer that adds freezes."""

    observer: Observer
    freezes: Freezes

    def observe(self) -> Observation:
        return Observation(replace(self.observer.observe().snapshot, freezes=self.freezes))


def record_run(
    monkeypatch: pytest.MonkeyPatch,
    instance: Instance,
    document: TrainingPolicy,
    path: Path,
    max_bytes: int = 64 * MEBIBYTE,
    freezes: Freezes = NO_FREEZES,
) -> list[PassReport]:
    """Drive the instance to its end under the document; every pass is in the record at `path`."""
    recorder = Recorder(BoundedFile(path, max_bytes), as_json(document))
    reports: list[PassReport] = []

    def recorded(ports: Ports, policy: PolicyProtocol, settings: PassSettings) -> PassReport:
        ports = replace(ports, observer=Freezing(ports.observer, freezes))
        report = reconcile(recorder.ports(ports), policy, settings)
        recorder(report)
        reports.append(report)
        return report

    monkeypatch.setattr(engine, "reconcile", recorded)
    world = World(instance, document.spec.resources.control)
    settings, points = pass_settings(document), reads_points(document.spec)
    controller = engine.Controller(world, policy_of(document), settings, points=points)
    engine.drive(world, DefaultScheduler(world, instance.seed), controller)
    recorder.close()
    return reports
