"""Sets the number of threads of the libraries that this process has loaded, for the thread that calls it."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterable
from functools import wraps
from types import ModuleType
from typing import Any

from slopewise_exporter.threads.at_start import GENERAL, is_by_hand, ours_in
from slopewise_exporter.threads.cpu import affinity_cores
from slopewise_exporter.values import Checker

_VARIABLES = {"openblas": "OPENBLAS_NUM_THREADS", "mkl": "MKL_NUM_THREADS", "blis": "BLIS_NUM_THREADS"}
"""By the name that threadpoolctl has for a library: what a user sets for it alone."""

_UNCHANGEABLE = ("tensorflow", "jax", "catboost")
"""Modules that count their threads once."""

_torch_by_hand = False
"""Whether the training has called `torch.set_num_threads` itself."""


def watch_torch(torch: ModuleType) -> None:
    """Notice a number that the training sets itself, from now on."""
    original = torch.set_num_threads
    if getattr(original, "of_slopewise", None) is not None:
        return

    @wraps(original)
    def set_num_threads(number: int) -> None:
        global _torch_by_hand  # noqa: PLW0603 - the library has one number
        original(number)
        _torch_by_hand = True

    set_num_threads.of_slopewise = original  # type: ignore[attr-defined]
    torch.set_num_threads = set_num_threads  # type: ignore[attr-defined]


class Libraries:
    """The pools of OpenMP and BLAS, and PyTorch's.

    Each gets at most what it had when it was first seen. A number that somebody else has set since stays.
    """

    def __init__(self, most: int, check: Checker, *, fixed: bool = False) -> None:
        """`most`: what a library counts itself. `fixed`: the number is the user's, and may be above that."""
        self.most = most
        self._fixed = fixed
        self._check = check
        self._ours = set(ours_in(os.environ).values())
        self._had: dict[tuple[str, int], int] = {}
        self._set: dict[tuple[str, int], int] = {}
        self.given: list[int] = []
        """The numbers that were set, the newest last."""
        self.most_given: int | None = None
        """The most that one of them may have: what the user has set, or it had at its start. None: not asked yet."""
        self.pools: list[Any] = []
        """Those of OpenMP and BLAS that were found last."""

    def set(self, number: int, *, anew: bool = False) -> int:
        """Give each its number, and return the highest that one of them has now. `anew`: no fit of LightGBM runs."""
        before = self.given[-1:]
        self.given.append(number)
        if is_by_hand(os.environ, GENERAL):
            self.most_given = int(os.environ[GENERAL].partition(",")[0])
            return self.most_given
        self.pools = list(_pools(self._check))
        pools = [*self.pools, *_torch()]
        # All are asked before one is set: some of them share a number, which belongs to the thread that asks.
        asked = [(pool, (pool.filepath, threading.get_ident()), pool.num_threads) for pool in pools]
        mine = [(pool, key, has) for pool, key, has in asked if self._may_set(pool, key, has)]
        lowers_only = "lightgbm" in sys.modules and not anew
        for pool, key, has in mine:
            to_set = number if self._fixed else min(number, self._had[key])
            # LightGBM's buffers are made for the threads that it has counted: with more of them it crashes.
            pool.set_num_threads(min(to_set, has) if lowers_only and pool.user_api == "openmp" else to_set)
            getattr(type(pool), "clear_controlling_thread", int)()  # other threads of the training may set it too
        self._set.update({key: pool.num_threads for pool, key, _ in mine})
        ours = {key for _, key, _ in mine}
        most = (self._had[key] if key in ours else has for _, key, has in asked)
        self.most_given = number if self._fixed else max((each for each in most if each), default=self.most)
        if ours_in(os.environ):
            self._ours.add(number)
        if before not in ([], [number]):
            for name in filter(sys.modules.__contains__, _UNCHANGEABLE):
                self._check.warn(name, f"threads: {name} cannot change their number after its start")
        return max((pool.num_threads for pool in pools if pool.num_threads), default=number)

    def _may_set(self, pool: Any, key: tuple[str, int], has: int | None) -> bool:
        if has is None or is_by_hand(os.environ, _VARIABLES.get(pool.internal_api, "")):
            return False
        if _torch_by_hand and pool.user_api == "openmp":
            return False
        if key not in self._had:
            # A number that this package has set for libraries to come is not what it would have counted.
            self._had[key] = self.most if has in self._ours else has
        elif has != self._set.get(key):
            self._check.inform(f"threads: the training has given {pool.internal_api} {has} itself; they stay")
            self._set.pop(key, None)
            return False
        return True


class _Torch:
    """What `Libraries` needs of a pool."""

    filepath = internal_api = "torch"
    user_api = "openmp"

    def __init__(self, torch: ModuleType) -> None:
        watch_torch(torch)
        self._torch = torch

    @property
    def num_threads(self) -> int:
        return int(self._torch.get_num_threads())

    def set_num_threads(self, number: int) -> None:
        self._torch.set_num_threads.of_slopewise(number)


def _torch() -> Iterable[_Torch]:
    torch = sys.modules.get("torch")
    return [_Torch(torch)] if hasattr(torch, "set_num_threads") else []  # type: ignore[arg-type]


def openmp_threads(pools: Iterable[Any] = ()) -> int:
    """What a library that asks OpenMP counts now, in this thread; the cores where none says.

    `pools`: those that were just found; it takes some milliseconds to look at hundreds of loaded files.
    """
    numbers = (pool.num_threads for pool in pools or _pools(Checker()) if pool.user_api == "openmp")
    ours = ours_in(os.environ).values()
    return min((number for number in (*numbers, *ours) if number), default=affinity_cores())


def _pools(check: Checker) -> Iterable[Any]:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        check.inform("threads: OpenMP's and BLAS' change with threadpoolctl only: install slopewise-exporter[threads]")
        return ()
    with warnings.catch_warnings():  # of two kinds of OpenMP in one process, which are the training's
        warnings.simplefilter("ignore")
        return ThreadpoolController().lib_controllers  # type: ignore[no-any-return]
