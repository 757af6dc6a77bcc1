"""Small simulated instances with one line each, without a scenario file and without the built-in models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slopewise.config.training_policy import Behaviour, CpuBounds
from slopewise.model import CpuControl
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import Curve, Instance, Physics, PolicyRun, SimJob, SimNode
from slopewise.simulator.world.world import World


@dataclass(frozen=True, slots=True)
class Exponential:
    """Falls from 1 to 0 as e^(-k x) does, scaled."""

    k: float = 8.0

    def at(self, done_ratio: float) -> float:
        return (math.exp(-self.k * done_ratio) - math.exp(-self.k)) / -math.expm1(-self.k)

    def reached(self, improvement_ratio: float) -> float | None:
        if improvement_ratio > 1:
            return None
        return min(1.0, -math.log1p(improvement_ratio * math.expm1(-self.k)) / self.k)


@dataclass(frozen=True, slots=True)
class Straight:
    """Falls evenly from 1 to 0."""

    def at(self, done_ratio: float) -> float:
        return 1.0 - done_ratio

    def reached(self, improvement_ratio: float) -> float | None:
        return improvement_ratio if improvement_ratio <= 1 else None


@dataclass(frozen=True, slots=True)
class Diverging:
    """Falls evenly, and is not a number from a fraction of the work on."""

    at_ratio: float

    def at(self, done_ratio: float) -> float:
        return math.nan if done_ratio >= self.at_ratio else 1.0 - done_ratio

    def reached(self, improvement_ratio: float) -> float | None:
        return improvement_ratio if improvement_ratio < self.at_ratio else None


IDEAL = Physics(contention_ratio=0.0)
"""Nothing is lost to neighbours, so that times can be worked out by hand."""

AT_ONCE = Behaviour(interval_seconds=20.0, cooldown_seconds=0.0, max_step_ratio=100.0, min_change_ratio=0.05)


def a_sim_node(name: str = "n1", cpu: float = 1.0, gib: float = 24.0, speed: float = 1.0, **more: object) -> SimNode:
    return SimNode(name, cpu, int(gib * 2**30), speed, **more)  # type: ignore[arg-type]


def a_sim_job(
    name: str, work: float = 100.0, arrive: float = 0.0, curve: Curve | None = None, **more: object
) -> SimJob:
    """A training; without a curve of its own it falls as e^(-8x)."""
    return SimJob(name, "test", arrive, work, curve or Exponential(), **more)  # type: ignore[arg-type]


def a_served_model(name: str, request_cpu_seconds: float, **more: object) -> SimJob:
    return SimJob(name, "served", 0.0, math.inf, None, request_cpu_seconds=request_cpu_seconds, **more)  # type: ignore[arg-type]


def an_instance(
    jobs: Sequence[SimJob],
    nodes: Sequence[SimNode] = (),
    *,
    physics: Physics = IDEAL,
    seed: int = 1,
    duration: float | None = None,
) -> Instance:
    arrived = tuple(sorted(jobs, key=lambda job: (job.arrive_seconds, job.name)))
    return Instance("test", seed, tuple(nodes) or (a_sim_node(),), arrived, physics, duration)


def a_world(instance: Instance, control: CpuControl = "requests") -> World:
    """The world a moment after its start: what arrives at 0 has been placed."""
    world = World(instance, control)
    pass_to(world, 0.0)
    return world


def pass_to(world: World, seconds: float) -> None:
    """Let time pass until then, or until all jobs have ended; the default scheduler places what arrives meanwhile."""
    scheduler = DefaultScheduler(world, 1)
    while not world.over and world.next_event_seconds <= seconds:
        world.pass_time(world.next_event_seconds)
        scheduler.place_waiting()
    if not world.over:
        world.pass_time(seconds)
        world.settle()


def a_policy_run(name: str = "fair", **more: object) -> PolicyRun:
    settings: dict[str, object] = {"behaviour": AT_ONCE, "cpu": CpuBounds.model_validate({"min": "20m"})}
    return PolicyRun(name, name, **{**settings, **more})  # type: ignore[arg-type]
