# ruff: noqa: E501 - a line of a log and what is found in it are one line each
"""Losses that are not called loss, lines of libraries with a form of their own, and ordinary output with no loss."""

from __future__ import annotations

from typing import Any

import pytest
from support.following import found_in, read

YOLO = "      3/100      2.5G      1.234          2      0.766         12        640"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("epoch 3/60 logloss=0.41", {"epoch": 3, "epochs_planned": 60, "loss": 0.41}),
        ("log-loss: 0.41", {"loss": 0.41}),
        ("step 7 train_log_loss=0.4 val_log_loss=0.5", {"step": 7, "loss": 0.4, "evaluation": 0.5}),
        ("iter 100: nll 2.31", {"step": 100, "loss": 2.31}),
        ("NLL: 2.31", {"loss": 2.31}),
        ("cross-entropy: 0.7", {"loss": 0.7}),
        ("Cross entropy loss = 0.7", {"loss": 0.7}),
        ("epoch 2 train MSE: 0.02, val MSE: 0.03", {"epoch": 2, "loss": 0.02, "evaluation": 0.03}),
        ("mean squared error (mse): 0.5", {"loss": 0.5}),
        ("Test MSE: 0.5", {"evaluation": 0.5}),
        ('{"step": 3, "nll": 0.5, "val/mse": 0.25}', {"step": 3, "loss": 0.5, "evaluation": 0.25}),
        ("{'mse': 0.5, 'loss': 0.7}", {"loss": 0.7}),
        # results of held-out sets
        ("Test set: Average loss: 0.0563, Accuracy: 9840/10000 (98%)", {"evaluation": 0.0563}),
        ("2026-01-01 10:00:00 INFO Test set: Average loss: 0.05", {"evaluation": 0.05}),
        ("Test: [10/79]\tTime  0.1 ( 0.1)\tLoss 5.9e-01 (5.8e-01)", {"evaluation": 0.59}),
        ("[Validation] epoch 3 loss=0.5", {"epoch": 3, "evaluation": 0.5}),
        ("Validation average loss: 0.5", {"evaluation": 0.5}),
        ("Epoch 3 | train: loss 0.5 | val: loss 0.6", {"epoch": 3, "loss": 0.5, "evaluation": 0.6}),
        ("Train Epoch: 3 [640/60000 (1%)]\tLoss: 0.5", {"epoch": 3, "batch": 640, "batches": 60000, "loss": 0.5}),
        ("Eval Epoch 3 nll 0.5", {"epoch": 3, "evaluation": 0.5}),
        ("epoch 3 val: 0.91 loss: 0.5", {"epoch": 3, "loss": 0.5}),
        # XGBoost and LightGBM
        ("[10]\ttrain-logloss:0.35\teval-logloss:0.46", {"step": 10, "loss": 0.35, "evaluation": 0.46}),
        ("[0]\ttrain-auc:0.9\ttrain-rmse:3.5\teval-auc:0.8\teval-rmse:4.5", {"step": 0, "loss": 3.5, "evaluation": 4.5}),
        ("[16:30:21] [2]\ttrain-mlogloss:0.60000+0.01000\ttest-mlogloss:0.7+0.02", {"step": 2, "loss": 0.6, "evaluation": 0.7}),
        ("[3]\tvalidation_0-rmse:0.5", {"step": 3, "evaluation": 0.5}),
        ("[10]\tvalid_0's binary_logloss: 0.46", {"step": 10, "evaluation": 0.46}),
        ("[10]\ttraining's l2: 0.4\ttraining's auc: 0.9\tvalid_1's l2: 0.5\tvalid_1's auc: 0.8", {"step": 10, "loss": 0.4, "evaluation": 0.5}),
        ("[10]\tcv_agg's binary_logloss: 0.46 + 0.0123", {"step": 10, "evaluation": 0.46}),
        # Optuna
        ("[I 2026-01-01 10:00:00,000] Trial 3 finished with value: 0.34 and parameters: {'lr': 0.1, 'loss': 3}. Best is trial 2 with value: 0.33.", {"loss": 0.34}),
        # YOLO's table: epoch, memory, the losses of boxes, classes and edges, instances, size of images
        (f"{YOLO}: 100%|██████████| 8/8 [00:02<00:00,  3.5it/s]", {"epoch": 3, "epochs_planned": 100, "batch": 8, "batches": 8, "loss": 4.0}),
        (f"\x1b[K{YOLO}: 25% ━━━───────── 2/8 3.5it/s 0.6s<1.2s", {"epoch": 3, "epochs_planned": 100, "batch": 2, "batches": 8, "loss": 4.0}),
    ],
)  # fmt: skip
def test_what_a_line_says(line: str, expected: dict[str, Any]) -> None:
    assert found_in(line) == pytest.approx(expected)


