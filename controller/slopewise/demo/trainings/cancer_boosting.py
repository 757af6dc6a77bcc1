"""Stochastic gradient boosting on tumour records: a smooth exponential fall that levels off.

Each tree takes a fixed small share of what is left to explain, so the loss falls by nearly the same fraction
per tree. Small shares generalise better and cost more trees (Friedman 2001 and 2002).
"""

from __future__ import annotations

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from slopewise.demo.trainings._network import Doubles, Integers
from slopewise.demo.trainings._tables import breast_cancer

_TREES_PER_STEP = 10
_SHRINKAGE = 0.005
_SUBSAMPLE_RATIO = 0.5


class Learner:
    """Regression trees of depth 3 on half the rows each, for the logistic loss."""

    steps_per_epoch = 1
    learnt = ("_rng", "_score", "_held_out_score")

    def __init__(self, seed: int, _steps: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._tumours = breast_cancer()
        self._score = np.zeros(len(self._tumours.inputs))
        self._held_out_score = np.zeros(len(self._tumours.held_out_inputs))
        self._rows_per_tree = int(len(self._score) * _SUBSAMPLE_RATIO)
        self.samples_per_step = _TREES_PER_STEP * self._rows_per_tree

    def step(self) -> float:
        """Grow ten trees."""
        for _ in range(_TREES_PER_STEP):
            self._grow_tree()
        return _logistic_loss(self._score, self._tumours.labels)

    def evaluate(self) -> float:
        """Cross entropy of the held-out tumours; ln 2 = 0.69 is that of knowing nothing."""
        return _logistic_loss(self._held_out_score, self._tumours.held_out_labels)

    def _grow_tree(self) -> None:
        rows = self._rng.permutation(len(self._score))[: self._rows_per_tree]
        unexplained = self._tumours.targets[rows] - 1 / (1 + np.exp(-self._score[rows]))
        tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(self._tumours.inputs[rows], unexplained)
        # 4 is the inverse of the logistic loss's largest curvature: the length of a Newton step at score 0
        self._score += 4 * _SHRINKAGE * tree.predict(self._tumours.inputs)
        self._held_out_score += 4 * _SHRINKAGE * tree.predict(self._tumours.held_out_inputs)


def _logistic_loss(scores: Doubles, labels: Integers) -> float:
    return float(np.mean(np.logaddexp(0, scores) - labels * scores))
