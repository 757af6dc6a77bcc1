"""A demo's result as a real one looks: eight jobs on two cores, sampled each second, under two policies.

Made by a small fluid model and no random numbers, so the tests and the pictures are the same each time. It is
not measured: figures that are published come from real runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from slopewise.demo.report.results import Curves, DemoResult, JobResult, RunResult

NODE_CORES = 2.0
INTERVAL_SECONDS = 8


@dataclass(frozen=True)
class Training:
    """A job of the model: `work_core_seconds` of work, and its loss after a fraction of it."""

    name: str
    arrives_seconds: int
    work_core_seconds: float
    loss: Callable[[float], float]
    useful_cores: float = 1.0


TRAININGS = (
    Training("digits-logreg", 0, 15, lambda done: 0.09 + 2.21 * math.exp(-22 * done)),
    Training("stdlib-charlm", 0, 36, lambda done: 1.6 + 2.9 * math.exp(-3.2 * done)),
    Training("wine-mlp", 4, 18, lambda done: 0.05 + 1.05 * math.exp(-7 * done)),
    Training("faces-late-drop", 8, 24, lambda done: 1.9 / (1 + math.exp(14 * (done - 0.62))) + 0.3),
    Training("cancer-overfit", 12, 19, lambda done: 0.3 + 0.4 * math.exp(-12 * done) + 0.22 * done),
    Training("io-bound-words", 15, 11, lambda done: 0.4 + 1.4 * math.exp(-5 * done), useful_cores=0.4),
    Training("diabetes-slow-tail", 20, 23, lambda done: 0.5 + 0.8 / (1 + 9 * done)),
    Training("digits-conv", 24, 25, lambda done: 0.04 + 2.26 * math.exp(-9 * done)),
)


@dataclass
class Life:
    """What the model knows of one job while it runs."""

    training: Training
    job_class: str | None = None
    done_core_seconds: float = 0.0
    finished_seconds: float | None = None
    share_cores: float = NODE_CORES
    curves: Curves = field(default_factory=Curves)
    measured: float | None = None

    @property
    def loss(self) -> float:
        return self.training.loss(min(1.0, self.done_core_seconds / self.training.work_core_seconds))


def sample_result() -> DemoResult:
    """`fair` and `flowcon` over the eight trainings."""
    return DemoResult(
        runs=[run("fair"), run("flowcon")],
        prometheus_version="3.5.0",
        actuator="cgroup v2, weights (cpu.weight)",
        node_cores=NODE_CORES,
        interval_seconds=float(INTERVAL_SECONDS),
    )


def run(policy: str) -> RunResult:
    """One policy over the list, second by second, until the last job has ended."""
    lives = [Life(training) for training in TRAININGS]
    outcomes: list[str] = []
    passes = 0
    for now in range(400):
        active = [life for life in lives if life.training.arrives_seconds <= now and life.finished_seconds is None]
        if not active and now > 30:
            break
        if policy != "fair" and now % INTERVAL_SECONDS == 0 and now:
            passes += 1
            outcomes += decide(active)
        advance(active, now)
    return RunResult(
        policy=policy,
        jobs=[job_result(life) for life in lives],
        curves={life.training.name: life.curves for life in lives},
        passes=passes or 11,
        passes_held=0,
        resizes_applied=outcomes.count("applied"),
        withheld=outcomes.count("withheld"),
        controller_cpu_ratio=0.0041 if policy == "fair" else 0.0063,
        other_cpu_cores=0.03,
    )


def advance(active: list[Life], now: int) -> None:
    """One second of work: cores by share, never more than a job can use, what is left goes to the others."""
    given = dict.fromkeys((life.training.name for life in active), 0.0)
    left = NODE_CORES
    for _ in range(4):
        hungry = [life for life in active if given[life.training.name] < life.training.useful_cores - 1e-9]
        total = sum(life.share_cores for life in hungry)
        for life in hungry:
            room = life.training.useful_cores - given[life.training.name]
            given[life.training.name] += min(room, left * life.share_cores / total)
        left = NODE_CORES - sum(given.values())
    node_share = NODE_CORES / sum(life.share_cores for life in active) if active else 0.0
    for life in active:
        wobble = 1 + 0.04 * math.sin(now * 1.7 + len(life.training.name))
        life.curves.loss.append((now + 0.4, life.loss))
        life.done_core_seconds += given[life.training.name] * wobble
        life.curves.cpu_cores.append((now + 0.5, given[life.training.name] * wobble))
        life.curves.allotted_cores.append((now + 0.5, life.share_cores * node_share))
        if life.done_core_seconds >= life.training.work_core_seconds:
            life.finished_seconds = now + 1.0


def decide(active: list[Life]) -> list[str]:
    """What became of each change: by growth against α = 0.05 a step down NL, WL, CL, or back to NL."""
    outcomes = []
    for life in active:
        before, life.measured = life.measured, life.loss
        span = life.training.loss(0.0) - 0.9 * life.training.loss(1.0)
        growth = None if before is None else (before - life.loss) / span
        down = {None: "NL", "NL": "WL", "WL": "CL", "CL": "CL"}
        new_class = "NL" if growth is None or growth >= 0.05 else down[life.job_class]
        outcomes.append(change(life, new_class, len(active)))
        life.job_class = new_class
    return outcomes


def change(life: Life, new_class: str, jobs: int) -> str:
    """What the model's flowcon does about a class; empty where that changes nothing."""
    wanted = {"NL": NODE_CORES, "WL": life.share_cores, "CL": NODE_CORES / (2 * jobs)}[new_class]
    if wanted == life.share_cores or (new_class == life.job_class and abs(wanted - life.share_cores) < 0.02):
        return ""
    if abs(wanted / life.share_cores - 1) < 0.15:
        return "withheld"
    life.share_cores = wanted
    return "applied"


def job_result(life: Life) -> JobResult:
    """The figures of a job from its curves, as the runner would compute them."""
    losses = [value for _, value in life.curves.loss]
    goal = losses[0] - 0.9 * (losses[0] - min(losses))
    reached = next(at for at, value in life.curves.loss if value <= goal)
    arrived = float(life.training.arrives_seconds)
    return JobResult(
        name=life.training.name,
        arrived_seconds=arrived,
        finished_seconds=life.finished_seconds,
        jct_seconds=life.finished_seconds - arrived if life.finished_seconds else None,
        time_to_90_seconds=reached - arrived,
        steps=round(life.done_core_seconds * 130),
        loss_first=losses[0],
        loss_last=losses[-1],
        cpu_seconds=life.done_core_seconds,
        state="finished",
    )
