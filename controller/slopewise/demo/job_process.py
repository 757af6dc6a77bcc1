"""Entry code of the demo's job processes: one thread, argument errors, exit codes.

`trainings/__main__.py` and `serving/__main__.py` are such processes; `supervisor.py` starts them as it starts a
user's commands, and they know nothing of the controller.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from slopewise.errors import SlopewiseError, UsageError

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` for a wrong argument, instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """One sentence."""
        raise UsageError(f"{message}; --help shows what can be given.")


def number_above_0(text: str) -> float:
    """Of an argument; `ArgumentTypeError` for any other text."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def whole_number(least: int) -> Callable[[str], int]:
    """Reads an argument; `ArgumentTypeError` for any other text."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return parse


def use_one_thread() -> None:
    """One thread a job: BLAS and OpenMP read these once, when they are loaded.

    Enough for scipy's and scikit-learn's, which come later; numpy's own is loaded with our modules, so who starts us
    sets them too (`single_thread_environment`).
    """
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))


def exit_code_of(work: Callable[[], None]) -> int:
    """Do the work; 0, the code of an error whose sentence went to standard error, or 130 after Ctrl-C."""
    try:
        work()
    except SlopewiseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    return 0
