"""Two policies as one: each decides as it would alone, and what both want of one job is settled by the guards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from support.passes import pass_over
from support.searching import examples
from support.worlds import START, FakeActuator, FakeMemory, a_job, a_node, a_snapshot, known

from slopewise.composition import Composed, CpuRestored, composed_name, parts_of
from slopewise.guards.review import moving
from slopewise.model import (
    MEMORY_JSON,
    Arrival,
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Decisions,
    Growth,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    MoveBounds,
    NodeMemory,
    Place,
    PolicyMemory,
    Resize,
)
from slopewise.own_policies.contract import (
    check_moves_are_possible,
    check_order_makes_no_difference,
    check_pure_and_deterministic,
    check_resizes_within_bounds,
    measured,
)
from slopewise.own_policies.drawn_worlds import worlds
from slopewise.policies import PolicyProtocol, Setting, build, find, names

CPU_SECONDS, PLACEMENT_SECONDS = 20.0, 30.0
NO_MOVES = MoveBounds(
    enabled=False,
    max_per_node_per_hour=2,
    max_concurrent=1,
    min_stay_seconds=600.0,
    max_checkpoint_age_seconds=300.0,
    horizon_seconds=600.0,
)
PAIRS = [("flowcon", "specon"), ("deadline", "specon"), ("flowcon2", "kube-default"), ("fair", "draps")]


def part(name: str, seconds: float, **parameters: object) -> PolicyProtocol:
    return build(name, find(name).parameters(**parameters), Setting(seconds, "requests"))


def composed(cpu: str = "flowcon", placement: str = "specon") -> Composed:
    policies = part(cpu, CPU_SECONDS), part(placement, PLACEMENT_SECONDS)
    return Composed(composed_name(cpu, placement), placement, *policies)


def movable(uid: str, node: str) -> Job:
    return a_job(uid, node=node, cpu_seconds=20.0).altered(migratable=True)


def grown(per_second: float, before: float, category: str, listed: str = "NL") -> JobMemory:
    """Two measurements; a class that FlowCon put the job in, and one that SpeCon did."""
    return known(
        job_class=listed,
        wanted=1.0,
        previous_growth=Growth(START - 20.0, 20.0, before, 1.0, {"cpu": before}),
        placement=PolicyMemory(job_class=category, class_since_seconds=START - 90.0),
    ).altered(growth=Growth(START, 20.0, per_second, 1.0, {"cpu": per_second}))


def a_slow_job_beside_two_that_grow() -> tuple[ClusterSnapshot, MemoryState]:
    """Both policies want something: FlowCon lowers `slow`, and SpeCon moves it to the empty node."""
    jobs = [movable("slow", "n1"), movable("a", "n1"), movable("b", "n1")]
    remembered = {
        "slow": grown(0.00001, 0.0001, "CC", listed="WL"),
        "a": grown(0.04, 0.03, "PC"),
        "b": grown(0.01, 0.02, "PC"),
    }
    uids = frozenset(remembered)
    looked_at = {
        "n1": NodeMemory(uids, START - PLACEMENT_SECONDS, PLACEMENT_SECONDS),
        "n2": NodeMemory(frozenset(), START - PLACEMENT_SECONDS, PLACEMENT_SECONDS),
    }
    nodes = {"n1": NodeMemory(uids, START - CPU_SECONDS, CPU_SECONDS)}
    snapshot = a_snapshot(jobs, [a_node("n1", 2.0), a_node("n2", 2.0)])
    return snapshot, MemoryState(remembered, nodes, looked_at)


def for_placement(memory: MemoryState) -> MemoryState:
    """What the second policy would have stored alone."""
    jobs = {}
    for uid, job in memory.jobs.items():
        jobs[uid] = job.altered(decided=job.placement or PolicyMemory(), placement=None)
    return MemoryState(jobs, memory.placement_nodes)


def for_cpu(memory: MemoryState) -> MemoryState:
    return MemoryState({uid: job.altered(placement=None) for uid, job in memory.jobs.items()}, memory.nodes)


def test_both_act_in_one_pass_and_each_jobs_reason_has_both() -> None:
    decisions = composed().decide(*a_slow_job_beside_two_that_grow())
    assert {resize.job_uid for resize in decisions.resizes} == {"slow", "a", "b"}
    assert [(move.job_uid, move.node) for move in decisions.moves] == [("slow", "n2")]
    assert decisions.policy == "flowcon+specon"
    first, second = decisions.reasons["slow"].split("; specon: ")
    assert first.startswith("hardly growing")
    assert second.startswith("slow move: score")


def test_the_end_that_is_expected_is_that_of_the_order_which_is_carried_out() -> None:
    """`marginal` beside another policy places and moves jobs; its order gives no job CPU."""
    snapshot, memory = a_slow_job_beside_two_that_grow()
    alone = part("marginal", PLACEMENT_SECONDS).decide(snapshot, for_placement(memory)).memory
    assert all(job.decided.ends is not None for job in alone.jobs.values())
    after = composed("flowcon", "marginal").decide(snapshot, memory).memory
    assert all(job.decided.ends is None for job in after.jobs.values())
    after = composed("marginal", "specon").decide(snapshot, memory).memory
    assert all(job.decided.ends is not None for job in after.jobs.values())


def test_a_job_that_neither_decides_on_keeps_its_very_memory() -> None:
    """As identity, which is how a cluster's memory finds what has not changed."""
    snapshot, memory = a_slow_job_beside_two_that_grow()
    ended = replace(snapshot, jobs=())
    after = composed().decide(ended, MemoryState(memory.jobs, {}, {})).memory
    assert all(after.jobs[uid] is job for uid, job in memory.jobs.items())


