"""Two equal trainings, one of which reports a few losses that are far off: both get what they would have got."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from support.instances import AT_ONCE, Exponential, a_policy_run, a_sim_job, an_instance

from slopewise.model import CpuControl
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Physics, Spike

ONE_SCRAPE, WHOLE_WINDOWS = 0.004, 0.05
"""Of the work, which takes 600 s of half a core: 2.4 s and 30 s, where a window is 20 s."""


@cache
def completion_seconds(spike: Spike | None, control: CpuControl = "requests") -> dict[str, float]:
    """Of a calm training and of its twin, which has this spike, under FlowCon on one core."""
    curve = Exponential(2.0)
    spikes = () if spike is None else (spike,)
    jobs = [a_sim_job("calm", 300.0, curve=curve), a_sim_job("spiked", 300.0, curve=curve, spikes=spikes)]
    instance = an_instance(jobs, physics=Physics(contention_ratio=0.0))
    settings: dict[str, Any] = {"control": control, "behaviour": AT_ONCE}
    outcome = run(instance, a_policy_run("flowcon", **settings))
    return {job.name: job.finished_seconds or 0.0 for job in outcome.jobs}


@pytest.mark.parametrize(
    ("size", "at", "lasts", "control"),
    [
        (-20.0, 0.3, WHOLE_WINDOWS, "requests"),
        (1e12, 0.3, ONE_SCRAPE, "requests"),
        (20.0, 0.0, WHOLE_WINDOWS, "limits"),
    ],
)
def test_a_spike_changes_no_trainings_cpu(size: float, at: float, lasts: float, control: CpuControl) -> None:
    ended = completion_seconds(Spike(at, at + lasts, size), control)
    assert ended["spiked"] == pytest.approx(ended["calm"], rel=0.06)
    without = completion_seconds(None, control)
    assert ended["spiked"] == pytest.approx(without["spiked"], rel=0.06)
