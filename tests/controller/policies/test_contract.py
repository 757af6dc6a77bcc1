"""Every policy, whatever it computes: pure, deterministic, independent of order, within bounds, explained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from support.searching import examples
from support.worlds import START, a_job, a_node, a_snapshot, known, remembering

from slopewise.model import (
    MEMORY_JSON,
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    CpuControl,
    Job,
    JobMemory,
    Levels,
    MemoryState,
    Node,
    Objectives,
    Pace,
    PolicyMemory,
)
from slopewise.model.reported import LARGEST_FIGURE, LARGEST_LEVEL, SMALLEST_FIGURE
from slopewise.own_policies.contract import ContractError, check_everything, check_limits_add_up, decide
from slopewise.own_policies.drawn_worlds import INTERVAL, worlds
from slopewise.policies import DecidesOn, PolicyProtocol, Setting, build, find, names

CONTROLS = ("limits", "requests")

PLACING = {name for name in names() if "place" in find(name).actions}
"""Policies that choose the node of an arriving job; with the others the default scheduler does."""

LEAVES_CPU_ALONE = {name for name in names() if "resize" not in find(name).actions}
"""Policies that resize no job."""

World = tuple[ClusterSnapshot, MemoryState]


def maker(name: str, control: CpuControl) -> Callable[[], PolicyProtocol]:
    return lambda: build(name, find(name).parameters(), Setting(INTERVAL, control))


def wanted_before(name: str) -> float | None:
    """A limit that the policy decided on at an earlier look, if it ever does."""
    return None if name in LEAVES_CPU_ALONE else 0.1


def decides_on(name: str) -> DecidesOn:
    return find(name).decides_on


def a_busy_world() -> World:
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
        evaluated_at=START - INTERVAL,
        on_node=["fast", "slow", "nan", "silent"],
    )
    return a_snapshot(jobs, [a_node("n1", 2.0), a_node("n2", 4.0)]), memory


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("name", names())
class TestEveryPolicy:
    def test_keeps_to_the_contract_in_a_busy_world_and_from_its_memory(self, name: str, control: CpuControl) -> None:
        snapshot, memory = a_busy_world()
        for number in range(4):
            seen = replace(snapshot, taken_at_seconds=START + number * INTERVAL)
            decisions = check_everything(maker(name, control), control, seen, memory, decides_on(name))
            assert set(decisions.reasons) == {"fast", "slow", "nan", "silent", "other"}
            memory = decisions.memory
        assert "gone" not in memory.jobs
        assert all(look.evaluated_at_seconds > START for look in memory.nodes.values())

    @pytest.mark.parametrize("figure", [SMALLEST_FIGURE, LARGEST_FIGURE])
    def test_survives_the_most_extreme_figures(self, name: str, control: CpuControl, figure: float) -> None:
        snapshot, memory = a_busy_world()
        first = snapshot.jobs[0].altered(steps_total=SMALLEST_FIGURE, steps_planned=figure)
        assert first.evaluation is not None
        for seconds, sign in ((0, 1), (20, -1), (40, 1)):
            at = snapshot.taken_at_seconds + seconds
            extreme = first.evaluation.altered(level=sign * 0.9 * LARGEST_LEVEL, sampled_at_seconds=at)
            worse = replace(snapshot, taken_at_seconds=at, jobs=(first.altered(evaluation=extreme), *snapshot.jobs[1:]))
            memory = check_everything(maker(name, control), control, worse, memory, decides_on(name)).memory
        assert msgspec.json.decode(MEMORY_JSON.encode(memory.jobs[first.uid]), type=JobMemory) is not None


@pytest.mark.parametrize("control", CONTROLS)
@examples(40)
@given(world=worlds())
def test_every_policy_keeps_to_the_contract_in_any_world(control: CpuControl, world: World) -> None:
    """Each world is drawn once for all policies, which takes as long as checking one of them."""
    for name in names():
        try:
            check_everything(maker(name, control), control, *world, decides_on(name), find(name).actions)
            check_limits_add_up(maker(name, control), *world, soft=find(name).soft_limits)
        except Exception as error:
            error.add_note(f"policy {name}")
            raise


SQUEEZED, CAME_WITH = CpuAllocation(100, 100), CpuAllocation(1500, 900)


def a_world_beside(silent: Job, known_of_it: JobMemory) -> World:
    """Two jobs that report everything there is, in the middle of their lives, and one that reports nothing."""
    jobs = [
        a_job(uid, cpu_seconds=seconds).altered(
            steps_total=100.0,
            steps_planned=1000.0,
            objectives=Objectives(0.2, START + 600.0, target_level=0.2),
        )
        for uid, seconds in (("a", 20.0), ("b", 90.0))
    ]
    paces = (Pace(START - 20.0, 0.5, 0.5),)
    memory = {
        "a": known(efficiency=0.05, paces=paces), "b": known(efficiency=0.0001, paces=paces), silent.uid: known_of_it
    }  # fmt: skip
    return a_snapshot([*jobs, silent], [a_node(cpu_cores=2.0)]), MemoryState(memory)


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("name", names())
class TestSilentJobs:
    def test_a_job_that_never_reported_keeps_its_own_share(self, name: str, control: CpuControl) -> None:
        silent = a_job("silent", level=None, cpu_seconds=500.0, limit=400, request=700, started_at=START - 900)
        world = a_world_beside(silent, JobMemory(decided=PolicyMemory(wanted_cores=wanted_before(name))))
        decisions = check_everything(maker(name, control), control, *world, decides_on(name))
        assert "silent" not in {resize.job_uid for resize in decisions.resizes}
        assert "unchanged" in decisions.reasons["silent"] or not decisions.resizes

    def test_one_that_stopped_long_ago_gets_back_what_it_came_with(self, name: str, control: CpuControl) -> None:
        silent = a_job("silent", level=None, cpu_seconds=500.0).altered(allocation=SQUEEZED)
        before = known(
            levels=Levels(silent_since_seconds=START - 90.0),
            efficiency=0.001,
            job_class="CL",
            wanted=wanted_before(name),
            original=CAME_WITH,
        )
        decisions = check_everything(maker(name, control), control, *a_world_beside(silent, before), decides_on(name))
        assert decisions.resizes or name in LEAVES_CPU_ALONE
        back = [resize for resize in decisions.resizes if resize.job_uid == "silent"]
        assert [(each.to_millicores, each.is_rollback) for each in back] == (
            [(1500 if control == "limits" else 900, True)] if decisions.resizes else []
        )


@pytest.mark.parametrize("name", names())
def test_a_silent_job_changes_nothing_for_the_others_but_the_size_of_what_they_share(name: str) -> None:
    silent = a_job("silent", level=None, cpu_seconds=500.0, limit=400, request=1000)
    world, memory = a_world_beside(silent, JobMemory())
    alone = replace(world, jobs=world.jobs[:2], nodes=(a_node(cpu_cores=4 / 3),))
    beside, without = (decide(maker(name, "requests")(), each, memory).resizes for each in (world, alone))
    assert {r.job_uid: r.to_millicores for r in beside} == {r.job_uid: r.to_millicores for r in without}


@pytest.mark.parametrize("name", names())
class TestArrivals:
    def test_a_job_is_placed_where_it_fits_by_policies_that_place_and_by_no_other(self, name: str) -> None:
        arrival = Arrival("new", "new", "team", START, 1000, memory_request_bytes=2.0**30)
        world = replace(a_snapshot([], [a_node("small"), Node("large", 1.0, 2**34)]), waiting=(arrival,))
        placed = decide(maker(name, "limits")(), world, MemoryState()).moves
        assert [move.job_uid for move in placed] == (["new"] if name in PLACING else [])

    @pytest.mark.parametrize("nodes", [(), (a_node(),)])
    def test_a_job_that_fits_nowhere_is_left_to_the_default_scheduler(self, name: str, nodes: tuple[Node, ...]) -> None:
        huge = Arrival("huge", "huge", "team", START, 1000, memory_request_bytes=2.0**50)
        world = replace(a_snapshot([]), nodes=nodes, waiting=(huge,))
        assert decide(maker(name, "limits")(), world, MemoryState()).moves == ()


@pytest.mark.parametrize("name", names())
def test_every_policy_states_what_it_computes_and_documents_every_parameter(name: str) -> None:
    policy = find(name)
    assert policy.summary
    assert "Source:" in policy.description or name == "fair"
    for field in policy.parameters.model_fields.values():
        assert field.description
        assert isinstance(field.json_schema_extra, dict)
        assert {"unit", "source"} <= set(field.json_schema_extra)


def test_an_action_that_a_file_does_not_name_breaks_the_contract() -> None:
    arrival = Arrival("new", "new", "team", START, 1000)
    world = replace(a_snapshot([a_job("a")]), waiting=(arrival,))
    with pytest.raises(ContractError, match="decides to place a job, which ACTIONS does not name; add 'place' to it"):
        check_everything(maker("kube_default", "limits"), "limits", world, MemoryState(), "loss", frozenset())
