"""What becomes of a job that reports nothing, and of its neighbours, under every policy that gives CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from support.instances import AT_ONCE, Exponential, a_policy_run, a_sim_job, a_sim_node, an_instance

from slopewise.model import CpuControl
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import Instance, RunOutcome

GIVE_CPU = ["deadline", "dqoes", "flowcon", "las", "srpt-oracle", "tradl"]
"""`flowcon2` gives CPU as `flowcon` does."""
SILENT = "silent"


def two_trainings_beside_one_that_reports_nothing() -> Instance:
    """On one core; the silent one comes while one of them has converged, and ends first under fair sharing."""
    objectives: dict[str, Any] = {
        "steps_planned": 1000, "deadline_seconds": 900.0, "target_level": 0.01, "qoe_seconds": 1.0
    }  # fmt: skip
    jobs = [a_sim_job(f"k{k}", 300.0, curve=Exponential(k), **objectives) for k in (4.0, 40.0)]
    silent = a_sim_job(SILENT, 60.0, 90.0, steps_planned=600, reports=False)
    return an_instance([*jobs, silent], [a_sim_node(cpu=1.0)])


@cache
def outcome(policy: str, control: CpuControl) -> RunOutcome:
    # Of two weights that change together a small change may be withheld, and the sum beside the silent job's differs.
    behaviour = AT_ONCE.model_copy(update={"min_change_ratio": 0.0})
    return run(
        two_trainings_beside_one_that_reports_nothing(),
        a_policy_run(policy, control=control, behaviour=behaviour),
        trace=True,
    )


def ended_seconds(outcome: RunOutcome, name: str) -> float:
    (seconds,) = [job.finished_seconds for job in outcome.jobs if job.name == name]
    assert seconds is not None
    return seconds


@pytest.mark.parametrize("control", ["limits", "requests"])
@pytest.mark.parametrize("policy", GIVE_CPU)
def test_it_is_not_resized_and_takes_as_long_as_under_fair_sharing(policy: str, control: CpuControl) -> None:
    managed = outcome(policy, control)
    assert SILENT not in {event.job for event in managed.events if event.kind == "resized"}
    fair = ended_seconds(outcome("fair", control), SILENT)
    if control == "requests":  # under hard limits, what the others may not use is the silent job's as well
        assert ended_seconds(managed, SILENT) == pytest.approx(fair, rel=0.01)
    else:
        assert ended_seconds(managed, SILENT) <= 1.01 * fair
