"""Trains on a real DataLoader whose rows take 2 ms each, and prints what the exporter then reports."""

from __future__ import annotations

import time
from urllib.request import urlopen

import torch
from torch.utils.data import DataLoader, Dataset

from slopewise_exporter import Reporter
from slopewise_exporter.pytorch import ReportedLoader

EPOCHS = 2


class Slow(Dataset):
    """Eight batches of four rows, 2 ms a row."""

    def __len__(self):
        return 32

    def __getitem__(self, row):
        time.sleep(0.002)
        return torch.full((3,), float(row)), torch.tensor([float(row)])


model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
with Reporter(linger_seconds=0) as reporter:
    loader = ReportedLoader(DataLoader(Slow(), batch_size=4, num_workers=0), reporter, epochs=EPOCHS)
    assert loader.batch_size == 4
    for _ in range(EPOCHS):
        for rows, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(rows), targets)
            loss.backward()
            optimizer.step()
            reporter.step(loss=loss, samples=len(rows))
    print(urlopen(f"http://127.0.0.1:{reporter.port}/metrics").read().decode())
