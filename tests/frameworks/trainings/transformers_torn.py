"""A training by Transformers that keeps two checkpoints and kills itself: in a save, or when it has removed the oldest.

transformers_torn.py FOLDER by_path|by_itself none|in_save|after_rotation
"""

import os
import signal
import sys

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from slopewise_exporter.transformers import SlopewiseCallback

FOLDER, RESUME, KILLED = sys.argv[1:]

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


class KilledInSave(Trainer):
    def save_model(self, *arguments, **named):
        super().save_model(*arguments, **named)
        if KILLED == "in_save" and self.state.global_step == 8:
            os.kill(os.getpid(), signal.SIGKILL)


class KilledAfterRotation(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        print("resumed", state.global_step, flush=True)

    def on_step_end(self, args, state, control, **_):
        if KILLED == "after_rotation" and state.global_step == 6:
            signal.raise_signal(signal.SIGTERM)

    def on_save(self, args, state, control, **_):
        if KILLED == "after_rotation":
            os.kill(os.getpid(), signal.SIGKILL)


callback = SlopewiseCallback(FOLDER)
arguments = TrainingArguments(
    FOLDER,
    per_device_train_batch_size=4,
    max_steps=12,
    save_strategy="steps",
    save_steps=4,
    save_total_limit=2,
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = KilledInSave(Model(), arguments, train_dataset=rows, callbacks=[KilledAfterRotation(), callback])
trainer.train(resume_from_checkpoint=True if RESUME == "by_itself" else callback.resume_path)
