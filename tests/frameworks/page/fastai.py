import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader

rows = torch.randn(64, 4)
pairs = list(zip(rows, rows.sum(1, keepdim=True), strict=True))
data = DataLoaders(DataLoader(pairs, bs=8), DataLoader(pairs, bs=32))
model = torch.nn.Linear(4, 1)
loss = torch.nn.functional.mse_loss
