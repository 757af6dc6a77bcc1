"""Validates the `generate` part of a scenario: the number, arrivals, models and objectives of the drawn jobs.

`scenario.py` holds it, `workload.py` draws from it. The two kinds of promise have fixed generators, so that no
scenario invents an easy one: `qoe` (served models) and `deadlines`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from slopewise.config.validation import Document, OneOf
from slopewise.simulator.scenario.builtin_models import CpuSeconds, PositiveRange, Seconds

MAX_JOBS = 100_000

QOE_JOBS = 10
DEADLINE_JOBS = 20
DEADLINE_ARRIVALS: Seconds = (0.0, 300.0)

MIXED = ("vae-pytorch", "vae-tensorflow", "mnist-pytorch", "mnist-tensorflow", "gru", "birnn", "rnn", "dynamic-rnn")
"""What a deadline scenario draws from when it names no models: every built-in training that can use a whole core."""

Weight = Annotated[float, Field(gt=0.0, le=1e6)]


class Bursts(Document):
    """`count` bursts, `everySeconds` apart; the jobs of one arrive within `withinSeconds` of its start."""

    count: int = Field(ge=1, le=MAX_JOBS)
    every_seconds: float = Field(gt=0.0, le=1e9)
    within_seconds: float = Field(0.0, ge=0.0, le=1e9)


class Arrivals(OneOf):
    """Exactly one way in which generated jobs arrive, in seconds from the start of the run."""

    uniform: Seconds | None = Field(None, description="[earliest, latest]")
    every: float | None = Field(None, gt=0.0, le=1e9, description="s between two jobs, the first at 0")
    poisson: float | None = Field(None, gt=0.0, le=1e6, description="jobs a second")
    bursts: Bursts | None = None


class Sizes(Document):
    """How much the works of one model differ, on top of its own range."""

    lognormal: float = Field(gt=0.0, le=4.0, description="sigma; the mean stays what it was, so the load does too")


class QoeGenerator(Document):
    """Served models, each always busy, whose objectives could be met with `totalCores` together."""

    request_cpu_seconds: CpuSeconds = (0.2, 2.0)
    total_cores: float = Field(gt=0.0, le=1e6)


class DeadlineGenerator(Document):
    """Deadlines of arrival + work x `factor`; works scaled so that they are `load` of the CPU until the last one."""

    factor: PositiveRange = (1.5, 4.0)
    load: float = Field(gt=0.0, le=100.0)


class Generate(Document):
    """Jobs drawn from the seed. A fixed generator replaces the keys that are unset beside it."""

    count: int | None = Field(None, ge=1, le=MAX_JOBS)
    arrive_seconds: Arrivals | None = None
    models: dict[str, Weight] = Field(default_factory=dict)
    sizes: Sizes | None = None
    qoe: QoeGenerator | None = None
    deadlines: DeadlineGenerator | None = None

    @model_validator(mode="after")
    def _complete(self) -> Generate:
        if self.qoe and (self.deadlines or self.models or self.sizes):
            raise ValueError("qoe draws served models alone; remove deadlines, models and sizes")
        if not self.qoe and not self.deadlines:
            missing = [key for key, value in self._needed().items() if not value]
            if missing:
                raise ValueError(f"{' and '.join(missing)} must be given; for example {_EXAMPLE}")
        return self

    def _needed(self) -> dict[str, object]:
        return {"count": self.count, "arriveSeconds": self.arrive_seconds, "models": self.models}

    @property
    def jobs_count(self) -> int:
        """How many jobs are drawn."""
        return self.count or (QOE_JOBS if self.qoe else DEADLINE_JOBS)

    @property
    def names(self) -> list[str]:
        """`job-1` and so on in order of arrival, as the papers number them; padded, so that names sort likewise."""
        width = len(str(self.jobs_count))
        return [f"job-{number:0{width}}" for number in range(1, self.jobs_count + 1)]

    @property
    def arrivals(self) -> Arrivals:
        """When they arrive: served models are there from the start."""
        default = Arrivals(uniform=(0.0, 0.0) if self.qoe else DEADLINE_ARRIVALS)
        return self.arrive_seconds or default

    @property
    def mix(self) -> dict[str, float]:
        """Weights of the models."""
        return self.models or dict.fromkeys(MIXED, 1.0)


_EXAMPLE = "{count: 10, arriveSeconds: {uniform: [0, 200]}, models: {gru: 1}}"
