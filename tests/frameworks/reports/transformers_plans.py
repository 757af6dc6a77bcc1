"""The ways in which the Transformers trainer changes its plan: early stopping, another `max_steps`, a checkpoint."""

import sys
import time

import torch
from scraping import show
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from slopewise_exporter import Reporter
from slopewise_exporter.transformers import ReportCallback, SlopewiseCallback

rows = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in torch.randn(64, 4)]


class SlowRows(torch.utils.data.Dataset):
    def __len__(self):
        return len(rows)

    def __getitem__(self, number):
        time.sleep(0.005)
        return rows[number]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        output = self.network(x)
        return {"loss": torch.nn.functional.mse_loss(output, labels), "logits": output}


class Show(TrainerCallback):
    def __init__(self, check, max_steps=None):
        self.check = check
        self.max_steps = max_steps

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 2:
            show(f"{self.check} first")
        if state.global_step == 3 and self.max_steps:
            state.max_steps = self.max_steps


def train(check, *callbacks, resume=None, max_steps=None, **arguments):
    settings = {"per_device_train_batch_size": 8, "logging_steps": 2, "save_strategy": "no", **arguments}
    settings = TrainingArguments(sys.argv[1], report_to=[], disable_tqdm=True, use_cpu=True, **settings)
    callbacks = [*callbacks, Show(check, max_steps)]
    Trainer(Model(), settings, train_dataset=SlowRows(), eval_dataset=rows, callbacks=callbacks).train(
        resume_from_checkpoint=resume
    )
    show(check)


EARLY = {
    "num_train_epochs": 50,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "greater_is_better": True,  # it falls: the next evaluation ends the training
}
with Reporter(linger_seconds=0):
    train("early", ReportCallback(), EarlyStoppingCallback(1), **EARLY)
with Reporter(linger_seconds=0):
    train("changed", ReportCallback(), max_steps=6, num_train_epochs=5)
with Reporter(linger_seconds=0):
    train("saved", ReportCallback(), num_train_epochs=1, save_strategy="epoch")
with Reporter(linger_seconds=0):
    train("resumed", ReportCallback(), num_train_epochs=3, resume=sys.argv[1] + "/checkpoint-8")
    train("second", ReportCallback(), num_train_epochs=2, gradient_accumulation_steps=2)
with Reporter(linger_seconds=0) as reporter, SlopewiseCallback(sys.argv[1], reporter=reporter) as saving:
    train("checkpoints", saving, EarlyStoppingCallback(1), **EARLY)
