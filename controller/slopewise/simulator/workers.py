"""Worker processes of a sweep, which end when it ends, fails or is stopped.

The standard library's `ProcessPoolExecutor` has no way to give up a run that takes minutes. Killing its processes would
do, but one killed while it sends a large outcome leaves the parent reading the rest forever. So a worker that is asked
to end gives up its run, and what it sends it sends whole.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread, Timer, current_thread, main_thread
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")

_FROM_A_TERMINAL = {signal.SIGINT, signal.SIGHUP}
_STOPPING = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

_GRACE_SECONDS = 2.0
"""How long a worker may send its outcome after SIGTERM: a traced run of 30 jobs is about 1 MB."""


class WorkerStopped(BaseException):
    """A worker received SIGTERM and abandoned its run. Not an `Exception`, which the code that it runs might catch."""


class _State:
    """Of this worker process."""

    busy = False
    stopping = False


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes, which end with this block, however it is left; give them `carry_out`."""
    others = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Start workers in here. A signal waits until all are started: half a start would end in a worker's traceback.

    The workers inherit the mask, and so never see Ctrl-C, which a terminal sends to them as well: ending them is our
    part. The mask alone would not hold a signal back, because a thread of numpy's may take it for us.
    """
    held: list[int] = []
    before = {}
    if current_thread() is main_thread():
        handlers = {number: signal.getsignal(number) for number in _STOPPING}
        before = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _frame: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FROM_A_TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def carry_out(task: Callable[[], Result]) -> Result:
    """In a worker: the task's result, or `WorkerStopped` as soon as the worker receives SIGTERM."""
    if _State.stopping:
        raise WorkerStopped
    _State.busy = True
    try:
        return task()
    finally:
        _State.busy = False


def _begin() -> None:
    """What a worker does first."""
    signal.signal(signal.SIGTERM, _on_terminate)
    Thread(target=_end_with_parent, daemon=True).start()


def _on_terminate(_number: int, _frame: FrameType | None) -> None:
    if not _State.stopping:
        _State.stopping = True
        last = Timer(_GRACE_SECONDS, os._exit, (1,))
        last.daemon = True
        last.start()
    if _State.busy:
        _State.busy = False
        raise WorkerStopped


def _end_with_parent() -> None:
    """End when the sweep was killed: the pool's own workers would wait for tasks forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
