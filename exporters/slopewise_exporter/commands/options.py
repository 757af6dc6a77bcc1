"""Options that `run`, `tail` and `check-pattern` have in common: patterns, and the names of the loss and of counts."""

from __future__ import annotations

import argparse
import os

from slopewise_exporter.instrument.follower import PATTERN_VARIABLE, patterns_in

_FIELDS = {
    "loss": "loss",
    "eval": "evaluation",
    "step": "step",
    "steps-planned": "steps_planned",
    "epoch": "epoch",
    "epochs-planned": "epochs_planned",
}
"""Option `--NAME-name`: field of `Found`."""


def add_pattern_options(parser: argparse.ArgumentParser) -> None:
    """`--pattern` and `--loss-name`, each as often as is wanted."""
    parser.add_argument(
        "--pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help="with one group, the loss; with two, a name and its value, as Katib's metricsFormat; or with groups "
        "called loss, evaluation, step, steps_planned, epoch, epochs_planned. "
        "SLOPEWISE_EXPORTER_PATTERN has one in each line",
    )
    for option, field in _FIELDS.items():
        help_text = f"what the log calls the {field.replace('_', ' ')}; may be given again"
        parser.add_argument(f"--{option}-name", action="append", default=[], metavar="NAME", help=help_text)


def patterns_of(options: argparse.Namespace) -> list[str]:
    """Of the command line, or else of the environment."""
    return list(options.pattern) or patterns_in(os.environ.get(PATTERN_VARIABLE, ""))


def names_of(options: argparse.Namespace) -> dict[str, list[str]]:
    """Field of `Found`: the user's names for it."""
    given = {field: getattr(options, f"{option.replace('-', '_')}_name") for option, field in _FIELDS.items()}
    return {field: names for field, names in given.items() if names}