@pytest.mark.parametrize(("cpu", "placement"), PAIRS)
class TestInAnyWorld:
    @examples(15)
    @given(world=worlds())
    def test_each_decides_as_it_would_alone(
        self, cpu: str, placement: str, world: tuple[ClusterSnapshot, MemoryState]
    ) -> None:
        snapshot, memory = world[0], measured(*world)
        for _ in range(3):
            together = composed(cpu, placement).decide(snapshot, memory)
            first = part(cpu, CPU_SECONDS).decide(snapshot, for_cpu(memory))
            second = part(placement, PLACEMENT_SECONDS).decide(snapshot, for_placement(memory))
            assert (together.resizes, together.moves) == (first.resizes, second.moves)
            assert (for_cpu(together.memory), for_placement(together.memory)) == (first.memory, second.memory)
            assert all(first.reasons[uid] in text for uid, text in together.reasons.items())
            assert all(second.reasons[uid] in text for uid, text in together.reasons.items())
            snapshot = replace(snapshot, taken_at_seconds=snapshot.taken_at_seconds + CPU_SECONDS)
            memory = measured(snapshot, together.memory)

    @examples(8)
    @given(world=worlds())
    def test_the_two_keep_to_the_contract_of_one(
        self, cpu: str, placement: str, world: tuple[ClusterSnapshot, MemoryState]
    ) -> None:
        def make() -> PolicyProtocol:
            return composed(cpu, placement)

        decisions = check_pure_and_deterministic(make, *world)
        check_order_makes_no_difference(make, *world, decisions)
        check_resizes_within_bounds("requests", world[0], decisions)
        check_moves_are_possible(world[0], decisions)


def a_pass(migration: MoveBounds | None) -> tuple[FakeActuator, Any]:
    snapshot, memory = a_slow_job_beside_two_that_grow()
    bounds = Bounds("Auto", 1, 64_000, 0.0, 1000.0, 0.0, moving=migration)
    actuator = FakeActuator()
    return actuator, pass_over(snapshot, composed(), actuator, FakeMemory(memory), bounds, interval_seconds=CPU_SECONDS)


class TestWhatBothWantOfOneJob:
    def test_a_job_that_leaves_its_node_is_not_resized_there_and_the_reason_names_the_guard(self) -> None:
        actuator, report = a_pass(migration=None)
        assert [move.job_uid for move in actuator.moved] == ["slow"]
        assert {resize.job_uid for resize in actuator.done} == {"a", "b"}
        (withheld,) = report.results.withheld_of(Resize)
        assert (withheld.decision.job_uid, withheld.guard) == ("slow", moving.__name__)
        assert withheld.reason == "moving: goes to n2"

    def test_a_job_whose_move_is_withheld_is_resized_where_it_is_and_both_are_said(self) -> None:
        actuator, report = a_pass(migration=NO_MOVES)
        assert actuator.moved == []
        assert {resize.job_uid for resize in actuator.done} == {"slow", "a", "b"}
        (withheld,) = report.results.withheld_of(Place, Migrate)
        message = report.by_job["slow"].message
        assert message.startswith("hardly growing")
        assert message.endswith(f"; {withheld.reason}")

    def test_moves_of_the_policy_for_cpu_and_resizes_of_the_one_for_nodes_are_not_made(self) -> None:
        snapshot = replace(a_snapshot([]), waiting=(Arrival("new", "new", "team", START, 1000),))
        assert part("flowcon2", CPU_SECONDS).decide(snapshot, MemoryState()).moves
        assert composed("flowcon2", "specon").decide(snapshot, MemoryState()).moves == ()
        slow, memory = a_slow_job_beside_two_that_grow()
        assert part("flowcon2", PLACEMENT_SECONDS).decide(slow, for_cpu(memory)).resizes
        assert composed("fair", "flowcon2").decide(slow, memory).resizes == ()


