"""Jobs that report what is not so: plans that are wrong, fake slopes; and what stands against them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from support.instances import IDEAL, a_world, pass_to
from support.scenarios import a_scenario

from slopewise.model import Job
from slopewise.simulator.engine import run, run_unmanaged
from slopewise.simulator.scenario.scenario import Scenario, load_scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import Instance, RunOutcome
from slopewise.simulator.world.observer import SimObserver

SEEDS = range(1, 4)


def with_jobs(**spec: Any) -> Scenario:
    return a_scenario(**{"generate": {"count": 40, "arriveSeconds": {"every": 1}, "models": {"gru": 1}}, **spec})


@cache
def under(policy: str, seed: int) -> RunOutcome:
    scenario = load_scenario("liars")
    return run(draw(scenario, seed), policy_runs(scenario, [policy])[-1])


def seen_after(seconds: float, instance: Instance) -> Job:
    """The only job of the instance, alone on a node."""
    world = a_world(replace(instance, physics=IDEAL))
    pass_to(world, seconds)
    (seen,) = SimObserver(world, oracle=False).observe().snapshot.jobs
    return seen


class TestPlans:
    def test_a_wrong_plan_changes_nothing_else_and_lies_within_its_range(self) -> None:
        true, wrong = (draw(with_jobs(planRatio=ratio), 1).jobs for ratio in (1, [0.5, 1.5]))
        ratios = [ours.steps_planned / theirs.steps_planned for ours, theirs in zip(wrong, true, strict=True)]  # type: ignore[operator]
        assert min(ratios) == pytest.approx(0.5, abs=0.1)
        assert max(ratios) == pytest.approx(1.5, abs=0.1)
        assert ratios == [job.plan_ratio for job in wrong]
        assert [job.work_cpu_seconds for job in wrong] == [job.work_cpu_seconds for job in true]

    def test_a_job_goes_on_beyond_a_plan_that_is_too_short(self) -> None:
        instance = draw(with_jobs(planRatio=0.5, generate=None, jobs=[{"name": "a", "model": "gru", "steps": 100}]), 1)
        seen = seen_after(0.8 * instance.jobs[0].work_cpu_seconds, instance)
        assert seen.steps_planned == 50
        assert seen.steps_total == pytest.approx(80, abs=5)

    def test_a_model_of_its_own_ratio_does_not_take_the_scenarios(self) -> None:
        model = {"workCpuSeconds": 100, "curve": {"exponential": {"k": 8}}, "planRatio": 10}
        instance = draw(with_jobs(planRatio=0.5, models={"liar": model}, jobs=[{"name": "a", "model": "liar"}]), 1)
        assert {job.model: job.plan_ratio for job in instance.jobs} == {"liar": 10, "gru": pytest.approx(0.5, abs=0.01)}


class TestSlopes:
    def test_a_fake_slope_is_what_is_seen_and_not_what_is_learnt(self) -> None:
        fake = {"points": [[0, 100], [1, 0]]}
        model = {"workCpuSeconds": 100, "noise": 0, "curve": {"exponential": {"k": 8}}, "reportedCurve": fake}
        instance = draw(with_jobs(models={"liar": model}, generate=None, jobs=[{"name": "a", "model": "liar"}]), 1)
        seen = seen_after(50.0, instance)
        assert seen.evaluation is not None
        assert seen.evaluation.level == pytest.approx(0.6, abs=0.1)  # the true curve is at 0.02 by then
        (job,) = run_unmanaged(instance, 1).jobs
        assert job.at_90_seconds == pytest.approx(28.8, abs=0.5)

    def test_a_served_model_has_none(self) -> None:
        model = {"requestCpuSeconds": 1, "reportedCurve": {"exponential": {"k": 8}}}
        with pytest.raises(Exception, match="a model that is served reports no loss; remove reportedCurve"):
            with_jobs(models={"served-too": model})


class TestLiars:
    """The shipped scenario."""

    def test_no_honest_job_ends_later_than_under_fair_sharing(self) -> None:
        """One node, so that fair sharing has no luck in it; 3 % are what the estimates of an honest plan cost."""
        worst = {}
        for seed in SEEDS:
            fair = {job.name: job.jct_seconds for job in under("fair", seed).jobs}
            worst[seed] = max(
                job.jct_seconds / fair[job.name]  # type: ignore[operator]
                for job in under("marginal", seed).jobs
                if not job.model.startswith("liar-")
            )
        assert max(worst.values()) <= 1.03, worst

    def test_without_the_guarantee_honest_jobs_do(self) -> None:
        """Or the scenario would prove nothing."""
        fair = {job.name: job.jct_seconds for job in under("fair", 1).jobs}
        late = [job for job in under("flowcon", 1).jobs if job.jct_seconds > 1.1 * fair[job.name]]  # type: ignore[operator]
        assert any(not job.model.startswith("liar-") for job in late)

    def test_a_liar_never_gets_more_than_the_cap(self) -> None:
        """Under hard limits: a share caps no job while others leave CPU."""
        scenario = load_scenario("liars", {"control": "limits"})
        outcome = run(draw(scenario, 1), policy_runs(scenario, ["marginal"])[-1], trace=True)
        liars = {job.name for job in outcome.jobs if job.model.startswith("liar-")}
        of_liars = [event for event in outcome.events if event.job in liars]
        assert max(event.detail["limit_millicores"] for event in of_liars if event.kind == "resized") == 1000  # type: ignore[type-var]
        limited = {event.job: event.at_seconds for event in reversed(of_liars) if event.kind == "resized"}
        used = [
            float(str(event.detail["cores"]))
            for event in of_liars
            if event.kind == "cpu" and event.at_seconds > limited[event.job] + 0.2  # a resize takes so long
        ]
        assert 0.5 < max(used) <= 1.0
