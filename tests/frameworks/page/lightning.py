import torch
from lightning.pytorch import LightningModule

rows = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True))
loader = torch.utils.data.DataLoader(data, batch_size=8)
validation_loader = torch.utils.data.DataLoader(data, batch_size=32)


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.mse_loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


module = Module()
