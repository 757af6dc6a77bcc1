"""The examples of docs/exporters-frameworks.md: what each framework's line reports, the plan with it."""

from __future__ import annotations

import pytest
from support.reported_examples import reporting_examples, scraped_at_its_end

# Steps, epochs, and the stages of the loss. Each example has 64 rows in batches of 8 for 5 epochs, or 50 rounds.
EXPECTED = {
    "plain": ("reporter.epochs(5", 40, 5, {"train", "train_ema"}),
    "loader": ("slopewise_exporter.pytorch", 40, 5, {"train", "train_ema"}),
    "lightning": ("slopewise_exporter.lightning", 40, 5, {"train", "train_ema", "eval"}),
    "transformers": ("slopewise_exporter.transformers", 40, 5, {"train", "train_ema"}),
    "keras": ("slopewise_exporter.keras", 10, 5, {"train", "train_ema", "eval"}),
    "accelerate": ("slopewise_exporter.accelerate", 8, 0, {"train", "train_ema"}),
    "xgboost": ("slopewise_exporter.xgboost", 50, 0, {"train", "train_ema"}),
    "lightgbm": ("slopewise_exporter.lightgbm", 50, 0, {"train", "train_ema"}),
    "catboost": ("slopewise_exporter.catboost", 50, 0, {"train", "train_ema", "eval"}),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_one_line_reports_steps_plan_and_loss(tmp_path, python, environment, name):
    words, steps, epochs, stages = EXPECTED[name]
    (code,) = [code for code in reporting_examples() if words in code]
    now = scraped_at_its_end("plain" if name == "loader" else name, code, tmp_path, python, environment)
    assert now["training_steps_total"] == now["training_steps_planned"] == steps
    assert now["training_steps_planned_is_upper_bound"] == 0
    assert now["training_epochs_total"] == epochs
    assert {stage for stage in ("train", "train_ema", "eval") if f'training_loss{{stage="{stage}"}}' in now} == stages
    assert now['training_loss{stage="train"}'] > 0
