"""A plain PyTorch loop with everything that has a state: dropout, momentum, a schedule, an order of the data."""

import hashlib
import sys

import torch

from slopewise_exporter import Reporter
from slopewise_exporter.order import BatchOrder
from slopewise_exporter.pytorch import TorchCheckpoints

STEPS = 120

torch.set_num_threads(1)
torch.manual_seed(0)
data = torch.Generator().manual_seed(1)
inputs = torch.randn(512, 16, generator=data)
targets = inputs.pow(2).sum(1, keepdim=True)

model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
order = BatchOrder(len(inputs), 32, seed=5)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}

with (
    Reporter(planned_steps=STEPS, framework="pytorch") as reporter,
    TorchCheckpoints(sys.argv[1], parts, reporter=reporter, every_steps=8) as checkpoints,
):
    checkpoints.resume()
    print("resumed", checkpoints.steps, flush=True)
    for step in range(checkpoints.steps, STEPS):
        rows = order.batch(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        loss.backward()
        optimizer.step()
        scheduler.step()
        reporter.step(loss=loss, samples=len(rows))
        print("step", step + 1, flush=True)
        checkpoints.step()

weights = b"".join(each.detach().numpy().tobytes() for each in model.state_dict().values())
print("result", hashlib.sha256(weights).hexdigest(), flush=True)
