"""The names of losses in logs: which of the logged values is the training loss, and which is that of an evaluation.

    train_loss({"epoch": 3, "train/loss": 0.7}) == 0.7

Scores (accuracy, F1) are no losses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slopewise_exporter.logs.names import EVALUATION_LOSSES, TRAIN_LOSSES

_TRAIN = frozenset(TRAIN_LOSSES)
_EVAL = frozenset(EVALUATION_LOSSES)
_SEPARATORS = re.compile(r"[\s/.:-]+")


def is_train_loss(name: str) -> bool:
    """Whether a value of this name is the training loss."""
    return _plain(name) in _TRAIN


def is_eval_loss(name: str) -> bool:
    """Whether a value of this name is the loss of an evaluation."""
    return _plain(name) in _EVAL


def train_loss(values: Mapping[str, Any]) -> Any | None:
    """The training loss among the values of a log entry; None: it has none."""
    return next((value for name, value in values.items() if is_train_loss(str(name))), None)


def eval_loss(values: Mapping[str, Any]) -> Any | None:
    """The evaluation's loss among the values of a log entry; None: it has none."""
    return next((value for name, value in values.items() if is_eval_loss(str(name))), None)


def _plain(name: str) -> str:
    # `Train/Loss`, `train.loss`, `train loss` are all `train_loss`; Lightning adds `_step` and `_epoch`.
    plain = _SEPARATORS.sub("_", name.strip().lower())
    return plain.removesuffix("_step").removesuffix("_epoch")
