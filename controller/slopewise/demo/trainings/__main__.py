"""`python -m slopewise.demo.trainings NAME [--steps N] [--seed S]`: one training as a process of its own.

`slopewise_exporter` serves its metrics (SLOPEWISE_EXPORTER_PORT says where); standard output gets one line per
evaluation. Where SLOPEWISE_CHECKPOINT_FOLDER names a folder, SIGTERM makes it save and leave with 143, and the next
start goes on from there. Exit code 0 when all steps were done, 2 for a wrong argument, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from slopewise.demo.job_process import exit_code_of, use_one_thread
from slopewise.demo.trainings._loop import train
from slopewise.demo.trainings.catalogue import TRAININGS
from slopewise_exporter import Checkpoints, Reporter


def main() -> None:
    """Run one training to its end."""
    parser = argparse.ArgumentParser(prog="python -m slopewise.demo.trainings")
    parser.add_argument("name", choices=TRAININGS)
    parser.add_argument("--steps", type=int, default=0, help="default: the training's usual number")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    options = parser.parse_args()
    training = TRAININGS[options.name]
    use_one_thread()
    steps = options.steps or training.steps
    # Before the imports and the data, which take a second: until then it is `starting`, not unknown.
    with (
        Reporter(planned_steps=steps, framework=training.framework, model=training.model) as reporter,
        Checkpoints(reporter=reporter) as checkpoints,
    ):
        learner = training.learner(options.seed, steps)
        train(learner, steps, reporter, checkpoints, log=partial(print, flush=True))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
