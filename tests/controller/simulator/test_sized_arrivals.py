"""Arrivals that only state a deadline start with the CPU that jobs of their class have shown to need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.instances import IDEAL, a_policy_run, a_sim_job, a_sim_node, an_instance

from slopewise.model import CpuControl
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Instance

STEPS = 600
WORK_CPU_SECONDS = 600.0


def two_of_a_class(second_model: str = "vae") -> Instance:
    """The second arrives when the first has ended, and has 1500 s for 600 CPU-seconds."""
    first = replace(a_sim_job("first", WORK_CPU_SECONDS, steps_planned=STEPS, deadline_seconds=1500.0), model="vae")
    second = a_sim_job("second", WORK_CPU_SECONDS, 1000.0, steps_planned=STEPS, deadline_seconds=2500.0)
    instance = an_instance([first, replace(second, model=second_model)], [a_sim_node(cpu=2.0)])
    return replace(instance, physics=IDEAL)


def sizes(instance: Instance, control: CpuControl = "requests", **parameters: object) -> Mapping[str, object]:
    """Millicores by job, of those that were sized."""
    policy = replace(a_policy_run("deadline", control=control), parameters={"gamma": 0.8, **parameters})
    outcome = run(instance, policy, trace=True)
    return {event.job: event.detail["request_millicores"] for event in outcome.events if event.kind == "sized"}


@pytest.mark.parametrize("control", ["requests", "limits"])
def test_the_second_of_a_class_starts_with_what_its_deadline_needs(control: CpuControl) -> None:
    """600 CPU-seconds in 0.8 x 1500 s are half a core; paces are measured within a few percent."""
    found = sizes(two_of_a_class(), control, size_arrivals=True)
    assert found == {"second": pytest.approx(500, rel=0.1)}


def test_without_history_a_job_starts_with_what_it_came_with() -> None:
    assert sizes(two_of_a_class("another"), size_arrivals=True) == {}


def test_sizes_are_written_unless_that_is_switched_off() -> None:
    assert sizes(two_of_a_class())
    assert sizes(two_of_a_class(), size_arrivals=False) == {}
