"""How the processes of one training save and stop together.

Before it: whatever connects them (`torch.distributed`, a strategy of Lightning). After it: `checkpoints`, which asks at
every step, in every rank. A rank that asks alone waits for good: each question here is put by all of them or by none.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Callable


@dataclass(frozen=True)
class Ranks:
    """What one of the processes knows of the others."""

    first: bool
    """This is rank 0, whose file is the checkpoint."""
    agree: Callable[[bool], bool]
    """Makes one answer of each rank's yes or no, yes where one says yes; asked by all of them at every step."""
    save_together: bool = False
    """Every rank calls `save`, as some frameworks want it."""

    def all_done(self, mine: bool) -> bool:
        """Whether every rank has done its part. Yes only for all: the next save must not find one of them alone."""
        return not self.agree(not mine)


def connected_rank() -> int | None:
    """The global rank that a library has by which this process is connected to the others; None: it is not, so far.

    No library is imported for it, and none is initialised: asking JAX too early would take all of its devices.
    """
    for ask in (_rank_of_torch, _rank_of_jax, _rank_of_mpi, _rank_of_accelerate):
        with suppress(Exception):  # of another version
            rank = ask()
            if rank is not None:
                return int(rank)
    return None


def _rank_of_torch() -> int | None:
    distributed = _loaded("torch.distributed")
    connected = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed.get_rank() if connected else None


def _rank_of_jax() -> int | None:
    jax = _loaded("jax")
    return jax.process_index() if jax is not None and jax.distributed.is_initialized() else None


def _rank_of_mpi() -> int | None:
    mpi = _loaded("mpi4py.MPI")
    connected = mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1
    return mpi.COMM_WORLD.Get_rank() if connected else None


def _rank_of_accelerate() -> int | None:
    # Of TPUs, whose processes `accelerate` starts without a variable.
    state = _loaded("accelerate.state")
    connected = state is not None and state.PartialState._shared_state  # noqa: SLF001 - empty before it is connected
    return state.PartialState().process_index if connected else None


def _loaded(module: str) -> Any:
    return sys.modules.get(module)
