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


def test_a_policy_begins_with_the_historys_records_and_no_figure_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, MemoryState]] = []

    class Watching(fair.Policy):
        def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
            seen.append((snapshot.taken_at_seconds, memory))
            return super().decide(snapshot, memory)

    monkeypatch.setattr(fair, "Policy", Watching)
    scenario = with_jobs(historyJobs=3)
    instance = draw(scenario, 1)
    outcome = engine.run(instance, policy_runs(scenario)[0])
    assert [job.name for job in outcome.jobs] == [job.name for job in instance.jobs]
    begins = max(number for number, (at, _) in enumerate(seen) if at == EPOCH_SECONDS)
    memory = seen[begins][1]
    assert {name: {each.job_uid for each in record} for name, record in memory.classes.items()} == {
        name: {f"history-{name}-{number}" for number in (1, 2, 3)} for name in MODELS
    }
    assert all(each.at_seconds <= EPOCH_SECONDS for record in memory.classes.values() for each in record)
    assert not any(uid.startswith("history-") for uid in memory.jobs)
