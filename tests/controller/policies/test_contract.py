"""Every policy, whatever it computes: pure, deterministic, independent of order, within bounds, explained."""

from __future__ import annotations

import copy

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known, remembering

from controller.growth import Measuring, measure
from controller.model import ClusterSnapshot, Decisions, MemoryState
from controller.policies import PolicyProtocol, Setting, build, find, names

INTERVAL = 20.0
CONTROLS = ("limits", "requests")


def make(name: str, control: str) -> PolicyProtocol:
    return build(name, find(name).parameters(), Setting(INTERVAL, control))  # type: ignore[arg-type]


def a_busy_world() -> tuple[ClusterSnapshot, MemoryState]:
    jobs = [
        a_job("fast", cpu_seconds=20),
        a_job("slow", cpu_seconds=15),
        a_job("nan", level=float("nan"), finite=False),
        a_job("silent", level=None, cpu_seconds=None),
        a_job("other", node="n2"),
    ]
    memory = remembering(
        {
            "fast": known(efficiency=0.05, job_class=None, wanted=0.5),
            "slow": known(efficiency=0.0001, wanted=0.5),
            "nan": known(efficiency=0.02),
            "gone": known(efficiency=0.02),
        },
        looked_at=START - INTERVAL,
        on_node=["fast", "slow", "nan", "silent"],
    )
    return a_snapshot(jobs, [a_node("n1", 2.0), a_node("n2", 4.0)]), memory


def decide(name: str, control: str, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    how = Measuring(INTERVAL)
    return make(name, control).decide(snapshot, measure(snapshot, memory, how))


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("name", names())
class TestEveryPolicy:
    def test_gives_the_same_answer_twice_and_leaves_its_inputs_alone(self, name: str, control: str) -> None:
        snapshot, memory = a_busy_world()
        before = copy.deepcopy((snapshot.jobs[0], dict(memory.jobs)))
        first, second = (decide(name, control, snapshot, memory) for _ in range(2))
        assert (first.resizes, first.reasons, first.memory) == (second.resizes, second.reasons, second.memory)
        assert before == (snapshot.jobs[0], dict(memory.jobs))

    def test_does_not_depend_on_the_order_of_jobs_and_nodes(self, name: str, control: str) -> None:
        snapshot, memory = a_busy_world()
        turned = a_snapshot(snapshot.jobs[::-1], snapshot.nodes[::-1])
        one, other = decide(name, control, snapshot, memory), decide(name, control, turned, memory)
        assert set(one.resizes) == set(other.resizes)
        assert one.reasons == other.reasons
        assert one.memory == other.memory

    def test_explains_every_job_and_remembers_no_job_that_is_gone(self, name: str, control: str) -> None:
        snapshot, memory = a_busy_world()
        decisions = decide(name, control, snapshot, memory)
        uids = {job.uid for job in snapshot.jobs}
        assert set(decisions.reasons) == uids
        assert all(decisions.reasons.values())
        assert set(decisions.memory.jobs) == uids
        assert set(decisions.memory.nodes) == {"n1", "n2"}

    def test_wants_at_least_a_millicore_and_no_limit_above_the_node(self, name: str, control: str) -> None:
        snapshot, memory = a_busy_world()
        for resize in decide(name, control, snapshot, memory).resizes:
            assert resize.control == control
            assert resize.to_millicores >= 1
            if control == "limits":
                assert resize.to_millicores <= 1000 * {"n1": 2, "n2": 4}[resize.node]

    @pytest.mark.parametrize("jobs", [[], [a_job("only", level=None)], [a_job("only")]])
    def test_survives_no_jobs_one_job_and_unknown_growth(self, name: str, control: str, jobs: list) -> None:
        decisions = decide(name, control, a_snapshot(jobs), MemoryState())
        assert set(decisions.reasons) == {job.uid for job in jobs}


@pytest.mark.parametrize("name", names())
def test_every_policy_states_what_it_computes_and_documents_every_parameter(name: str) -> None:
    policy = find(name)
    assert policy.summary
    for field in policy.parameters.model_fields.values():
        assert field.description
        assert isinstance(field.json_schema_extra, dict)
        assert {"unit", "source"} <= set(field.json_schema_extra)
