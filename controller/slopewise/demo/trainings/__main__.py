"""`python -m slopewise.demo.trainings NAME [--steps N] [--seed S]`: one training as a process of its own.

`slopewise_exporter` serves its metrics (SLOPEWISE_EXPORTER_PORT says where); standard output gets one line per
evaluation. Where SLOPEWISE_CHECKPOINT_FOLDER names a folder, SIGTERM makes it save and leave with 143, and the next
start goes on from there. Exit code 0 when all steps were done, 2 for a wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from slopewise.demo.job_process import Parser, exit_code_of, use_one_thread, whole_number
from slopewise.demo.trainings._loop import train
from slopewise.demo.trainings.catalogue import TRAININGS, find_training, require_scikit_learn
from slopewise_exporter import Checkpoints, Reporter


def main(arguments: list[str] | None = None) -> int:
    """Run one training to its end; the process's exit code."""
    return exit_code_of(partial(_run, arguments))


def _run(arguments: list[str] | None) -> None:
    options = _parser().parse_args(arguments)
    _train(options.name, options.steps, options.seed)


def _train(name: str, steps: int | None, seed: int) -> None:
    training = find_training(name)
    require_scikit_learn()
    use_one_thread()
    steps = steps or training.steps
    # Before the imports and the data, which take a second: until then it is `starting`, not unknown.
    with (
        Reporter(planned_steps=steps, framework=training.framework, model=training.model) as reporter,
        Checkpoints(reporter=reporter) as checkpoints,
    ):
        train(training.learner(seed, steps), steps, reporter, checkpoints, log=partial(print, flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m slopewise.demo.trainings",
        description="One of the built-in trainings of `slopewise demo`.",
        epilog="\n".join(f"{training.name:20} {training.summary}" for training in TRAININGS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="one of those below")
    parser.add_argument("--steps", type=whole_number(1), metavar="N", help="default: the training's usual number")
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="S", help="default: %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(main())
