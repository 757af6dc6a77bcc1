"""The built-in trainings by name, and the job list that `slopewise demo` runs when it is given none.

Steps are chosen so that each job is 12 to 25 CPU-seconds of work on one core of a 2.6 GHz server, about 135 in all;
they and the hyper-parameters are the same for every policy, and none was chosen by how a policy fares on it.
`__main__.py` looks a training up here, `runner.py` starts the jobs.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slopewise.config.jobs_file import JobSpec
from slopewise.demo.trainings._loop import Learner
from slopewise.errors import UsageError
from slopewise.extras import require

ARRIVAL_INTERVAL_SECONDS = 6.0
ORDER_SEED = 0
_ONE_THREAD_MILLICORES = 1000


@dataclass(frozen=True)
class Training:
    """One built-in training; the file of the same name, with `_` for `-`, holds its `Learner`."""

    name: str
    summary: str
    """One line for the user: the model, the data, the shape of the curve."""
    steps: int
    """The planned steps of a run of usual length."""
    framework: str
    model: str

    def learner(self, seed: int, steps: int) -> Learner:
        """Load the data and build the model. Importing here keeps the catalogue free of numpy and its threads."""
        module = importlib.import_module(f"{__package__}.{self.name.replace('-', '_')}")
        learner: Learner = module.Learner(seed, steps)
        return learner


_ALL = (
    Training("digits-mlp", "perceptron on digits: falls fast, then flat", 1500, "scikit-learn", "mlp"),
    Training("digits-deep-sigmoid", "deep sigmoids on digits: a plateau, then a late drop", 2500, "numpy", "mlp"),
    Training("digits-lr-drop", "stepped learning rate on digits: noisy, then a small drop", 4000, "numpy", "mlp"),
    Training("digits-field", "neural field of a sheet of digits: a slow tail", 1600, "numpy", "neural-field"),
    Training("diabetes-overfit", "too large a network: the held-out loss rises", 3000, "numpy", "mlp"),
    Training("cancer-boosting", "boosted trees: falls smoothly and levels off", 1000, "scikit-learn", "boosting"),
    Training("stdlib-chars", "language model of Python's sources: a slow tail", 3000, "numpy", "n-gram"),
    Training("stdlib-stream", "lines arriving at a fixed rate: waits for data", 1000, "scikit-learn", "logistic"),
)

TRAININGS: Mapping[str, Training] = {training.name: training for training in _ALL}


def find_training(name: str) -> Training:
    """The training of that name; UsageError lists those there are."""
    try:
        return TRAININGS[name]
    except KeyError:
        raise UsageError(f"there is no training {name!r}; choose one of {', '.join(TRAININGS)}.") from None


def require_scikit_learn(what: str = "the built-in trainings") -> None:
    """UsageError when the library and the data sets that `what` (a plural) needs are not installed."""
    require("sklearn", "demo", f"{what} need scikit-learn")


def demo_jobs(
    scale: float = 1.0,
    lengths: Sequence[float] = (1.0,),
    arrival_interval_seconds: float = ARRIVAL_INTERVAL_SECONDS,
) -> list[JobSpec]:
    """One job of each training, in order of arrival; `scale` shrinks both the work and the arrival times.

    The order is a shuffle of the names with a fixed seed, not a choice: the first arrives at 0 s, the eighth at
    42 s, so that there are never eight newcomers at once and never a quiet moment. `lengths`, taken in turn, are what
    the usual numbers of steps are multiplied by.
    """
    order = random.Random(ORDER_SEED).sample(sorted(TRAININGS), len(TRAININGS))  # noqa: S311 - not a secret
    return [
        JobSpec(
            name=name,
            command=_command(name, max(1, round(TRAININGS[name].steps * scale * lengths[place % len(lengths)]))),
            arrive_seconds=place * arrival_interval_seconds * scale,
            max_useful_cpu_millicores=_ONE_THREAD_MILLICORES,
            migratable=True,
        )
        for place, name in enumerate(order)
    ]


def _command(name: str, steps: int) -> list[str]:
    # -P: a folder named `slopewise` in the working directory must not be imported instead
    return [sys.executable, "-P", "-m", __package__, name, "--steps", str(steps)]
