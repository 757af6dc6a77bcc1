"""A Lightning module with dropout and a schedule, validated in the middle of its epochs."""

import hashlib
import logging
import signal
import sys
import warnings

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from slopewise_exporter import Reporter
from slopewise_exporter.lightning import SlopewiseCallback
from slopewise_exporter.order import BatchOrder

EPOCHS = 6

torch.set_num_threads(1)
torch.manual_seed(0)
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
data = torch.Generator().manual_seed(1)
inputs = torch.randn(512, 16, generator=data)
targets = inputs.pow(2).sum(1, keepdim=True)
rows = torch.utils.data.TensorDataset(inputs, targets)


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 1)
        )

    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.mse_loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def train_dataloader(self):
        order = BatchOrder(len(rows), 32, seed=5, steps_done=self.trainer.global_step)
        return torch.utils.data.DataLoader(rows, batch_sampler=order, generator=torch.Generator())

    def val_dataloader(self):
        return torch.utils.data.DataLoader(rows, batch_size=256, generator=torch.Generator())


class Printer(Callback):
    def on_sanity_check_start(self, *_):
        if sys.argv[2:] == ["told while it loads"]:
            signal.raise_signal(signal.SIGTERM)

    def on_train_start(self, trainer, _):
        print("resumed", trainer.global_step, flush=True)

    def on_train_batch_end(self, trainer, *_):
        print("step", trainer.global_step, flush=True)


module = Module()
callback = SlopewiseCallback(sys.argv[1], reporter=Reporter(framework="lightning"), every_steps=8)
trainer = Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=2 if sys.argv[2:] else 0,
    val_check_interval=0.5,
    callbacks=[Printer(), callback],
)
trainer.fit(module, ckpt_path=callback.resume_path)
weights = b"".join(each.detach().numpy().tobytes() for each in module.state_dict().values())
print("result", hashlib.sha256(weights).hexdigest(), flush=True)
