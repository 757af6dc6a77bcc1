"""What the demo's job processes have in common: one thread, and exit codes.

`trainings/__main__.py` and `serving/__main__.py` are such processes; `supervisor.py` starts them as it starts a
user's commands, and they know nothing of the controller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from slopewise.errors import SlopewiseError

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
