"""One of two ranks of a Lightning training; the first one's disk is full when it saves for the first time."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO

from slopewise_exporter.lightning import SlopewiseCallback

torch.set_num_threads(1)
torch.manual_seed(0)
rows = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))


class FullAtFirst(TorchCheckpointIO):
    saves = 0

    def save_checkpoint(self, checkpoint, path, storage_options=None):
        self.saves += 1
        if self.saves == 1:
            raise OSError(28, "No space left on device")
        super().save_checkpoint(checkpoint, path, storage_options)


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

    def train_dataloader(self):
        return torch.utils.data.DataLoader(rows, batch_size=8)


callback = SlopewiseCallback(sys.argv[1], every_steps=2, every_seconds=None)
trainer = Trainer(
    max_steps=5,
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    plugins=[FullAtFirst()],
    callbacks=[callback],
)
trainer.fit(Module(), ckpt_path=callback.resume_path)
print("done", trainer.global_step, flush=True)
# gloo's threads abort a process that ends while they still talk to the other rank.
trainer.strategy.barrier()
torch.distributed.destroy_process_group()
