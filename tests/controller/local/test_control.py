"""What a local run takes where its policy does not say: which side of CPU is changed, how often jobs are scraped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from slopewise.adapters.local.limiters.choose import Limiter
from slopewise.config.training_policy import TrainingPolicy
from slopewise.local.plan import own_scrape_seconds
from slopewise.local.workshop import Workshop
from slopewise.model import CpuControl

BOTH: frozenset[CpuControl] = frozenset({"limits", "requests"})
LIMITS: frozenset[CpuControl] = frozenset({"limits"})


@pytest.mark.parametrize(
    ("resources", "controls", "control"),
    [
        ({}, BOTH, "requests"),
        ({}, LIMITS, "limits"),
        ({"cpu": {"min": "20m"}}, LIMITS, "limits"),
        ({"control": "limits"}, BOTH, "limits"),
        ({"control": "requests"}, LIMITS, "requests"),
    ],
)
def test_a_control_that_is_left_out_is_the_machines_own_and_a_written_one_stays(
    resources: dict[str, object], controls: frozenset[CpuControl], control: CpuControl
) -> None:
    workshop = Workshop(actuator="auto", announce=lambda _: None)
    workshop.limiter = cast(Limiter, SimpleNamespace(controls=controls))
    policy = TrainingPolicy.model_validate({"spec": {"resources": resources}})
    assert workshop.controlled(policy).spec.resources.control == control


@pytest.mark.parametrize(("interval", "scrape"), [(None, 5.0), (60, 5.0), (20, 5.0), (10, 2.5), (4, 1.0), (2, 1.0)])
def test_an_interval_has_four_scrapes_and_a_scrape_up_to_five_seconds(interval: float | None, scrape: float) -> None:
    policy = TrainingPolicy.model_validate({"spec": {"behaviour": {"intervalSeconds": interval}}})
    assert own_scrape_seconds(policy) == scrape
