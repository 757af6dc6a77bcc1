"""Classes of jobs in a scenario: jobs that ended before the run, and jobs that are of no class."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import a_scenario

from slopewise.model import ClusterSnapshot, Decisions, MemoryState
from slopewise.policies import fair
from slopewise.simulator import engine
from slopewise.simulator.scenario.scenario import Scenario, policy_runs
from slopewise.simulator.workload import draw
from slopewise.simulator.world.observer import EPOCH_SECONDS

MODELS = {"gru": 1, "rnn": 1}


def with_jobs(**spec: Any) -> Scenario:
    return a_scenario(**{"generate": {"count": 4, "arriveSeconds": {"every": 30}, "models": MODELS}, **spec})


def test_a_history_has_jobs_of_each_model_and_changes_none_of_the_others() -> None:
    without, with_it = (draw(with_jobs(historyJobs=count), 1) for count in (0, 3))
    assert without.history == ()
    assert sorted(job.model for job in with_it.history) == ["gru"] * 3 + ["rnn"] * 3
    assert with_it.jobs == without.jobs
    assert len({job.work_cpu_seconds for job in with_it.history}) == 6


@pytest.mark.parametrize(("spec", "classes"), [({}, {"gru", "rnn"}), ({"workloadClasses": False}, {""})])
def test_jobs_say_which_they_are_like_unless_they_have_no_class(spec: dict[str, Any], classes: set[str]) -> None:
    assert {job.class_name for job in draw(with_jobs(**spec), 1).jobs} == classes


Passes = list[tuple[float, MemoryState]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Passes:
    """When each pass of fair sharing was, and what was remembered."""
    seen: Passes = []

    class Watching(fair.Policy):
        def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
            seen.append((snapshot.taken_at_seconds, memory))
            return super().decide(snapshot, memory)

    monkeypatch.setattr(fair, "Policy", Watching)
    return seen


def first_of_the_run(seen: Passes) -> MemoryState:
    return seen[max(number for number, (at, _) in enumerate(seen) if at == EPOCH_SECONDS)][1]


def test_a_policy_begins_with_the_historys_records_and_no_figure_counts_it(seen: Passes) -> None:
    scenario = with_jobs(historyJobs=3)
    instance = draw(scenario, 1)
    outcome = engine.run(instance, policy_runs(scenario)[0])
    assert [job.name for job in outcome.jobs] == [job.name for job in instance.jobs]
    memory = first_of_the_run(seen)
    assert {name: {each.job_uid for each in record} for name, record in memory.classes.items()} == {
        name: {f"history-{name}-{number}" for number in (1, 2, 3)} for name in MODELS
    }
    assert all(each.at_seconds <= EPOCH_SECONDS for record in memory.classes.values() for each in record)
    assert not any(uid.startswith("history-") for uid in memory.jobs)


def test_the_jobs_before_the_run_are_placed_by_the_policys_own_default_scheduler(seen: Passes) -> None:
    nodes = [{"name": "n", "count": 2, "cpu": 2}]
    every = {"historyJobs": 3, "nodes": nodes, "contentionRatio": 0.3}
    of_policy = with_jobs(**every, policies=[{"name": "fair", "label": "fifo", "defaultScheduler": "fifo"}])
    of_scenario = with_jobs(**every, defaultScheduler="fifo")
    began = []
    for scenario in (of_policy, of_scenario):
        seen.clear()
        engine.run(draw(scenario, 1), policy_runs(scenario)[-1])
        began.append(first_of_the_run(seen))
    assert began[0] == began[1]
