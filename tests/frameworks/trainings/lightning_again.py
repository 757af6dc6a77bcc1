"""Lightning: a training that fails, one from a checkpoint that somebody else has written, and one that SIGTERM ends."""

import signal
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from slopewise_exporter import Reporter
from slopewise_exporter.checkpoint_files import CheckpointFolder
from slopewise_exporter.lightning import SlopewiseCallback

FOLDER = Path(sys.argv[1])

torch.set_num_threads(1)
torch.manual_seed(0)
rows = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))


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


class At(Callback):
    def __init__(self, step, act):
        self.step = step
        self.act = act

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            self.act()


def fail():
    raise ZeroDivisionError


def tell():
    signal.raise_signal(signal.SIGTERM)


def trainer(steps, *callbacks):
    return Trainer(
        max_steps=steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
    )


def say(what):
    found = CheckpointFolder(FOLDER, ".ckpt", keep=2).newest(lambda *_: None)
    counted = (reporter.steps, int(reporter.planned_steps), found and found.progress.steps)
    print(what, signal.getsignal(signal.SIGTERM).name, *counted, flush=True)


reporter = Reporter(framework="lightning")
callback = SlopewiseCallback(FOLDER, reporter=reporter)
try:
    trainer(9, At(3, fail), callback).fit(Module())
except ZeroDivisionError:
    say("failed")

foreign = trainer(20)
foreign.fit(Module())
foreign.save_checkpoint(FOLDER / "somebody_else.ckpt")
trainer(25, callback).fit(Module(), ckpt_path=FOLDER / "somebody_else.ckpt")
say("foreign")

try:
    trainer(7, At(2, tell), callback).fit(Module())
finally:
    say("again")