ORDINARY = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 120, in train_step',
    "    loss = criterion(output, target)",
    "ValueError: expected mse or nll, got 3",
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity)",
    "KeyError: 'val_log_loss'",
    "UserWarning: reduction: 'mean' divides the total loss by both the batch size and the support size.",
    "usage: train.py [-h] [--epochs EPOCHS] [--loss {mse,nll,cross-entropy}] [--lr LR]",
    "  --loss LOSS           which loss (default: mse)",
    "Namespace(batch_size=64, lr=0.01, loss='mse', mse_weight=0.5, seed=1)",
    "Namespace(nll_weight=1.0, entropy_bonus=0.01, clip=0.2)",
    "loss: mse",
    "criterion: cross-entropy",
    "loss function = CrossEntropyLoss(weight=None, reduction='mean')",
    "memory: 0.5",
    "lr=1e-05 weight_decay=0.01 momentum=0.9",
    "rmse_threshold = 0.1",
    "immserve=3 schemse: 0.5 nllb=0.6b mse2: 1",
    "facebook/nllb-200: 600M parameters",
    "early stopping on mse, patience: 5",
    "best mse: 0.01",
    "max entropy: 5",
    "policy entropy: 0.7",
    "entropy=0.69 kl=0.01",
    "[10]\tworker ready",
    "[10]\tworker-port:8080",
    "[1]\ttrain-auc:0.9\teval-auc:0.8",
    "[12]\t/data/train-logloss: no such file",
    "[LightGBM] [Info] Total Bins 12345",
    "[LightGBM] [Info] Number of data points in the train set: 1000, number of used features: 20",
    "[LightGBM] [Info] Start training from score 0.500000",
    "     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 779.1/779.1 MB 1.2 MB/s eta 0:00:00",
    "Requirement already satisfied: mse>=0.5 in /usr/lib/python3",
    "Downloading data: 100%|██████████| 170M/170M [00:03<00:00, 50.1MB/s]",
    "Generating train split: 100%|██████████| 1000/1000 [00:01<00:00, 900.1 examples/s]",
    "Loading checkpoint shards: 100%|██████████| 3/3 [00:02<00:00,  1.2it/s]",
    "Some weights of BertModel were not initialized: ['cls.predictions.bias']",
    "Test set: 10000 images, train set: 60000 images",
    "Validation: 5000 samples",
    "[I 2026-01-01 10:00:00,000] A new study created in memory with name: no-name",
    "[I 2026-01-01 10:00:00,000] Trial 4 pruned.",
    "[I 2026-01-01 10:00:00,000] Trial 5 finished with values: [0.1, 0.2] and parameters: {}.",
    "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
    "                   all          4         17      0.612      0.533      0.601      0.412",
    "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 1/1 [00:00<00:00]",
    "saved model to runs/mse-0.5/model.pt",
    "compressed: 3.5, dismse, senses=5",
]  # fmt: skip
"""Output that says nothing of the progress of a training."""


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_output_gives_nothing(line: str) -> None:
    assert found_in(line) == {}


@pytest.mark.parametrize("line", ["Namespace(epochs=60, loss='mse', mse=None)", "epochs: 60 loss: mse", "--epochs 60 --loss nll"])  # fmt: skip
def test_a_dump_of_options_is_a_plan_and_no_loss(line: str) -> None:
    assert set(found_in(line)) <= {"epochs_planned"}


def test_names_of_the_user_come_before_a_librarys_form() -> None:
    assert found_in("[10]\ttrain-rmse:0.5\ttrain-mphe:0.4", loss=["train-mphe"]) == {"loss": 0.4}
    assert found_in("Test set: nll=0.4", evaluation=["accuracy"]) == {}


@pytest.mark.parametrize(
    ("lines", "losses"),
    [
        (["mse=9 step=1", "nll=0.5 step=1", "mse=8 step=2", "nll=0.4 step=2"], [9, 8]),
        (["loss=3 step=1", "mse=0.5", "loss=2 step=2", "mse=0.4", "log-loss=7"], [3, 2]),
        (["[0]\ttrain-rmse:5", "[0]\ttrain-mae:3", "[1]\ttrain-rmse:4", "[1]\ttrain-mae:2"], [5, 4]),
    ],
)
def test_losses_of_two_kinds_are_not_one_series(lines: list[str], losses: list[float]) -> None:
    kept = read(lines)
    assert (kept.losses, kept.steps, kept.restarts) == (losses, 2, 0)


def test_a_plain_loss_begins_a_series_of_its_own_and_keeps_the_steps() -> None:
    kept = read(["mse=9 step=1", *(line for n in (1, 2, 3) for line in (f"loss={n} step={n}", f"mse=8 step={n}"))])
    assert (kept.losses, kept.steps, kept.restarts) == ([9, 1, 2, 3], 3, 1)


def test_evaluations_of_two_kinds_are_not_one_series() -> None:
    kept = read(f"step {n} loss=1 {name}={n}" for n in (1, 2, 3) for name in ("val_nll", "val_mse"))
    assert kept.evaluations == [1, 2, 3]


def test_another_training_in_the_same_log_may_have_another_kind() -> None:
    kept = read(
        [*(f"loss=1 step={n}" for n in (1, 50, 100)), "Training complete.", *(f"nll=2 step={n}" for n in (1, 2))]
    )
    assert (kept.losses[-1], kept.steps, kept.restarts) == (2, 2, 1)


def test_rounds_of_xgboost_are_steps_from_zero_and_trials_of_optuna_are_steps_in_any_order() -> None:
    assert read(f"[{n}]\ttrain-logloss:0.{9 - n}" for n in range(5)).steps == 5
    kept = read(f"Trial {n} finished with value: {n}.5 and parameters: {{}}." for n in (1, 0, 3, 2))
    assert (kept.steps, kept.losses, kept.restarts) == (4, [1.5, 0.5, 3.5, 2.5], 0)


def test_trials_that_train_are_counted_by_their_own_losses() -> None:
    kept = read(["step 1 loss=0.5", "Trial 0 finished with value: 7.0 and parameters: {}.", "step 2 loss=0.4"])
    assert (kept.steps, kept.losses) == (2, [0.5, 0.4])


def test_epochs_of_yolo_are_planned() -> None:
    row = "      {}/3      2.5G      1.2      2.3      1.1      12      640: {}%|███| {}/4 [00:02<00:00, 3.5it/s]"
    kept = read(row.format(epoch, 25 * batch, batch) for epoch in (1, 2) for batch in range(5))
    assert (kept.steps, kept.planned, kept.restarts) == (8, 12, 0)
