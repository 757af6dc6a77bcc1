"""A training by Transformers that fails, and after it, in the same process, one that SIGTERM ends."""

import signal
import sys

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from slopewise_exporter import Reporter
from slopewise_exporter.transformers import SlopewiseCallback

torch.set_num_threads(1)
torch.manual_seed(0)
rows = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in torch.randn(64, 4)]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        output = self.network(x)
        return {"loss": torch.nn.functional.mse_loss(output, labels), "logits": output}


class At(TrainerCallback):
    def __init__(self, step, act):
        self.step = step
        self.act = act

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            self.act()


def fail():
    raise ZeroDivisionError


def tell():
    signal.raise_signal(signal.SIGTERM)


def train(steps, at):
    arguments = TrainingArguments(
        sys.argv[1],
        per_device_train_batch_size=4,
        max_steps=steps,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(Model(), arguments, train_dataset=rows, callbacks=[at, callback]).train()


reporter = Reporter(framework="transformers")
callback = SlopewiseCallback(sys.argv[1], reporter=reporter)
try:
    with callback:
        train(9, At(3, fail))
except ZeroDivisionError:
    print("handler", signal.getsignal(signal.SIGTERM).name, flush=True)
try:
    train(7, At(2, tell))
finally:
    print("planned", int(reporter.planned_steps), flush=True)
    print("newest", callback.resume_path, flush=True)
