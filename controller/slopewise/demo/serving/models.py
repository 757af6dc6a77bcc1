"""The classifiers that are served, fitted to the handwritten digits when the process starts.

`catalogue.py` names them; `server.py` asks them. scikit-learn is imported here and nowhere
before, so that a list of the models does not wait a second for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from slopewise.demo.trainings._data import digits
from slopewise.demo.trainings._network import Integers

_SEED = 0

_CLASSIFIERS: Mapping[str, Callable[[], Any]] = {
    "digits-forest": lambda: RandomForestClassifier(n_estimators=200, random_state=_SEED),
    "digits-kernel": SVC,
    "digits-neighbours": lambda: KNeighborsClassifier(algorithm="ball_tree"),
    # A coarse tolerance: 0.5 CPU-seconds and 98 % right; the default one takes four times that and is no better.
    "digits-perceptron": lambda: MLPClassifier((512, 256), tol=0.01, n_iter_no_change=5, random_state=_SEED),
}


class Predictor:
    """A fitted classifier that answers numbered requests; the same number always gets the same answer."""

    def __init__(self, name: str, rows_per_request: int) -> None:
        """`name`: one of the catalogue's. Fitting takes up to half a CPU-second."""
        table = digits()
        self._images, self.labels = table.held_out_inputs, table.held_out_labels
        self._rows = rows_per_request
        self._classifier = _CLASSIFIERS[name]()
        self._classifier.fit(table.inputs, table.labels)

    def rows_of(self, request: int) -> Integers:
        """Which held-out images a request holds: the next ones, again from the first after the last."""
        return np.arange(request * self._rows, (request + 1) * self._rows) % len(self._images)

    def answer(self, request: int) -> list[int]:
        """The digit on each image of the request."""
        predicted: list[int] = self._classifier.predict(self._images[self.rows_of(request)]).tolist()
        return predicted
