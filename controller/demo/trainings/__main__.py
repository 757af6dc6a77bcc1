"""`python -m controller.demo.trainings NAME [--steps N] [--seed S]`: one training as a process of its own.

`slopewise_exporter` serves its metrics (SLOPEWISE_EXPORTER_PORT says where); standard output gets one line per
evaluation. Exit code 0 when all steps were done, 2 for a wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from controller.demo.trainings._loop import train
from controller.demo.trainings.catalogue import TRAININGS, find_training, require_scikit_learn
from controller.errors import SlopewiseError, UsageError
from slopewise_exporter import Reporter

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: list[str] | None = None) -> int:
    """Run one training to its end; the process's exit code."""
    try:
        options = _parser().parse_args(arguments)
        _run(options.name, options.steps, options.seed)
    except SlopewiseError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    return 0


def _run(name: str, steps: int | None, seed: int) -> None:
    training = find_training(name)
    require_scikit_learn()
    _use_one_thread()
    steps = steps or training.steps
    # Before the imports and the data, which take a second: until then it is `starting`, not unknown.
    with Reporter(planned_steps=steps, framework=training.framework, model=training.model) as reporter:
        train(training.learner(seed, steps), steps, reporter, log=partial(print, flush=True))


def _use_one_thread() -> None:
    """One thread a job: BLAS reads these once, when numpy is first imported."""
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; --help shows what can be given.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m controller.demo.trainings",
        description="One of the built-in trainings of `slopewise demo`.",
        epilog="\n".join(f"{training.name:20} {training.summary}" for training in TRAININGS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="one of those below")
    parser.add_argument("--steps", type=_whole_number(1), metavar="N", help="default: the training's usual number")
    parser.add_argument("--seed", type=_whole_number(0), default=0, metavar="S", help="default: %(default)s")
    return parser


def _whole_number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return parse


if __name__ == "__main__":
    sys.exit(main())
