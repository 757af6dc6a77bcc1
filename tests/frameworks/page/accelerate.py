import torch

torch.manual_seed(0)
rows = torch.randn(64, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=8)
network = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)


def train_on(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(network(x), y)
    loss.backward()
    optimizer.step()
    return loss
