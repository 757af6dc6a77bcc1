"""Two ranks of one training; each prints at which step it stopped."""

import sys

import torch

from slopewise_exporter.pytorch import TorchCheckpoints

STEPS = 100_000

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
parts = {"model": model, "optimizer": optimizer}

try:
    with TorchCheckpoints(sys.argv[1], parts, every_seconds=0.2) as checkpoints:
        checkpoints.resume()
        print("resumed", checkpoints.steps, flush=True)
        for step in range(checkpoints.steps, min(STEPS, int(sys.argv[2]))):
            optimizer.zero_grad()
            model(torch.full((4, 8), float(step % 7))).sum().backward()
            optimizer.step()
            print("step", step + 1, flush=True)
            checkpoints.step()
    print("result", float(next(model.parameters()).sum()).hex(), flush=True)
finally:
    # gloo's threads abort a process that ends while they still talk to the other rank, also after SIGTERM.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
