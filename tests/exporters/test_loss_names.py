"""Which of the values that a training logs is its loss."""

from __future__ import annotations

import pytest

from slopewise_exporter.loss_names import eval_loss, train_loss


@pytest.mark.parametrize(
    "name", ["loss", "Loss", "train_loss", "train/loss", "Train/Loss", "training loss", "train_loss_step", "loss_epoch"]
)
def test_a_training_loss(name: str) -> None:
    assert train_loss({"accuracy": 0.9, name: 0.5}) == 0.5
    assert eval_loss({name: 0.5}) is None


@pytest.mark.parametrize(
    "name", ["val_loss", "eval_loss", "valid/loss", "validation_loss", "test.loss", "val_loss_epoch"]
)
def test_the_loss_of_an_evaluation(name: str) -> None:
    assert eval_loss({"accuracy": 0.9, name: 0.5}) == 0.5
    assert train_loss({name: 0.5}) is None


@pytest.mark.parametrize("name", ["accuracy", "learning_rate", "loss_scale", "lossless", "epoch", "val_f1"])
def test_what_is_no_loss(name: str) -> None:
    assert train_loss({name: 0.5}) is None
    assert eval_loss({name: 0.5}) is None
