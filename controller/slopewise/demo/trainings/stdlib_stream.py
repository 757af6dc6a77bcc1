"""An online classifier of source lines that arrive at a fixed rate: cannot use a whole core.

A batch of lines arrives every 40 ms, and learning from one takes about a third of that: the rest of the time
the job waits for its data, as one fed by sensors, users or a message queue does. More than about a third of a
core does not make it faster. With less it falls behind, its batches pile up, and once it has CPU again it works
without waiting until it has caught up. The clock decides when a batch may be read, never what is in it. A job that is
resumed finds a stream that begins then: what would have arrived while it was away has gone elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier

from slopewise.demo.trainings._network import Integers, log_loss
from slopewise.demo.trainings._sources import standard_library_modules

_BATCH_PERIOD_SECONDS = 0.040
_MODULES = 20
_MIN_LINE = 20
_HELD_OUT_LINES = 500


class Stream:
    """Batches that arrive one every `period_seconds`, whether anybody is ready for them or not."""

    def __init__(
        self,
        period_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._period_seconds = period_seconds
        self._clock = clock
        self._sleep = sleep
        self._next_at_seconds = clock() + period_seconds

    def wait(self) -> None:
        """Return when the next batch has arrived: at once when it was there already."""
        remaining_seconds = self._next_at_seconds - self._clock()
        if remaining_seconds > 0:
            self._sleep(remaining_seconds)
        self._next_at_seconds += self._period_seconds


class Learner:
    """Which module is a line from? Logistic regression on hashed character n-grams."""

    samples_per_step = 128
    learnt = ("_batches_read", "_model")

    def __init__(self, seed: int, _steps: int, stream: Stream | None = None) -> None:
        lines, modules = _labelled_lines()
        order = np.random.default_rng(0).permutation(len(lines))
        held_out, self._order = order[:_HELD_OUT_LINES], order[_HELD_OUT_LINES:]
        np.random.default_rng(seed).shuffle(self._order)
        self._lines, self._modules = lines, modules
        self.steps_per_epoch = len(self._order) // self.samples_per_step
        self._vectoriser = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=2**14)
        self._model = SGDClassifier(loss="log_loss", alpha=1e-5, random_state=seed)
        self._held_out = self._vectoriser.transform([lines[row] for row in held_out]), modules[held_out]
        self._batches_read = 0
        self._stream = stream or Stream(_BATCH_PERIOD_SECONDS)

    def step(self) -> float:
        """Wait for a batch and learn from it; the loss is that of the batch before it was learnt."""
        self._stream.wait()
        rows = self._next_rows()
        features = self._vectoriser.transform([self._lines[row] for row in rows])
        loss = self._loss(features, self._modules[rows])
        self._model.partial_fit(features, self._modules[rows], classes=np.arange(_MODULES))
        return loss

    def evaluate(self) -> float:
        """Cross entropy of the held-out lines; ln 20 = 3.0 is that of knowing nothing."""
        return self._loss(*self._held_out)

    def _next_rows(self) -> Integers:
        """The next batch of the stream, which starts over when all lines were seen."""
        first = (self._batches_read % self.steps_per_epoch) * self.samples_per_step
        self._batches_read += 1
        return self._order[first : first + self.samples_per_step]

    def _loss(self, features: object, modules: Integers) -> float:
        if not hasattr(self._model, "coef_"):
            return math.log(_MODULES)
        return log_loss(self._model.predict_proba(features), modules)


def _labelled_lines() -> tuple[list[str], Integers]:
    """The longer lines of the twenty largest modules, and for each line the number of its module."""
    largest = sorted(standard_library_modules(), key=lambda module: (-len(module[1]), module[0]))[:_MODULES]
    labelled = [
        (line.strip(), number)
        for number, (_, text) in enumerate(largest)
        for line in text.splitlines()
        if len(line.strip()) >= _MIN_LINE
    ]
    lines, numbers = zip(*labelled, strict=True)
    return list(lines), np.array(numbers)
