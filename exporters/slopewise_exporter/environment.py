"""What the surroundings decide: whether this process reports and saves, and where.

Before it: the process's environment variables and the arguments of `Reporter` and `Checkpoints`; a variable wins
over an argument, because its user cannot always edit a training. After it: `endpoint` and `checkpoint_files`
open what is described here. An empty variable counts as unset (a manifest often has `value: ""`).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from slopewise_exporter.values import (
    Checker,
    Parsed,
    parse_flag,
    parse_linger_seconds,
    parse_port,
    parse_rank,
)

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PORT = 9464

DEFAULT_LINGER_SECONDS = 20.0
"""One scrape interval of 15 s, and what a throttled scrape may take on top, yet well inside the 30 s that
Kubernetes gives a pod to end."""

RANK_VARIABLES = (
    *("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "HOROVOD_RANK"),
    "JAX_PROCESS_ID",
)
"""Where launchers put the *global* rank; the first that is set counts, so torchrun's wins over Slurm's (which
may run one torchrun per node)."""

LOCAL_RANK_VARIABLES = ("NODE_RANK", "LOCAL_RANK")
"""Where Lightning puts the number of a node, and that of a process on it. One alone is of no use: each node has a 0."""


STUDY_VARIABLE = "OPTUNA_STUDY"
"""The study of a training that names none itself."""


class EndpointSettings(NamedTuple):
    """Where the endpoint listens, who is told, and how long it outlives the training."""

    port: int
    address: str
    linger_seconds: float
    port_file: Path | None
    end_file: Path | None
    """Gets the last values when the training ends."""


def reports_here(environ: Mapping[str, str], check: Checker) -> bool:
    """True in the one process of a training that reports: global rank 0 (or no rank), and not switched off."""
    name = "SLOPEWISE_EXPORTER_DISABLED"
    if _variable(environ, check, name, parse_flag, False, "1 or 0"):
        return False
    return is_first_rank(environ, check)


def is_first_rank(environ: Mapping[str, str], check: Checker) -> bool:
    """True in the one process of a training that saves its checkpoints: global rank 0, or no rank.

    The rank of a library that connects the processes comes before the variables: those of Slurm are the same in all
    processes that one task starts.
    """
    connected = connected_rank()
    return (_global_rank(environ, check) if connected is None else connected) == 0


def checkpoint_folder(environ: Mapping[str, str], folder: str | os.PathLike[str] | None) -> Path | None:
    """Where checkpoints go; None: nowhere. An empty argument counts as unset too: `Path("")` is where we stand."""
    place = environ.get("SLOPEWISE_CHECKPOINT_FOLDER") or folder
    return _path(place) if place else None


def endpoint_settings(
    environ: Mapping[str, str], check: Checker, *, port: int, address: str, linger_seconds: float
) -> EndpointSettings:
    """The arguments, checked, each replaced by its variable where that is set and can be used."""
    wanted_port = "a port from 0 to 65535"
    wanted_linger = "a number of seconds from 0 to 3600"
    port = check.read("port", port, parse_port, DEFAULT_PORT, wanted_port)
    linger = check.read("linger_seconds", linger_seconds, parse_linger_seconds, DEFAULT_LINGER_SECONDS, wanted_linger)
    port = _variable(environ, check, "SLOPEWISE_EXPORTER_PORT", parse_port, port, wanted_port)
    name = "SLOPEWISE_EXPORTER_LINGER_SECONDS"
    linger = _variable(environ, check, name, parse_linger_seconds, linger, wanted_linger)
    files = map(environ.get, ("SLOPEWISE_EXPORTER_PORT_FILE", "SLOPEWISE_EXPORTER_END_FILE"))
    port_file, end_file = (_path(file) if file else None for file in files)
    address = environ.get("SLOPEWISE_EXPORTER_ADDRESS") or address
    return EndpointSettings(port, address, linger, port_file, end_file)


def listening_advice(
    settings: EndpointSettings, error: Exception, *, process: str = "training", by: str = "Reporter"
) -> str:
    """Why the endpoint cannot listen and what to do about it: a sentence that its caller ends.

    `by` is what takes the port and the address as arguments.
    """
    where = f"{settings.address}:{settings.port}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return (
            f"cannot serve metrics on {where}: another program has port {settings.port}; give this {process} "
            f"{by}(port=...) or SLOPEWISE_EXPORTER_PORT with another one, 0 for any that is free"
        )
    if number in (errno.EACCES, errno.EPERM):
        return f"cannot serve metrics on {where}: this user may not take port {settings.port}; use 1024 or higher"
    import socket  # here: a reporter loads this module, and loads that one with its endpoint

    if number == errno.EADDRNOTAVAIL or isinstance(error, (socket.gaierror, UnicodeError)):
        return (
            f"cannot serve metrics on {where}: {settings.address!r} is no address of this machine; give "
            f"{by}(address=...) or SLOPEWISE_EXPORTER_ADDRESS one of its own without a port, 0.0.0.0 for all of them"
        )
    return f"cannot serve metrics on {where} ({error})"


def write_file(path: Path | None, text: str, what: str, check: Checker) -> None:
    """Write the text to `path`, where there is one, in one move: a waiting reader sees all of it or no file."""
    if path is None:
        return
    try:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_text(f"{text}\n", encoding="ascii")
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: `.` and `/` name no file
        check.warn(what, f"cannot write {what} to {path} ({error})")


def _path(place: str | os.PathLike[str]) -> Path:
    from pathlib import Path  # here: with what it imports itself, a quarter of what importing a reporter would cost

    return Path(place)


def _global_rank(environ: Mapping[str, str], check: Checker) -> int:
    """0 only where it is the first of all; of several nodes without global ranks it is the sum of the two numbers."""
    names = [name for name in RANK_VARIABLES if environ.get(name)][:1]
    if not names and all(environ.get(name) for name in LOCAL_RANK_VARIABLES):
        names = list(LOCAL_RANK_VARIABLES)
    return sum(_variable(environ, check, name, parse_rank, 0, "a rank, 0 or more") for name in names)


def _variable(
    environ: Mapping[str, str],
    check: Checker,
    name: str,
    parse: Callable[[object], Parsed],
    default: Parsed,
    wanted: str,
) -> Parsed:
    text = environ.get(name)
    return check.read(name, text, parse, default, wanted) if text else default


# --- the rank, by the library that connects the processes ------------------------------------------------------


def connected_rank() -> int | None:
    """The global rank that a library has by which this process is connected to the others; None: it is not, so far.

    For launchers that set no variable (`torch.multiprocessing`, TPUs), and where theirs is the same in all processes.

    No library is imported for it, and none is initialised: asking JAX too early would take all of its devices.
    """
    for name, ask in _CONNECTED.items():
        module = sys.modules.get(name)
        with suppress(Exception):  # of another version
            rank = None if module is None else ask(module)
            if rank is not None:
                return int(rank)
    return None


def _rank_of_mpi(mpi: Any) -> int | None:
    connected = mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1
    return mpi.COMM_WORLD.Get_rank() if connected else None


_CONNECTED: dict[str, Callable[[Any], int | None]] = {
    "torch.distributed": lambda torch: torch.get_rank() if torch.is_available() and torch.is_initialized() else None,
    "jax": lambda jax: jax.process_index() if jax.distributed.is_initialized() else None,
    "mpi4py.MPI": _rank_of_mpi,
    # Of TPUs, whose processes `accelerate` starts without a variable; its state is empty before it is connected.
    "accelerate.state": lambda state: (
        state.PartialState().process_index if state.PartialState._shared_state else None  # noqa: SLF001
    ),
}
