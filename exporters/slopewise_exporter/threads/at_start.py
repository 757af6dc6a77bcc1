"""Environment variables for numerical libraries, before they are loaded: waiting without spinning, number of threads.

`SLOPEWISE_THREADS`: `wait` (the default, only the first of the two), `follow`, `off`, or a number. A variable that the
user has set stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from slopewise_exporter.threads.cpu import affinity_cores, limit_cores
from slopewise_exporter.threads.number import fitting
from slopewise_exporter.values import Checker, parse_flag

VARIABLE = "SLOPEWISE_THREADS"

OURS_VARIABLE = "SLOPEWISE_THREADS_SET"
"""The variables that this package has set, as `NAME=NUMBER,...`: one that has another value since is the user's."""

OFF, FOLLOW, WAIT = 0, -1, -2
"""What `setting` returns beside numbers of 1 or more."""

GENERAL = "OMP_NUM_THREADS"
"""Read by OpenMP, and by OpenBLAS, MKL, BLIS and numexpr where their own variable is not set."""

NUMBERS = (GENERAL, "VECLIB_MAXIMUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
"""What is set: Accelerate and TensorFlow read their own variables alone."""

_WAITING = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",  # GCC's OpenMP
    "KMP_BLOCKTIME": "0",  # Intel's and LLVM's, which MKL uses
    "OPENBLAS_THREAD_TIMEOUT": "4",  # the least that it takes: 2**4 cycles
}
"""BLIS and Accelerate have no such variable."""

_LOCAL_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "HOROVOD_LOCAL_SIZE",
)
"""Where launchers put the number of a job's processes on this machine. Slurm binds its tasks to cores of their own."""


def setting(environ: Mapping[str, str], check: Checker) -> int:
    """A number of threads, `FOLLOW`, `WAIT` or `OFF`. Other text is reported once, and changes nothing."""
    text = (environ.get(VARIABLE) or "wait").strip().lower()
    if text == "off" or _flag(environ.get("SLOPEWISE_EXPORTER_DISABLED")):
        return OFF
    if text in ("wait", "follow"):
        return WAIT if text == "wait" else FOLLOW
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    if OURS_VARIABLE not in environ:
        check.warn(
            VARIABLE,
            f"{VARIABLE}: {text[:80]!r} is not `wait`, `follow`, `off` or a number of 1 or more; nothing is changed",
        )
    return OFF


def at_start(environ: Mapping[str, str], check: Checker) -> dict[str, str]:
    """The variables to add to `environ`; none with `off`. Never raises."""
    try:
        return _at_start(environ, check)
    except Exception as error:
        check.warn("threads", f"threads stay as they are ({type(error).__name__}: {error})")
        return {}


def _at_start(environ: Mapping[str, str], check: Checker) -> dict[str, str]:
    wanted = setting(environ, check)
    if wanted == OFF:
        told = VARIABLE in environ and check.warned(VARIABLE)
        return {OURS_VARIABLE: ""} if told else {}
    added = waiting(environ)
    if wanted == WAIT:
        return added
    most = affinity_cores()
    number = min(most, fitting(limit_cores() / local_ranks(environ))) if wanted == FOLLOW else wanted
    ours = set(ours_in(environ))
    # A library that finds no variable counts the cores itself: one that is not limited is left to do so.
    if not is_by_hand(environ, GENERAL) and (wanted != FOLLOW or number != most or ours):
        ours |= {name for name in NUMBERS if not environ.get(name)}
    return {**added, **_recorded(ours, number)}


def sets_numbers(environ: Mapping[str, str]) -> bool:
    """Whether the number of threads is set, also in ranks that report nothing."""
    return setting(environ, Checker()) not in (OFF, WAIT)


def waiting(environ: Mapping[str, str]) -> dict[str, str]:
    """Waiting without spinning, by the variables that are not set; none with `off`."""
    if setting(environ, Checker()) == OFF:
        return {}
    return {name: text for name, text in _WAITING.items() if not environ.get(name)}


def ours_in(environ: Mapping[str, str]) -> dict[str, int]:
    """The numbers of threads that this package has set and nobody has changed since, by variable."""
    items = (item.partition("=") for item in environ.get(OURS_VARIABLE, "").split(","))
    return {name: int(text) for name, _, text in items if text.isdecimal() and environ.get(name) == text}


def is_by_hand(environ: Mapping[str, str], name: str) -> bool:
    """Whether the user, or the training itself, has set a variable with a number of threads."""
    return bool(environ.get(name)) and name not in ours_in(environ)


def local_ranks(environ: Mapping[str, str]) -> int:
    """How many processes of this job share the machine's CPU; 1 where no launcher says so."""
    sizes = (environ.get(name, "") for name in _LOCAL_SIZES)
    return next((int(size) for size in sizes if size.isdecimal() and int(size) > 0), 1)


def set_ours(number: int) -> None:
    """Libraries and processes that begin from now on count from here."""
    ours = ours_in(os.environ)
    if ours:
        os.environ.update(_recorded(ours, number))


def _recorded(names: Iterable[str], number: int) -> dict[str, str]:
    """The variables with this number, and the record that this package has set them."""
    return {**dict.fromkeys(names, str(number)), OURS_VARIABLE: ",".join(f"{name}={number}" for name in sorted(names))}


def _flag(text: str | None) -> bool:
    try:
        return bool(text) and parse_flag(text)
    except ValueError:
        return False
