# ruff: noqa: E501 - a line of a log and what is found in it are one line each
"""One line in, numbers out: the formats that trainings really write."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from support.following import found_in

from slopewise_exporter.logs import Found, LineParser

KERAS_BAR = "━━━━━━━━━━━━━━━━━━━━"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # key=value and key: value
        ("step=120 loss=0.5", {"step": 120, "loss": 0.5}),
        ("step: 120, loss: 5e-01, lr: 1e-05", {"step": 120, "loss": 0.5}),
        ("2026-01-01 10:00:00,123 INFO train loss = 1e-05", {"loss": 1e-05}),
        ("loss 0.5", {"loss": 0.5}),
        ("loss=.5 step=+3", {"loss": 0.5, "step": 3}),
        ("step 120/10000 loss=0.5", {"step": 120, "steps_planned": 10000, "loss": 0.5}),
        ("epoch 3/60", {"epoch": 3, "epochs_planned": 60}),
        ("Epoch [3/60], Step [120/600], Loss: 0.12", {"epoch": 3, "epochs_planned": 60, "step": 120, "steps_planned": 600, "loss": 0.12}),
        ("[epoch 3 of 60] train_loss=0.5 val_loss=0.6", {"epoch": 3, "epochs_planned": 60, "loss": 0.5, "evaluation": 0.6}),
        ("Train Epoch: 3 [12800/60000 (21%)]\tLoss: 0.1234", {"epoch": 3, "batch": 12800, "batches": 60000, "loss": 0.1234}),
        ("Epoch: [3][120/5005]\tTime 0.3 (0.4)\tLoss 6.9e+00 (6.95e+00)", {"epoch": 3, "batch": 120, "batches": 5005, "loss": 6.9}),
        ("iter 100: loss 2.3456, time 35.12ms, mfu 12.3%", {"step": 100, "loss": 2.3456}),
        ("step 250: train loss 1.9, val loss 2.0", {"step": 250, "loss": 1.9, "evaluation": 2.0}),
        (" iteration       10/  500000 | consumed samples: 2560 | lm loss: 1.036E+01 | loss scale: 1.0 |", {"step": 10, "steps_planned": 500000, "loss": 10.36}),
        ("  Num Epochs = 3", {"epochs_planned": 3}),
        ("  Total optimization steps = 1,000", {"steps_planned": 1000}),
        ("best loss: 0.1 current loss: 0.2", {"loss": 0.2}),
        ("warmup steps: 100, save every 500 steps", {}),
        ("this took 1.5ms per step", {}),
        ("colossal 0.5 blossom=3", {}),
        # JSON lines
        ('{"step": 12, "loss": 0.5, "epoch": 1.5}', {"step": 12, "loss": 0.5, "epoch": 1.5}),
        ('{"time": "x", "metrics": {"train/loss": "0.25"}, "global_step": 7}', {"loss": 0.25, "step": 7}),
        ('{"loss": null, "step": 3}', {"step": 3}),
        ('{"loss": true, "step": -1}', {}),
        ('{"total_loss": 3.0, "loss": 1.0}', {"loss": 1.0}),
        ('INFO {"loss": 0.5, "step": 9}', {"loss": 0.5, "step": 9}),
        # Python dictionaries: Transformers, and version 5 of it with texts
        ("{'loss': 1.25, 'grad_norm': 2.1, 'learning_rate': 5e-05, 'epoch': 0.35}", {"loss": 1.25, "epoch": 0.35}),
        ("{'loss': '1.25', 'learning_rate': '5e-05', 'epoch': '1'}", {"loss": 1.25, "epoch": 1}),
        ("{'eval_loss': 0.9, 'eval_runtime': 0.1, 'epoch': 1.0}", {"evaluation": 0.9, "epoch": 1.0}),
        ("{'train_runtime': 12.3, 'train_loss': 0.5, 'epoch': 3.0}", {"epoch": 3.0, "finished": True}),
        # progress bars
        ("Epoch 0:  10%|█  | 10/100 [00:01<00:12,  7.5it/s, v_num=0, train_loss=1.5]", {"epoch": 0, "batch": 10, "batches": 100, "loss": 1.5}),
        ("  5%|▌         | 50/1000 [00:10<03:00,  5.2it/s]", {"batch": 50, "batches": 1000}),
        ("  0%|          | 0/1000 [00:00<?, ?it/s]", {"batches": 1000, "batch": 0}),
        ("100%|██████████| 1000/1000 [00:10<00:00, 1.2s/it, loss=0.1]", {"batch": 1000, "batches": 1000, "loss": 0.1}),
        ("Map: 100%|██████████| 1000/1000 [00:01<00:00, 900.1 examples/s]", {}),
        ("model.safetensors:  12%|█▏        | 12/100 [00:01<00:09, 9.5MB/s]", {}),
        ("Validation DataLoader 0:  50%|█████  | 5/10 [00:00<00:00, 90.0it/s]", {}),
        (f"\x1b[1m300/300\x1b[0m \x1b[32m{KERAS_BAR}\x1b[0m\x1b[37m\x1b[0m \x1b[1m5s\x1b[0m 17ms/step - loss: 0.5 - val_loss: 0.6", {"batch": 300, "batches": 300, "loss": 0.5, "evaluation": 0.6}),
        ("300/300 - 5s - 17ms/step - accuracy: 0.9 - loss: 0.3", {"batch": 300, "batches": 300, "loss": 0.3}),
        ("300/300 [==============================] - 5s 17ms/step - loss: 0.3", {"batch": 300, "batches": 300, "loss": 0.3}),
        ("     12/Unknown \x1b[1m1s\x1b[0m 2ms/step - loss: 0.3", {"loss": 0.3}),
        ("| epoch   1 |    25/  305 batches | lr 20.00 | ms/batch 9.5 | loss  7.20 | ppl 1339", {"epoch": 1, "batch": 25, "batches": 305, "loss": 7.2}),
        ("epoch 2: 25/305 steps, loss 0.5", {"epoch": 2, "batch": 25, "batches": 305, "loss": 0.5}),
        # ends
        ("`Trainer.fit` stopped: `max_epochs=3` reached.", {"epochs_planned": 3, "finished": True}),
        ("Training completed. Do not forget to share your model on huggingface.co/models =)", {"finished": True}),
        ("Training complete.", {"finished": True}),
        ("training complete", {"finished": True}),
        ("the training completed 3 of 7 phases", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_what_a_line_says(line: str, expected: dict[str, Any]) -> None:
    assert found_in(line) == expected


LOSSES_THAT_ARE_NONE = [
    *(f"step 3 loss: {text}" for text in ("nan", "NaN", "inf", "-inf", "Infinity")),
    '{"loss": NaN}',
]


@pytest.mark.parametrize("line", LOSSES_THAT_ARE_NONE)
def test_losses_that_are_no_numbers_are_found(line: str) -> None:
    assert not math.isfinite(found_in(line)["loss"])


def test_counts_beyond_what_a_float_can_count_are_left_out() -> None:
    assert found_in("step=99999999999999999999 loss=1") == {"loss": 1}
    assert found_in(json.dumps({"step": 10**400, "loss": 1.0})) == {"loss": 1.0}
    assert found_in("step=nan loss=1") == {"loss": 1}


def test_an_epoch_is_a_fraction_by_the_way_it_is_written() -> None:
    assert type(found_in("{'loss': 1, 'epoch': 1.0}")["epoch"]) is float
    assert type(found_in("epoch 1 loss 1")["epoch"]) is int
    assert type(found_in('{"loss": 1, "epoch": 1}')["epoch"]) is int


def test_names_of_the_user_replace_those_of_the_table() -> None:
    assert found_in("round 3 nll=0.5 loss=9", loss=["nll"], step=["round"]) == {"loss": 0.5, "step": 3}
    assert found_in('{"nll": 0.5, "loss": 9}', loss=["nll"]) == {"loss": 0.5}
    assert found_in("val_accuracy: 0.9", evaluation=["val_accuracy"]) == {"evaluation": 0.9}


def test_objects_with_other_inner_keys_are_not_taken_for_those_before() -> None:
    parser = LineParser()
    assert parser.parse('{"event": "start", "data": {"seed": 1}}') is None
    found = parser.parse('{"event": "step", "data": {"loss": 0.5, "step": 1}}')
    assert found == Found(loss=0.5, step=1)


def test_memory_for_keys_that_never_come_again_is_bounded() -> None:
    parser = LineParser()
    for number in range(10_000):
        parser.parse(json.dumps({f"key_{number}": 1, "loss": 0.5}))
        parser.parse(f"loss_{number}=3 step=1")
    assert len(parser._json._layouts) <= 256
    assert len(parser.names._cache) <= 4096
