"""Lightning's own ways of another plan: early stopping, streams, accumulation, two optimisers, a checkpoint."""

import logging
import sys
import time
import warnings

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from scraping import show

from slopewise_exporter import Reporter
from slopewise_exporter.lightning import ReportCallback, SlopewiseCallback

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
rows = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True))


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for row in data:
            time.sleep(0.005)
            yield row


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        time.sleep(0.5)
        self.log("val_loss", 1.0 + self.current_epoch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


class TwoOptimizers(Module):
    automatic_optimization = False

    def training_step(self, batch, _):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.01) for _ in range(2)]


class Show(Callback):
    """After the first step, and after the first epoch."""

    def __init__(self, check):
        self.check = check

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.current_epoch == 0 and index == 1:
            show(f"{self.check} first")

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            show(f"{self.check} second epoch")


def fit(check, *callbacks, module=None, loader=None, ckpt_path=None, folder=None, **arguments):
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, Show(check)],
        **arguments,
    )
    if loader is None:
        loader = torch.utils.data.DataLoader(data, batch_size=8)
    validation = torch.utils.data.DataLoader(data, batch_size=64)
    trainer.fit(module or Module(), loader, validation, ckpt_path=ckpt_path)
    show(check)
    if folder is not None:
        trainer.save_checkpoint(folder)


with Reporter(linger_seconds=0):
    fit("early", ReportCallback(), EarlyStopping("val_loss", patience=1), max_epochs=50)
with Reporter(linger_seconds=0):
    stream = torch.utils.data.DataLoader(Stream(), batch_size=8)
    fit("stream", ReportCallback(), loader=stream, max_epochs=3)
with Reporter(linger_seconds=0):
    fit("accumulated", ReportCallback(), max_epochs=3, accumulate_grad_batches=4)
with Reporter(linger_seconds=0):
    fit("two optimizers", ReportCallback(), module=TwoOptimizers(), max_epochs=3)
with Reporter(linger_seconds=0):
    fit("timed", ReportCallback(), max_steps=10, max_time="00:01:00:00", folder=sys.argv[1] + "/ten.ckpt")
with Reporter(linger_seconds=0):
    fit("resumed", ReportCallback(), max_steps=25, ckpt_path=sys.argv[1] + "/ten.ckpt")
    fit("second fit", ReportCallback(), max_epochs=2)
with Reporter(linger_seconds=0) as reporter:
    saving = SlopewiseCallback(sys.argv[1] + "/saved", reporter=reporter)
    fit("checkpoints", saving, EarlyStopping("val_loss", patience=1), max_epochs=50)
