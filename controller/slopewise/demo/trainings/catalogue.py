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
from slopewise.extras import require

ARRIVAL_INTERVAL_SECONDS = 6.0
ORDER_SEED = 0
_ONE_THREAD_MILLICORES = 1000


@dataclass(frozen=True)
class Training:
    """One built-in training; the class of the same name, in the file of its framework, is its `Learner`."""

    name: str
    steps: int
    """The planned steps of a run of usual length."""
    framework: str
    model: str

    def learner(self, seed: int, steps: int) -> Learner:
        """Load the data and build the model. Importing here keeps the catalogue free of numpy and its threads."""
        file = "numpy_trainings" if self.framework == "numpy" else "sklearn_trainings"
        module = importlib.import_module(f"{__package__}.{file}")
        learner: Learner = getattr(module, self.name.title().replace("-", ""))(seed, steps)
        return learner


_ALL = (
    Training("digits-mlp", 1500, "scikit-learn", "mlp"),  # perceptron on digits: falls fast, then flat
    Training("digits-deep-sigmoid", 2500, "numpy", "mlp"),  # deep sigmoids on digits: a plateau, then a late drop
    Training("digits-lr-drop", 4000, "numpy", "mlp"),  # stepped learning rate on digits: noisy, then a small drop
    Training("digits-field", 1600, "numpy", "neural-field"),  # neural field of a sheet of digits: a slow tail
    Training("diabetes-overfit", 3000, "numpy", "mlp"),  # too large a network: the held-out loss rises
    Training("cancer-boosting", 1000, "scikit-learn", "boosting"),  # boosted trees: falls smoothly and levels off
    Training("stdlib-chars", 3000, "numpy", "n-gram"),  # language model of Python's sources: a slow tail
    Training("stdlib-stream", 1000, "scikit-learn", "logistic"),  # lines arriving at a fixed rate: waits for data
)

TRAININGS: Mapping[str, Training] = {training.name: training for training in _ALL}


def require_scikit_learn(what: str = "the built-in trainings") -> None:
    """UsageError when the library and the data sets that `what` (a plural) needs are not installed."""
    require("sklearn", "demo", f"{what} need scikit-learn")


def demo_jobs(
    scale: float = 1.0, lengths: Sequence[float] = (1.0,), arrival_interval_seconds: float = ARRIVAL_INTERVAL_SECONDS
) -> list[JobSpec]:
    """One job of each training, in order of arrival; `scale` shrinks both the work and the arrival times.

    The order is a shuffle of the names with a fixed seed, not a choice: the first arrives at 0 s, the eighth at
    42 s, so that there are never eight newcomers at once and never a quiet moment. `lengths`, taken in turn, are what
    the usual numbers of steps are multiplied by.
    """

    def steps(name: str, place: int) -> str:
        return str(max(1, round(TRAININGS[name].steps * scale * lengths[place % len(lengths)])))

    order = random.Random(ORDER_SEED).sample(sorted(TRAININGS), len(TRAININGS))  # noqa: S311 - not a secret
    return [
        JobSpec(
            name=name,
            # -P: a folder named `slopewise` in the working directory must not be imported instead
            command=[sys.executable, "-P", "-m", __package__, name, "--steps", steps(name, place)],
            arrive_seconds=place * arrival_interval_seconds * scale,
            max_useful_cpu_millicores=_ONE_THREAD_MILLICORES,
            migratable=True,
        )
        for place, name in enumerate(order)
    ]
