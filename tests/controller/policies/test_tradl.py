"""TRADL's tiers and shares: who is urgent, and who gives CPU back. `test_targets.py` has how sure a hit must be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs
from support.worlds import START, a_job, a_node, a_snapshot, known, limits, remembering

from slopewise.model import Decisions, Job, JobMemory, Node, ObjectiveMemory, Objectives, TargetHits
from slopewise.policies import Setting
from slopewise.policies.tradl import DELIVERABLE, RELEASED, UNTARGETED, URGENT, Parameters, Policy

INTERVAL = 20.0
TIERS = (URGENT, DELIVERABLE, RELEASED)
TARGETS = Objectives(target_level=0.1, deliverable_level=0.4)


def job(uid: str, level: float | None, objectives: Objectives = TARGETS, **more: object) -> Job:
    return a_job(uid, level=level, **more).altered(objectives=objectives)  # type: ignore[arg-type]


def in_class(listed: str | None, streak: int = 0, *, first: float = 1.0) -> JobMemory:
    hits = TargetHits(streak, TIERS.index(listed)) if listed in TIERS else None
    remembered = known(objectives=ObjectiveMemory(targets=hits), job_class=listed, efficiency=0.01)
    return structs.replace(remembered, levels=remembered.levels.altered(first=first))


def decide(jobs: Sequence[Job], memory: dict[str, JobMemory], node: Node | None = None) -> Decisions:
    policy = Policy(Parameters(), Setting(INTERVAL, "limits"))
    return policy.decide(a_snapshot(jobs, [node or a_node()]), remembering(memory, evaluated_at=START - INTERVAL))


def test_the_vector_two_urgent_jobs_share_by_their_distance_to_the_first_target() -> None:
    decisions = decide([job("far", 0.7), job("near", 0.5)], {"far": in_class(URGENT), "near": in_class(URGENT)})
    assert limits(decisions) == pytest.approx({"far": 0.75, "near": 0.25})
    assert decisions.reasons["far"] == "urgent: 0.7 misses target 0.4, limit 0.75 of 1 cores"


def test_between_the_targets_and_at_the_second_a_job_keeps_the_floor_and_the_urgent_one_gets_the_rest() -> None:
    memory = {"u": in_class(URGENT), "d": in_class(DELIVERABLE), "r": in_class(RELEASED)}
    got = limits(decide([job("u", 0.7), job("d", 0.3), job("r", 0.05)], memory))
    assert got == pytest.approx({"u": 1 - 2 / 6, "d": 1 / 6, "r": 1 / 6})


def test_a_released_job_keeps_the_floor_even_alone_and_a_deliverable_one_takes_what_none_needs() -> None:
    assert limits(decide([job("r", 0.05)], {"r": in_class(RELEASED)})) == {"r": 0.5}
    assert limits(decide([job("d", 0.3)], {"d": in_class(DELIVERABLE)})) == {"d": 1.0}


def test_a_job_without_targets_has_an_even_share_beside_an_urgent_one() -> None:
    decisions = decide(
        [job("u", 0.7), job("plain", 0.7, Objectives())], {"u": in_class(URGENT), "plain": in_class(None)}
    )
    assert limits(decisions) == pytest.approx({"u": 0.5, "plain": 0.5})
    assert decisions.memory.jobs["plain"].decided.job_class == UNTARGETED


def test_what_an_urgent_job_cannot_use_goes_to_the_others() -> None:
    memory = {"narrow": in_class(URGENT), "d": in_class(DELIVERABLE)}
    got = limits(decide([job("narrow", 0.9, useful_cores=1.0), job("d", 0.3)], memory, a_node(cpu_cores=4.0)))
    assert got == pytest.approx({"narrow": 1.0, "d": 3.0})


def test_a_metric_that_rises_is_read_in_its_own_direction() -> None:
    wanted = Objectives(target_level=0.95, deliverable_level=0.8)
    memory = {"far": in_class(URGENT, first=0.2), "near": in_class(URGENT, first=0.2)}
    jobs = [job("far", 0.35, wanted, objective="max"), job("near", 0.65, wanted, objective="max")]
    assert limits(decide(jobs, memory)) == pytest.approx({"far": 0.75, "near": 0.25})


def test_a_job_that_got_worse_than_it_began_counts_no_more_than_one_that_has_just_begun() -> None:
    got = limits(decide([job("worse", 9.0), job("new", 1.0)], {"worse": in_class(URGENT), "new": in_class(URGENT)}))
    assert got == pytest.approx({"worse": 0.5, "new": 0.5})


@pytest.mark.parametrize("listed", [URGENT, DELIVERABLE, RELEASED])
def test_a_job_whose_evaluation_is_not_known_keeps_its_class(listed: str) -> None:
    diverged = job("a", float("nan"), finite=False)
    decisions = decide([diverged, job("b", 0.7)], {"a": in_class(listed, streak=1), "b": in_class(URGENT)})
    after = decisions.memory.jobs["a"]
    assert (after.decided.job_class, after.objectives.targets) == (
        listed,
        in_class(listed, streak=1).objectives.targets,
    )
    assert after.decided.wanted_cores == pytest.approx(0.5 if listed == URGENT else 0.25)
    assert "not known" in decisions.reasons["a"]