class TestMemory:
    def test_decisions_after_a_restart_are_those_without_one(self) -> None:
        snapshot, memory = a_slow_job_beside_two_that_grow()
        after = composed().decide(snapshot, memory).memory
        again = msgspec.json.decode(MEMORY_JSON.encode(after), type=MemoryState)
        assert again == after
        later = replace(snapshot, taken_at_seconds=START + PLACEMENT_SECONDS)
        assert composed().decide(later, again) == composed().decide(later, after)


class TestAChangeOfPolicies:
    @pytest.mark.parametrize("policy", ["flowcon", "fair", "specon"])
    def test_to_one_policy_alone_forgets_when_the_other_evaluated_so_that_no_pass_is_due_for_it(
        self, policy: str
    ) -> None:
        snapshot, memory = a_slow_job_beside_two_that_grow()
        before = composed().decide(snapshot, memory).memory
        alone = part(policy, CPU_SECONDS).decide(snapshot, before)
        assert before.placement_nodes
        assert alone.memory.placement_nodes == {}


def test_the_next_pass_is_due_when_the_first_of_the_two_is() -> None:
    _, report = a_pass(migration=None)
    due: Mapping[str, float] = {
        name: min(node.requeue_at_seconds for node in nodes.values())
        for name, nodes in (
            ("flowcon", report.decisions.memory.nodes),
            ("specon", report.decisions.memory.placement_nodes),
        )
    }
    assert due == {"flowcon": START + CPU_SECONDS, "specon": START + PLACEMENT_SECONDS}
    assert math.isclose(report.requeue_at_seconds, START + CPU_SECONDS)


@pytest.mark.parametrize(
    ("policy", "placement", "name"), [("flowcon", None, "flowcon"), ("flowcon", "specon", "flowcon+specon")]
)
def test_the_name_of_two_policies_has_both(policy: str, placement: str | None, name: str) -> None:
    assert composed_name(policy, placement) == name
    assert parts_of(name) == tuple(each for each in (policy, placement) if each)


class TestWhatThePolicyBeforeItChanged:
    @staticmethod
    def decided(allocation: CpuAllocation, original: CpuAllocation, policy: str = "fair") -> Decisions:
        job = a_job("j").altered(allocation=allocation)
        memory = MemoryState({"j": JobMemory(original=original), "untouched": JobMemory()})
        world = a_snapshot([job, a_job("untouched")], [a_node(cpu_cores=4.0)])
        return CpuRestored(part(policy, CPU_SECONDS)).decide(world, memory)

    @pytest.mark.parametrize(
        ("now", "original", "restored"),
        [
            (CpuAllocation(2000, 1000), CpuAllocation(2000, 1000), []),
            # a limit comes before a request that may not exceed it
            (CpuAllocation(100, 100), CpuAllocation(2000, 1000), [("limits", 2000)]),
            (CpuAllocation(2000, 100), CpuAllocation(2000, 1000), [("requests", 1000)]),
            # a limit that was added is as large as the node
            (CpuAllocation(250, 250), CpuAllocation(None, 250), [("limits", 4000)]),
            (CpuAllocation(4000, 250), CpuAllocation(None, 250), []),
        ],
    )
    def test_what_is_other_than_its_original_is_restored(
        self, now: CpuAllocation, original: CpuAllocation, restored: list[tuple[str, int]]
    ) -> None:
        decisions = self.decided(now, original)
        assert [(each.control, each.to_millicores) for each in decisions.resizes] == restored
        assert (decisions.reasons["j"] == "fair sharing: unchanged") == (not restored)

    @pytest.mark.parametrize("policy", sorted(name for name in names() if "resize" not in find(name).actions))
    def test_a_policy_that_decides_no_cpu_restores_it_and_says_so(self, policy: str) -> None:
        decisions = self.decided(CpuAllocation(None, 5), CpuAllocation(None, 1000), policy)
        (resize,) = decisions.resizes
        assert (resize.control, resize.from_millicores, resize.to_millicores) == ("requests", 5, 1000)
        assert resize.is_rollback, "no step cap and no cooldown hold it back"
        assert decisions.reasons["j"] == "restores its request of 1000m, which another policy changed"
        assert decisions.reasons["untouched"] != decisions.reasons["j"]
