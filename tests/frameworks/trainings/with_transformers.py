"""A tiny model under the Transformers `Trainer`, with dropout, a schedule and shuffled data."""

import hashlib
import sys

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from slopewise_exporter import Reporter
from slopewise_exporter.transformers import SlopewiseCallback

torch.set_num_threads(1)
torch.manual_seed(0)
data = torch.Generator().manual_seed(1)
inputs = torch.randn(256, 16, generator=data)
rows = [{"x": x, "labels": x.pow(2).sum(0, keepdim=True)} for x in inputs]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1)
        )

    def forward(self, x, labels):
        output = self.network(x)
        return {"loss": torch.nn.functional.mse_loss(output, labels), "logits": output}


class Printer(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        print("resumed", state.global_step, flush=True)

    def on_step_end(self, args, state, control, **_):
        print("step", state.global_step, flush=True)


model = Model()
callback = SlopewiseCallback(sys.argv[1], reporter=Reporter(framework="transformers"))
arguments = TrainingArguments(
    sys.argv[1],
    per_device_train_batch_size=16,
    num_train_epochs=5,
    learning_rate=1e-2,
    save_strategy="steps",
    save_steps=8,
    save_total_limit=2,
    logging_steps=4,
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=3,
)
trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[Printer(), callback])
trainer.train(resume_from_checkpoint=callback.resume_path)
weights = b"".join(each.detach().numpy().tobytes() for each in model.state_dict().values())
print("result", hashlib.sha256(weights).hexdigest(), flush=True)
