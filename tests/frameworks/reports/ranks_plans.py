"""Two processes that no variable tells apart: of PyTorch's spawn, JAX's own service, Lightning's launcher."""

import logging
import socket
import sys
import warnings

from slopewise_exporter import Reporter

WORLD = 2


def say(way, rank):
    with Reporter(linger_seconds=0) as reporter:
        # One write, since both processes have the same output.
        sys.stdout.write(f"{way}-{rank} {'reports' if reporter.port is not None else 'silent'}\n")
        sys.stdout.flush()


def of_torch(rank, port):
    import torch.distributed

    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    say("torch", rank)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def of_jax(rank, port):
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", WORLD, rank)
    say("jax", rank)
    jax.distributed.shutdown()


def of_lightning():
    import torch
    from lightning.pytorch import LightningModule, Trainer

    from slopewise_exporter.lightning import ReportCallback

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.network(batch[0]).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    rows = torch.utils.data.TensorDataset(torch.randn(64, 4))
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=WORLD,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ReportCallback()],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=8))
    from slopewise_exporter import lifecycle

    reporter = lifecycle.newest()
    what = "silent" if reporter is None else f"{reporter.steps}of{reporter.planned_steps:.0f}"
    sys.stdout.write(f"lightning-{trainer.global_rank} {what}\n")
    sys.stdout.flush()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


if __name__ == "__main__":
    if sys.argv[2:] == ["lightning"]:
        of_lightning()
    else:
        import torch.multiprocessing

        for train in (of_torch, of_jax):
            torch.multiprocessing.spawn(train, (free_port(),), WORLD)
