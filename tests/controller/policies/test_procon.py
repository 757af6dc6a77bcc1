"""ProCon: an arriving job goes where least work waits, and what that work is where that is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.model import Arrival, Decisions, Job, JobMemory, MemoryState, Node, Pace, Responses
from slopewise.policies import Setting
from slopewise.policies.procon import Parameters, Policy


def job(uid: str, on: str, steps_left: float | None = None) -> Job:
    planned = None if steps_left is None else 100 + steps_left
    return a_job(uid, node=on).altered(steps_total=100.0, steps_planned=planned)


def at_pace(*seconds: float) -> JobMemory:
    return known(paces=tuple(Pace(START, each, None) for each in seconds))


def decide(jobs: Sequence[Job], memory: Mapping[str, JobMemory], nodes: Sequence[Node] = ()) -> Decisions:
    waiting = (Arrival("new-0", "new-0", "team", START),)
    snapshot = replace(a_snapshot(jobs, nodes or [a_node("n1"), a_node("n2")]), waiting=waiting)
    return Policy(Parameters(), Setting(20.0, "limits")).decide(snapshot, MemoryState(memory))


def test_the_vector_one_job_with_ten_to_do_costs_less_than_two_with_four_each() -> None:
    jobs = [job("a", "n1", 20), job("b", "n2", 8), job("c", "n2", 8)]
    decisions = decide(jobs, {uid: at_pace(0.5) for uid in "abc"})
    assert [move.node for move in decisions.moves] == ["n1"]
    assert decisions.moves[0].reason == "least cost 11: 1 jobs, 10 s to do"
    assert decisions.reasons["a"] == "unchanged: 10 s to do at its present pace"
    assert decisions.resizes == ()


def test_the_newest_pace_counts() -> None:
    jobs = [job("a", "n1", 10), job("b", "n2", 10)]
    assert [move.node for move in decide(jobs, {"a": at_pace(9.0, 1.0), "b": at_pace(0.1, 2.0)}).moves] == ["n1"]


def test_a_job_that_is_not_known_counts_as_the_mean_of_the_known() -> None:
    jobs = [job("a", "n1", 10), job("plain", "n2"), job("c", "n3", 30)]
    memory = {"a": at_pace(1.0), "plain": at_pace(1.0), "c": at_pace(1.0)}
    decisions = decide(jobs, memory, nodes=[a_node("n1"), a_node("n2"), a_node("n3")])
    assert decisions.reasons["plain"] == "unchanged: what it has to do is not known, counted as the mean of 20 s"
    assert [move.node for move in decisions.moves] == ["n1"]
    without_the_first = decide(jobs[1:], {"plain": at_pace(1.0), "c": at_pace(1.0)}, nodes=[a_node("n2"), a_node("n3")])
    assert "cost 31" in without_the_first.moves[0].reason


@pytest.mark.parametrize("unknown", [known(), at_pace(float("nan"))])
def test_with_nothing_known_the_node_with_the_fewest_jobs_is_chosen(unknown: JobMemory) -> None:
    jobs = [job("a", "n1", 10), job("b", "n1", 10), job("c", "n2", 10)]
    assert [move.node for move in decide(jobs, dict.fromkeys("abc", unknown)).moves] == ["n2"]


def test_a_served_model_has_no_end_that_could_be_known() -> None:
    served = job("a", "n1", 1000).altered(responses=Responses(1.0, 1.0))
    assert "not known" in decide([served], {"a": at_pace(1.0)}).reasons["a"]
