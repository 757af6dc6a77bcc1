"""The served models by name, their objectives, and the job list of a demo that is about response times.

Objectives are a fixed table, which suits two cores of a 2.6 GHz server. `__main__.py` looks a model up here; the demo's
runner starts the jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slopewise.config.jobs_file import JobSpec
from slopewise.model import Objectives

if TYPE_CHECKING:
    from slopewise.demo.serving.models import Predictor

SERVING_SECONDS = 90.0
"""Of a run of usual length: some fifteen passes of five seconds after the last model has arrived."""

ARRIVALS_RATIO = 0.1
"""The models arrive over the first tenth of the run, so that none is yet to come when the second half begins."""

CATALOGUE_CORES = 2.0
_ONE_THREAD_MILLICORES = 1000
_START = (sys.executable, "-P", "-m", __package__)
"""-P: a folder named `slopewise` in the working directory must not be imported instead."""


@dataclass(frozen=True)
class ServedModel:
    """One model."""

    name: str
    rows_per_request: int
    """Images."""
    objective_seconds: float
    """Of a response, on two cores."""

    def load(self) -> Predictor:
        """Fit it. Importing here keeps the catalogue free of numpy and its threads."""
        from slopewise.demo.serving.models import Predictor

        return Predictor(self.name, self.rows_per_request)


# A request takes 0.20, 0.12, 0.18 and 0.07 CPU-seconds on a 2.6 GHz server, so the objectives need 0.2, 0.6, 0.2 and
# 0.6 cores: all can be kept at once on two, with a fifth to spare. An even split gives each half a core, at which the
# two that need 0.6 take 1.2 times as long as they may, and the others 0.4 times.
_ALL = (
    ServedModel("digits-forest", 15_000, 1.0),
    ServedModel("digits-kernel", 3_000, 0.2),
    ServedModel("digits-neighbours", 3_000, 0.9),
    ServedModel("digits-perceptron", 15_000, 0.12),
)

SERVED_MODELS: Mapping[str, ServedModel] = {model.name: model for model in _ALL}


def serving_jobs(cores: float, seconds: float = SERVING_SECONDS, scale: float = 1.0) -> list[JobSpec]:
    """Models for a machine of so many cores, each with its objective, in order of their names and arrivals.

    All end `seconds`·`scale` after the run's start. On a larger machine each model is there several times, since one
    can use one core at most; what does not divide makes all objectives tighter: five cores get two of each, and their
    objectives are divided by 1.25.
    """
    copies = max(1, int(cores / CATALOGUE_CORES))
    tightness = cores / (CATALOGUE_CORES * copies)
    whole_seconds = seconds * scale
    jobs = []
    for place, model in enumerate(SERVED_MODELS.values()):
        arrive_seconds = ARRIVALS_RATIO * whole_seconds * place / len(SERVED_MODELS)
        jobs += [
            JobSpec(
                name=model.name if copy == 1 else f"{model.name}-{copy}",
                command=[*_START, model.name, "--seconds", f"{whole_seconds - arrive_seconds:g}"],
                arrive_seconds=arrive_seconds,
                max_useful_cpu_millicores=_ONE_THREAD_MILLICORES,
                objectives=Objectives(qoe_seconds=model.objective_seconds / tightness),
            )
            for copy in range(1, copies + 1)
        ]
    return jobs
