"""The global rank of this process, from the library by which it is connected to the others of its training.

For launchers that set no variable (`torch.multiprocessing`, TPUs), and where theirs is the same in all processes.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any


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
