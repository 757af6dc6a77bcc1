"""The trainings by scikit-learn, one class each, named like its training.

Each imports its part of scikit-learn itself, because all of it takes a second of a process' start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from slopewise.demo.trainings._data import Minibatches, breast_cancer, digits, standard_library_modules
from slopewise.demo.trainings._network import Doubles, Integers, log_loss

_TREES_PER_STEP = 10
_SHRINKAGE = 0.005
_SUBSAMPLE_RATIO = 0.5

_BATCH_PERIOD_SECONDS = 0.040
_MODULES = 20
_MIN_LINE = 20
_HELD_OUT_LINES = 500


class DigitsMlp:
    """A two-layer perceptron with scikit-learn's own SGD defaults on digits: falls fast, then stays flat.

    The task is easy for the model: the held-out cross entropy falls from ln 10 = 2.3 to below 0.2 in the first fifth of
    the run, and the other four fifths win the last tenth. Most of the CPU that such a job gets is spent after it has
    become good enough.
    """

    samples_per_step = 256
    learnt = ("_batches", "_model")

    def __init__(self, seed: int, _steps: int) -> None:
        from sklearn.neural_network import MLPClassifier

        self._digits = digits()
        rows = len(self._digits.inputs)
        self.steps_per_epoch = rows // self.samples_per_step
        self._batches = Minibatches(np.random.default_rng(seed), rows, self.samples_per_step)
        self._model = MLPClassifier((512, 256), solver="sgd", batch_size=32, random_state=seed)
        self._classes = np.arange(10)

    def step(self) -> float:
        """One call of `partial_fit`: eight updates."""
        rows = next(self._batches)
        self._model.partial_fit(self._digits.inputs[rows], self._digits.labels[rows], classes=self._classes)
        return float(self._model.loss_)

    def evaluate(self) -> float:
        """Cross entropy of the held-out digits; before the first step, that of knowing nothing."""
        labels = self._digits.held_out_labels
        if not hasattr(self._model, "coefs_"):
            return log_loss(np.full((len(labels), 10), 0.1, np.float32), labels)
        return log_loss(self._model.predict_proba(self._digits.held_out_inputs), labels)


class CancerBoosting:
    """Stochastic gradient boosting on tumour records: a smooth exponential fall that levels off.

    Regression trees of depth 3 on half the rows each, for the logistic loss. Each tree takes a fixed small share of
    what is left to explain, so the loss falls by nearly the same fraction per tree (Friedman 2001 and 2002).
    """

    steps_per_epoch = 1
    learnt = ("_rng", "_score", "_held_out_score")

    def __init__(self, seed: int, _steps: int) -> None:
        from sklearn.tree import DecisionTreeRegressor

        self._new_tree = partial(DecisionTreeRegressor, max_depth=3, random_state=0)
        self._rng = np.random.default_rng(seed)
        self._tumours = breast_cancer()
        self._score = np.zeros(len(self._tumours.inputs))
        self._held_out_score = np.zeros(len(self._tumours.held_out_inputs))
        self._rows_per_tree = int(len(self._score) * _SUBSAMPLE_RATIO)
        self.samples_per_step = _TREES_PER_STEP * self._rows_per_tree

    def step(self) -> float:
        """Grow ten trees."""
        for _ in range(_TREES_PER_STEP):
            rows = self._rng.permutation(len(self._score))[: self._rows_per_tree]
            unexplained = self._tumours.targets[rows] - 1 / (1 + np.exp(-self._score[rows]))
            tree = self._new_tree().fit(self._tumours.inputs[rows], unexplained)
            # 4 is the inverse of the logistic loss's largest curvature: the length of a Newton step at score 0
            self._score += 4 * _SHRINKAGE * tree.predict(self._tumours.inputs)
            self._held_out_score += 4 * _SHRINKAGE * tree.predict(self._tumours.held_out_inputs)
        return _logistic_loss(self._score, self._tumours.labels)

    def evaluate(self) -> float:
        """Cross entropy of the held-out tumours; ln 2 = 0.69 is that of knowing nothing."""
        return _logistic_loss(self._held_out_score, self._tumours.held_out_labels)


def _logistic_loss(scores: Doubles, labels: Integers) -> float:
    return float(np.mean(np.logaddexp(0, scores) - labels * scores))


@dataclass(slots=True)
class Stream:
    """Batches that arrive one every `period_seconds`, whether anybody is ready for them or not."""

    period_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _next_at_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_at_seconds = self.clock() + self.period_seconds

    def wait(self) -> None:
        """Return when the next batch has arrived: at once when it was there already."""
        remaining_seconds = self._next_at_seconds - self.clock()
        if remaining_seconds > 0:
            self.sleep(remaining_seconds)
        self._next_at_seconds += self.period_seconds


class StdlibStream:
    """Which module is a line from? Logistic regression on hashed n-grams of lines that arrive at a fixed rate.

    A batch of lines arrives every 40 ms, and learning from one takes about a third of that: the rest of the time the
    job waits for its data, as one fed by sensors, users or a message queue does, and cannot use a whole core. With less
    than a third of one its batches pile up, and once it has CPU again it works without waiting until it has caught up.
    The clock decides when a batch may be read, never what is in it. A job that is resumed finds a stream that begins
    then: what would have arrived while it was away has gone elsewhere.
    """

    samples_per_step = 128
    learnt = ("_batches_read", "_model")

    def __init__(self, seed: int, _steps: int, stream: Stream | None = None) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.linear_model import SGDClassifier

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
        """Wait for a batch and learn from it; the loss is that of the batch before it was learnt.

        The stream starts over when all lines were seen.
        """
        self._stream.wait()
        first = (self._batches_read % self.steps_per_epoch) * self.samples_per_step
        self._batches_read += 1
        rows = self._order[first : first + self.samples_per_step]
        features = self._vectoriser.transform([self._lines[row] for row in rows])
        loss = self._loss(features, self._modules[rows])
        self._model.partial_fit(features, self._modules[rows], classes=np.arange(_MODULES))
        return loss

    def evaluate(self) -> float:
        """Cross entropy of the held-out lines; ln 20 = 3.0 is that of knowing nothing."""
        return self._loss(*self._held_out)

    def _loss(self, features: object, modules: Integers) -> float:
        if not hasattr(self._model, "coef_"):
            return math.log(_MODULES)
        return log_loss(self._model.predict_proba(features), modules)


def _labelled_lines() -> tuple[list[str], Integers]:
    """The longer lines of the twenty largest modules, and for each line the number of its module."""
    largest = sorted(standard_library_modules(), key=len, reverse=True)[:_MODULES]
    labelled = [
        (line.strip(), number)
        for number, text in enumerate(largest)
        for line in text.splitlines()
        if len(line.strip()) >= _MIN_LINE
    ]
    lines, numbers = zip(*labelled, strict=True)
    return list(lines), np.array(numbers)
