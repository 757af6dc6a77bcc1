"""A sweep: the same figures from any worker and in any order; stopped or failed, nothing is left running."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from multiprocessing import active_children
from typing import Any

import pytest
from support.scenarios import a_scenario

from slopewise.errors import SlopewiseError
from slopewise.signals import Interrupted
from slopewise.simulator import engine
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.scenario import Scenario
from slopewise.simulator.sweep import FAIR_RUNS, Simulator, runs_of, simulate
from slopewise.simulator.world.model import Instance, PolicyRun, RunOutcome

SEEDS = (1, 2, 3)


def two_nodes(**spec: Any) -> Scenario:
    return a_scenario(
        "two-nodes",
        **{
            "nodes": [{"name": "n", "cpu": 1, "memoryGiB": 8, "count": 2}],
            "generate": {"count": 4, "arriveSeconds": {"uniform": [0, 60]}, "models": {"gru": 1, "mnist-pytorch": 1}},
            "policies": ["flowcon", {"name": "flowcon", "label": "strict", "parameters": {"alpha": 0.1}}],
            **spec,
        },
    )


def fails_in_seed_2(instance: Instance, policy: PolicyRun, *, trace: bool = False) -> RunOutcome:
    if instance.seed == 2:
        raise SlopewiseError(f"Job x can never end under {policy.label}.")
    return engine.run(instance, policy, trace=trace)


def dies(instance: Instance, policy: PolicyRun, *, trace: bool = False) -> RunOutcome:
    """As a process that the kernel kills for want of memory."""
    os._exit(9)


def is_stopped_in_seed_3(instance: Instance, policy: PolicyRun, *, trace: bool = False) -> RunOutcome:
    if instance.seed == 3 and policy.label == "strict":
        raise Interrupted(2)
    return engine.run(instance, policy, trace=trace)


@pytest.fixture(scope="module")
def result() -> SweepResult:
    return simulate(two_nodes(), SEEDS, workers=1, keep_runs_of=(2,))


# --- figures ----------------------------------------------------------------------------------------------


def test_fair_comes_first_each_policy_has_each_seed_and_runs_are_kept_as_asked(result: SweepResult) -> None:
    assert result.policies == ("fair", "flowcon", "strict")
    assert (result.seeds, result.partial, result.stopped) == (SEEDS, False, None)
    for policy in result.policies:
        times = result.values[policy]["jct_mean_seconds"]
        assert len(times) == 3
        assert all(each is not None and each > 0 for each in times)
    assert "makespan_seconds" in result.measures
    assert "deadlines_met_ratio" not in result.measures, "no job has a deadline"
    assert sorted(result.runs) == [("fair", 2), ("flowcon", 2), ("strict", 2)]
    assert [run.events for run in result.runs.values()] == [()] * 3, "nobody asked for a trace"


def test_the_ratio_to_fair_is_the_mean_of_the_seeds_ratios(result: SweepResult) -> None:
    """Not the ratio of the means, in which a seed with long jobs would count for more."""
    fair, flowcon = (result.values[policy]["jct_mean_seconds"] for policy in ("fair", "flowcon"))
    ratios = [ours / base for ours, base in zip(flowcon, fair, strict=True) if ours is not None and base]
    estimate = result.ratio_to_fair()["flowcon"]["jct_mean_seconds"]
    assert estimate.mean == pytest.approx(sum(ratios) / 3)
    assert estimate.count == 3
    assert "fair" not in result.ratio_to_fair()


def test_the_worst_job_is_measured_against_eight_fair_runs_of_other_tie_breaks() -> None:
    seed = 1
    asked: list[int] = []

    def counted(instance: Instance, tie_break_seed: int) -> RunOutcome:
        asked.append(tie_break_seed)
        return engine.run_unmanaged(instance, tie_break_seed)

    found = simulate(two_nodes(), [seed], workers=1, policies=["strict"], simulator=Simulator(run_unmanaged=counted))
    assert found.policies == ("fair", "strict"), "those that were named, and the baseline"
    assert len(set(asked)) == len(asked) == FAIR_RUNS == 8
    assert seed not in asked  # with which the measured runs break their ties


# --- processes --------------------------------------------------------------------------------------------


def test_the_number_of_workers_changes_nothing(result: SweepResult) -> None:
    done = count()
    parallel = simulate(two_nodes(), SEEDS, workers=3, keep_runs_of=(2,), on_done=partial(next, done))
    assert parallel == result
    assert next(done) == runs_of(seeds=3, policies=3) == 3 * 4  # three policies and the fair runs
    assert active_children() == []


def test_runs_are_handed_over_in_order_with_their_events() -> None:
    seen: list[tuple[int, str, bool]] = []
    on_run: Callable[[RunOutcome], None] = lambda run: seen.append((run.seed, run.policy, bool(run.events)))  # noqa: E731
    simulate(two_nodes(), [1, 2], workers=2, on_run=on_run)
    assert seen == [(seed, policy, True) for seed in (1, 2) for policy in ("fair", "flowcon", "strict")]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_cannot_end_ends_the_sweep_with_its_sentence(workers: int) -> None:
    with pytest.raises(SlopewiseError, match=r"^Job x can never end under fair\.$"):
        simulate(two_nodes(), SEEDS, workers, simulator=Simulator(run=fails_in_seed_2))
    assert active_children() == []


def test_a_worker_that_was_killed_is_reported_with_what_to_do() -> None:
    with pytest.raises(SlopewiseError, match="want of memory; use fewer --workers"):
        simulate(two_nodes(), SEEDS, workers=2, simulator=Simulator(run=dies))
    assert active_children() == []


# --- stopped ----------------------------------------------------------------------------------------------


def test_a_sweep_that_is_stopped_keeps_the_seeds_that_are_whole(result: SweepResult) -> None:
    found = simulate(two_nodes(), SEEDS, workers=1, simulator=Simulator(run=is_stopped_in_seed_3), keep_runs_of=(3,))
    assert (found.seeds, found.partial) == ((1, 2), True)
    assert found.stopped is not None
    assert found.stopped.exit_code == 130
    assert found.values["strict"]["jct_mean_seconds"] == result.values["strict"]["jct_mean_seconds"][:2]
    assert found.runs == {}  # seed 3 was cut short
    printed = found.as_json()
    assert (printed["seeds"], printed["partial"]) == (2, {"seeds_asked": 3, "seeds_done": [1, 2]})


def test_a_stop_while_workers_are_busy_keeps_whole_seeds_and_ends_the_workers(result: SweepResult) -> None:
    def stop_in_seed_2(run: RunOutcome) -> None:
        if run.seed == 2:
            raise Interrupted(15)

    found = simulate(two_nodes(), SEEDS, workers=2, on_run=stop_in_seed_2)
    assert found.stopped is not None
    assert 2 not in found.seeds
    assert 1 in found.seeds
    assert found.figures["strict"][0] == result.figures["strict"][0]
    assert active_children() == []
