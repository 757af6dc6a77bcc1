"""The plan in the options of a command."""

from __future__ import annotations

import pytest

from slopewise_exporter.instrument.follower import OutputFollower, planned_in
from slopewise_exporter.logs import Found
from slopewise_exporter.reporter import Reporter


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --epochs 60", Found(epochs_planned=60)),
        ("train --num-epochs=3 --max_steps 1000", Found(epochs_planned=3, steps_planned=1000)),
        ("train --epochs", Found()),
        ("train --epochs many --max-steps -1", Found()),
        ("train --epochs=nan --save-epochs 5 epochs 7 --loss 3", Found()),
    ],
)
def test_a_plan_is_an_option_with_a_positive_number(command: str, expected: Found) -> None:
    assert planned_in(command.split()) == expected


def test_what_is_printed_replaces_the_plan_of_the_command(reporter: Reporter) -> None:
    follower = OutputFollower([], lambda: reporter, lambda: ["--max-steps", "1000"])
    follower.take("step 1 loss=0.5")
    assert reporter.planned_steps == 1000
    follower.take("step 2/50 loss=0.5")
    assert reporter.planned_steps == 50
