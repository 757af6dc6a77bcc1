"""Begins to report the training of this process, when Python starts: `SLOPEWISE_EXPORTER=1` calls `start`.

It is called by `slopewise_exporter.pth`, which an installed package brings, and by `bootstrap/sitecustomize.py`, which
`slopewise-exporter run` puts on the path of its command.
"""

from __future__ import annotations

import os
import sys

from slopewise_exporter.values import Checker, parse_flag

SWITCH = "SLOPEWISE_EXPORTER"

active = False
"""Whether this process is being watched."""

_called = False


def start() -> None:
    """Watch imports and output of this process, once. Never raises: the training starts whatever happens here."""
    global active, _called  # noqa: PLW0603 - one process starts once
    if _called:  # Python reads a .pth file twice where lib64 is a link to lib
        return
    _called = True
    check = Checker()
    if not check.read(SWITCH, os.environ.get(SWITCH) or "0", parse_flag, False, "1 or 0"):
        return
    try:
        from slopewise_exporter.threads.at_start import at_start

        os.environ.update(at_start(os.environ, check))
        _start()
    except Exception as error:
        check.warn("startup", f"{SWITCH}=1 has no effect here ({type(error).__name__}: {error})")
        return
    active = True


def _start() -> None:
    from slopewise_exporter import lifecycle
    from slopewise_exporter.instrument.follower import PATTERN_VARIABLE, OutputFollower, patterns_in
    from slopewise_exporter.instrument.frameworks import after_import, hooks
    from slopewise_exporter.instrument.printed import PrintedOutput
    from slopewise_exporter.instrument.training import Training

    training = Training(os.environ)
    patterns = patterns_in(os.environ.get(PATTERN_VARIABLE, ""))
    follower = OutputFollower(patterns, training.by_output, lambda: sys.argv[1:])
    printed = PrintedOutput(follower, lambda: training.follows_output)
    lifecycle.before_opening.append(training.step_aside)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=training.abandon_after_fork)
        os.register_at_fork(after_in_child=printed.abandon_after_fork)
    after_import(hooks(training))
    printed.follow()
