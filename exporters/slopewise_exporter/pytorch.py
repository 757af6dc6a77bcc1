"""A plain PyTorch loop: its DataLoader, timed and planned, and checkpoints of all that has a `state_dict`.

    with Reporter() as reporter:
        loader = ReportedLoader(loader, reporter, epochs=EPOCHS)
        for _ in range(EPOCHS):
            for batch in loader:
                reporter.step(loss=train_on(batch))

    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    with Reporter(planned_steps=STEPS) as reporter, TorchCheckpoints(FOLDER, parts, reporter=reporter) as checkpoints:
        checkpoints.resume()
        for step in range(checkpoints.steps, STEPS):
            loss = train_on(batch_of(step))
            reporter.step(loss=loss)
            checkpoints.step()

Where a DataLoader is in its epoch is not saved: choose a batch by the number of its step, as `batch_of` does
(docs/checkpointing.md shows how). With `torch.distributed` all ranks stop at the same step, rank 0 saves, and only
rank 0 gets its random numbers back.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from slopewise_exporter.checkpoints import DEFAULT_EVERY_SECONDS, DEFAULT_KEEP, Checkpoints, Ranks
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.threads.loader_workers import LoaderWorkers
from slopewise_exporter.timed_batches import TimedBatches


class ReportedLoader(TimedBatches[Any]):
    """A DataLoader that reports how long each batch takes to come, the steps planned, and each epoch that ends.

    In all else it is the loader: its length, its sampler, its batch size are there. Wrap it last, after
    `accelerator.prepare` and the like, which want a DataLoader itself. `batches_a_step`: more than 1 where gradients of
    several batches are accumulated. `max_workers`: the most workers that steps which wait for batches may bring
    it, also where it has none (`threads/loader_workers.py`).
    """

    def __init__(
        self,
        loader: Iterable[Any],
        reporter: Reporter,
        *,
        epochs: int | None = None,
        batches_a_step: int = 1,
        max_workers: int | None = None,
    ) -> None:
        self._reporter = reporter
        self._workers = workers = LoaderWorkers(loader, max_workers)

        def came(waited_seconds: float) -> None:  # no method: a loader within a cycle would keep its workers
            reporter.waited(waited_seconds)
            workers.came(waited_seconds)

        super().__init__(loader, came)
        if epochs is not None and isinstance(loader, Sized):
            # A loader of an IterableDataset has the method, and no length. A plan is not worth an error in any case.
            with suppress(Exception):
                reporter.plan(epochs * -(-len(loader) // batches_a_step))

    def __iter__(self) -> Iterator[Any]:
        """The batches of one epoch, which counts once they are all gone."""
        self._workers.begin()
        yield from super().__iter__()
        self._reporter.epoch()


class TorchCheckpoints(Checkpoints):
    """`Checkpoints` whose state is that of these parts, by name. The other arguments are those of `Checkpoints`.

    A part has a `state_dict`: a module, an optimiser, a scheduler, a gradient scaler, an `ema` of one's own.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        parts: Mapping[str, Any],
        *,
        reporter: Reporter | None = None,
        every_seconds: float | None = DEFAULT_EVERY_SECONDS,
        every_steps: int | None = None,
        keep: int = DEFAULT_KEEP,
    ) -> None:
        self._parts = parts
        ranks = Ranks(torch.distributed.get_rank() == 0, agree) if distributed() else None
        self._draws_on = ranks is None or ranks.first
        super().__init__(
            folder,
            reporter=reporter,
            every_seconds=every_seconds,
            every_steps=every_steps,
            keep=keep,
            save=_save,
            load=self._load_parts,
            suffix=".pt",
            ranks=ranks,
        )
        self._state = self._parts_now

    def resume(self) -> bool:
        """Give every part the state of the last checkpoint that is whole; False: there is none.

        CheckpointError also where it has no such part, or one of another shape.
        """
        return super().resume() is not None

    def _parts_now(self) -> dict[str, Any]:
        return {"parts": {name: part.state_dict() for name, part in self._parts.items()}, "random": random_state()}

    def _load_parts(self, path: Path) -> bool:
        state = _read(path)
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        if self._draws_on:
            set_random_state(state["random"])
        return True


def agree(mine: bool) -> bool:
    """Whether any rank says yes. Every rank must ask at the same step; with NCCL it waits for the accelerator."""
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    answer = torch.tensor(int(mine), device=device)
    torch.distributed.all_reduce(answer, op=torch.distributed.ReduceOp.MAX)
    return bool(answer.item())


def random_state() -> dict[str, Any]:
    """The state of every generator that trainings draw from, as lists and tensors: what a safe load accepts."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Draw on from there. Accelerators that this node has not got are left out."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        for device, each in zip(range(torch.cuda.device_count()), state["cuda"]):
            torch.cuda.set_rng_state(each, device)
    if "numpy" in state:
        import numpy as np

        name, keys, *rest = state["numpy"]
        np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))


def distributed() -> bool:
    """This process is one of several that train together."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _save(path: Path, state: Any) -> None:
    torch.save(state, path)


def _read(path: Path) -> Any:
    # To the CPU: load_state_dict puts each tensor where its parameter is, and this node may have other devices.
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        # Saved without a word, and refused by the safe reader: a learning rate that is a np.float64 is enough. What is
        # in the folder was written by this training, as with the pickle of `Checkpoints`.
        return torch.load(path, map_location="cpu", weights_only=False)
