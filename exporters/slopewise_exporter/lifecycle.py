"""Forks and the end of the process, for reporters that are open.

A reporter announces itself when it opens an endpoint, and takes itself off when it closes. One hook each for the whole
process, however many reporters come and go, because a fork hook can never be taken back.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
from contextlib import suppress
from typing import Any, Callable, TypeVar

from slopewise_exporter.environment import EndpointSettings
from slopewise_exporter.values import Checker

Endpoint = TypeVar("Endpoint")
Registry = TypeVar("Registry")


_INTERACTIVE_LINGER_SECONDS = 0.5
"""Longest wait for a last scrape where `is_interactive`: no cell takes a second to close."""

_open: list[Any] = []
"""Reporters, which have `port`, `end` and `abandon_after_fork`."""

before_opening: list[Callable[[], None]] = []
"""Called before an endpoint is opened: what reports a training without its code frees the port for the code's own."""


def opening() -> None:
    """An endpoint is about to be opened."""
    for call in before_opening:
        call()


def opened(reporter: object) -> None:
    """Look after `reporter` from now on."""
    _open.append(reporter)


def newest() -> Any:
    """The reporter that was opened last and is open; None: there is none."""
    return _open[-1] if _open else None


def taking_over(
    listen: Callable[[str, int, Registry], Endpoint], settings: EndpointSettings, registry: Registry, check: Checker
) -> Endpoint:
    """What `listen` opens; where an earlier training of this process has the port, once that has left.

    A cell of a notebook is run again. In a script there is a warning. OSError where another program has the port.
    """
    try:
        return listen(settings.address, settings.port, registry)
    except OSError as error:
        earlier = next((reporter for reporter in _open if reporter.port == settings.port), None)
        leave = getattr(earlier, "leave", None)  # a served model does not
        if error.errno != errno.EADDRINUSE or leave is None:
            raise
        leave()
    if not is_interactive():
        check.warn(
            "port", f"this Reporter has port {settings.port} now: an earlier one of this process reports no more"
        )
    return listen(settings.address, settings.port, registry)


def is_interactive() -> bool:
    """Whether somebody waits for each call: at Python's prompt, in IPython or in a notebook.

    All three set `sys.ps1`. A script may have `ipykernel` among its modules, and is run to its end all the same.
    """
    return hasattr(sys, "ps1")


def patience(linger_seconds: float, *, pushes: bool) -> float:
    """How long closing waits for a last scrape. At a prompt, not at all with `pushes`, which take up to 1 s."""
    if not is_interactive():
        return linger_seconds
    return 0.0 if pushes else min(linger_seconds, _INTERACTIVE_LINGER_SECONDS)


def closed(reporter: object) -> None:
    """No more; one that was not open is no error."""
    with suppress(ValueError):
        _open.remove(reporter)


def _abandon_all_after_fork() -> None:
    # A data loader's worker is a copy of the trainer with its counters: it must not report them as its own.
    for reporter in _open:
        reporter.abandon_after_fork()
    _open.clear()


def _end_all_at_exit() -> None:
    # For a training that forgot close(). The interpreter keeps the type of an uncaught exception in
    # sys.last_type; reading it replaces a hook in sys.excepthook, which the next library would overwrite.
    uncaught = getattr(sys, "last_type", None)
    for reporter in list(_open):
        reporter.end(failed=uncaught is not None, linger=uncaught is not KeyboardInterrupt)


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(after_in_child=_abandon_all_after_fork)
atexit.register(_end_all_at_exit)
