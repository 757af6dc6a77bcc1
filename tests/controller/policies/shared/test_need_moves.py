"""Jobs whose node cannot keep their promise: who leaves, where to, when, and who does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.moving import AUTO, MOBILE, SAVES
from support.reviewing import reviewed
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.model import (
    Answering,
    Arrival,
    ClusterSnapshot,
    Confirmed,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Movability,
    MoveUnderWay,
    NodeMemory,
    ObjectiveMemory,
    Objectives,
    Pace,
    PolicyMemory,
    Responses,
    Timing,
    Unmet,
)
from slopewise.policies import PolicyProtocol, Setting, deadline, dqoes

ITVAL = 20.0
ASKED = 10.0


def served(uid: str, node: str = "n1", **more: Any) -> Job:
    """A served model that may be moved."""
    job = a_job(uid, node=node, level=None, useful_cores=1.0, started_at=START - 3600)
    objectives = Objectives(qoe_seconds=ASKED)
    given: dict[str, Any] = {"migratable": True, "checkpoint": SAVES, "movability": MOBILE, "objectives": objectives}
    return job.altered(responses=Responses(9, 9.0), **{**given, **more})


def needing(cores: float, times: int = 2, node: str = "n1", at: float = START - ITVAL) -> JobMemory:
    """A job that needs so much, had half of it, and whose node could not keep its promise so many times in a row."""
    seconds = 2 * ASKED * 1.07
    unmet = Unmet(node, times, at) if times else None
    return JobMemory(
        decided=PolicyMemory(wanted_cores=cores / 2, unmet=unmet), paces=(Pace(START - 1, seconds, cores / 2),)
    )


def decide(
    jobs: Sequence[Job], known: Mapping[str, JobMemory], cores: Mapping[str, float] | None = None, **more: Any
) -> Decisions:
    nodes = [a_node(name, size) for name, size in (cores or {"n1": 1.0, "n2": 1.0}).items()]
    policy = dqoes.Policy(dqoes.Parameters(**more), Setting(ITVAL, "limits"))
    return policy.decide(a_snapshot(jobs, nodes), MemoryState(known))


def moves(decisions: Decisions) -> list[tuple[str, str]]:
    return [(move.job_uid, move.node) for move in decisions.moves if isinstance(move, Migrate)]


SCARCE = {"a": needing(0.5, 0), "b": needing(0.7)}
"""On n1, which has one core: a is satisfied, b cannot be."""
SLOW = replace(SAVES, duration_seconds=60.0)


class TestObjectives:
    def test_after_three_evaluations_it_goes_where_its_need_fits(self) -> None:
        decisions = decide([served("a"), served("b")], SCARCE)
        [move] = decisions.moves
        assert isinstance(move, Migrate)
        assert (move.job_uid, move.node, move.relieves) == ("b", "n2", "objective")
        assert "n1 has not kept its objective at 3 evaluations in a row: needs 0.7 cores" in move.reason

    @pytest.mark.parametrize(
        ("b", "count"),
        [
            (needing(0.7, 0), Unmet("n1", 1, START)),
            (needing(0.7, 1), Unmet("n1", 2, START)),
            (needing(0.7, 9, node="n2"), Unmet("n1", 1, START)),  # what it missed on n2 is no cause to leave n1
            (needing(0.7, 2, at=START - 1), Unmet("n1", 2, START - 1)),  # evaluations within seconds count once
        ],
        ids=["first", "second", "on another node", "within seconds"],
    )
    def test_until_then_it_stays_and_is_counted(self, b: JobMemory, count: Unmet) -> None:
        decisions = decide([served("a"), served("b")], {**SCARCE, "b": b})
        assert (decisions.moves, decisions.memory.jobs["b"].decided.unmet) == ((), count)

    def test_one_that_is_kept_again_is_counted_again(self) -> None:
        decisions = decide([served("b")], {"b": needing(0.7)})
        assert (decisions.moves, decisions.memory.jobs["b"].decided.unmet) == ((), None)

    @pytest.mark.parametrize(
        ("more", "known", "cores", "expected"),
        [
            # no promise that is kept there is broken
            ([served("c", "n2")], {"c": needing(0.4, 0, node="n2")}, {}, []),
            ([served("c", "n2")], {"c": needing(0.4, 0, node="n2")}, {"n2": 1.2}, [("b", "n2")]),
            # the fullest of several nodes
            ([served("c", "n3")], {"c": needing(0.4, 0, node="n3")}, {"n2": 2.0, "n3": 1.5}, [("b", "n3")]),
            # one a node leaves at an evaluation, the cheapest first
            ([served("b", checkpoint=SLOW), served("c")], {"c": needing(0.8)}, {"n2": 4.0}, [("c", "n2")]),
            # two nodes do not fill the same room
            (
                [served("c", "n2"), served("d", "n2")],
                {"c": needing(0.5, 0, node="n2"), "d": needing(0.7, node="n2")},
                {"n3": 1.0},
                [("b", "n3")],
            ),
            ([served("b", migratable=False)], {}, {}, []),
            ([served("b", movability=replace(MOBILE, refused_nodes={"n2": "a taint"}))], {}, {}, []),
            ([], {"b": needing(1.7)}, {"n2": 4.0}, []),  # no node can keep it
            # its figures are within its objective, though its need does not fit
            (
                [],
                {
                    "b": JobMemory(
                        decided=PolicyMemory(unmet=Unmet("n1", 2, START - ITVAL)), paces=(Pace(START - 1, ASKED, 0.75),)
                    )
                },
                {},
                [],
            ),
        ],
    )
    def test_who_goes_where(
        self, more: list[Job], known: dict[str, JobMemory], cores: dict[str, float], expected: list[tuple[str, str]]
    ) -> None:
        jobs = {job.uid: job for job in (served("a"), served("b"), *more)}
        given = {"n1": 1.0, "n2": 1.0, **cores}
        assert moves(decide(list(jobs.values()), {**SCARCE, **known}, given)) == expected

    def test_a_node_that_another_job_is_on_its_way_to_is_left_out(self) -> None:
        snapshot = a_snapshot([served("a"), served("b")], [a_node("n1"), a_node("n2")])
        moving = replace(snapshot, moving=(MoveUnderWay("z", "n1", "n2", START, "starting"),))
        policy = dqoes.Policy(dqoes.Parameters(), Setting(ITVAL, "limits"))
        assert moves(policy.decide(snapshot, MemoryState(SCARCE))) == [("b", "n2")]
        assert policy.decide(moving, MemoryState(SCARCE)).moves == ()

    def test_a_server_that_hangs_keeps_an_even_share_and_is_not_moved(self) -> None:
        """No CPU cures it: what was counted while it was slow is forgotten."""
        waits = Answering(0.0, START - 90, START - 80)
        hangs = needing(0.7, 9).altered(
            paces=(), timing=Timing(answering=waits), objectives=ObjectiveMemory(missed=Confirmed(True))
        )
        jobs = [served("a"), served("b").altered(responses=Responses(9, 9.0, in_flight=12))]
        decisions = decide(jobs, {"a": needing(0.5, 0), "b": hangs})
        after = decisions.memory.jobs["b"]
        assert (moves(decisions), after.decided.unmet, after.decided.wanted_cores) == ([], None, 0.5)

    def test_both_variants_move_and_none_does_where_it_is_off(self) -> None:
        jobs = [served("a"), served("b")]
        assert moves(decide(jobs, SCARCE, variant="step")) == [("b", "n2")]
        assert moves(decide(jobs, SCARCE, moves=False)) == []
        assert moves(decide(jobs, SCARCE, missed_evaluations=4)) == []


class TestPodsOfOneJob:
    """b has two pods: one on n1, whose objective is not kept there, and one on n2, which needs 0.4 cores."""

    POD = replace(MOBILE, members=("b:0", "b:1"))

    def decide(self, cores: Mapping[str, float], known: JobMemory | None = None, **of_second: Any) -> Decisions:
        second = served("b:1", "n2", **{"movability": self.POD, **of_second})
        there = {"a": needing(0.5, 0), "b:0": needing(0.7), "b:1": known or needing(0.4, 0, node="n2")}
        return decide([served("a"), served("b:0", movability=self.POD), second], there, cores)

    def test_they_go_to_one_node_on_which_the_needs_of_all_fit(self) -> None:
        cores = {"n1": 1.0, "n2": 3.0, "n3": 1.2, "n4": 2.0}  # n2 has the room, and one of them is there already
        decisions = self.decide(cores)
        assert moves(decisions) == [("b:0", "n3"), ("b:1", "n3")]
        assert {move.reason for move in decisions.moves} == {
            "n1 has not kept its objective at 3 evaluations in a row: its 2 pods need 1.1 cores, n3 has 1.2 free"
        }
        assert moves(self.decide(cores | {"n3": 1.0})) == [("b:0", "n4"), ("b:1", "n4")]

    def test_the_guards_let_them_go_together(self) -> None:
        decisions = self.decide({"n1": 1.0, "n2": 3.0, "n3": 1.2})
        jobs = [served("a"), served("b:0", movability=self.POD), served("b:1", "n2", movability=self.POD)]
        nodes = [a_node("n1"), a_node("n2", 3.0), a_node("n3", 1.2)]
        allowed, withheld = reviewed(decisions.moves, a_snapshot(jobs, nodes), decisions.memory, AUTO)
        assert ([move.job_uid for move in allowed], withheld) == (["b:0", "b:1"], ())

    @pytest.mark.parametrize(
        "second",
        [
            {"migratable": False},
            {"movability": replace(POD, refused_nodes={"n3": "a taint"})},
            {"known": JobMemory()},  # not timed: what it needs elsewhere is unknown
            {"memory_request_bytes": 2.0**50},
        ],
    )
    def test_where_one_of_them_cannot_go_none_does(self, second: dict[str, Any]) -> None:
        assert moves(self.decide({"n1": 1.0, "n2": 3.0, "n3": 1.2}, **second)) == []

    @pytest.mark.parametrize(
        "first", [replace(POD, way="evict"), replace(POD, members=("b:0", "b:1", "b:2"))], ids=["evicted", "one unseen"]
    )
    def test_pods_that_would_be_evicted_or_are_not_all_seen_stay(self, first: Movability) -> None:
        jobs = [served("a"), served("b:0", movability=first), served("b:1", "n2", movability=first)]
        known = {"a": needing(0.5, 0), "b:0": needing(0.7), "b:1": needing(0.4, 0, node="n2")}
        assert moves(decide(jobs, known, {"n1": 1.0, "n2": 3.0, "n3": 1.2})) == []

    def test_a_node_that_one_of_them_leaves_is_left_by_no_other_job_at_this_evaluation(self) -> None:
        slow = replace(SAVES, duration_seconds=60.0)
        jobs = [served("a"), *(served(uid, movability=self.POD) for uid in self.POD.members)]
        known = {"a": needing(0.5, 0), "b:0": needing(0.7), "b:1": needing(0.8), "c": needing(0.9)}
        cores = {"n1": 1.0, "n2": 4.0}
        assert moves(decide([*jobs, served("c", checkpoint=slow)], known, cores)) == [("b:0", "n2"), ("b:1", "n2")]


def training(uid: str, steps: float, within: float = 1000.0, **more: Any) -> Job:
    """A job of one CPU-second a step, and so many steps and seconds left, which may be moved."""
    job = a_job(uid, useful_cores=1.0, started_at=START - 3600)
    objectives = Objectives(deadline_at_seconds=START + within)
    given: dict[str, Any] = {"migratable": True, "checkpoint": SAVES, "movability": MOBILE, "objectives": objectives}
    return job.altered(steps_total=100.0, steps_planned=steps + 100.0, **{**given, **more})


def timed(times: int = 0) -> JobMemory:
    unmet = Unmet("n1", times, START - ITVAL) if times else None
    return JobMemory(decided=PolicyMemory(wanted_cores=0.5, unmet=unmet), paces=(Pace(START - 1, 2.0, 0.5),))


def of_deadlines(snapshot: ClusterSnapshot, known: Mapping[str, JobMemory], **parameters: Any) -> Decisions:
    policy: PolicyProtocol = deadline.Policy(deadline.Parameters(**parameters), Setting(ITVAL, "limits"))
    return policy.decide(snapshot, MemoryState(known, {"n1": NodeMemory(frozenset(known), START - ITVAL, ITVAL)}))


class TestDeadlines:
    LATE = (training("a", 500.0), training("b", 700.0, 1100.0))
    """Together they need 1,200 s of the 1,100 s that there are."""

    @pytest.mark.parametrize(
        ("jobs", "times", "parameters", "moved"),
        [
            (LATE, 2, {}, True),
            (LATE, 1, {}, False),
            (LATE, 2, {"moves": False}, False),
            # 700 s of work and 1,100 s left: with a checkpoint of 640 s they are not enough
            ((LATE[0], LATE[1].altered(checkpoint=replace(SAVES, duration_seconds=640.0))), 2, {}, False),
            ((training("a", 700.0), training("b", 5000.0)), 2, {}, False),  # late anywhere
            ((*LATE, training("c", 700.0).altered(node="n2")), 2, {}, False),  # whose jobs need the room
        ],
        ids=["late here", "for the first time", "moves are off", "the move takes too long", "late anywhere", "no room"],
    )
    def test_a_job_that_would_be_late_here_goes_where_it_is_in_time(
        self, jobs: tuple[Job, ...], times: int, parameters: dict[str, Any], moved: bool
    ) -> None:
        snapshot = a_snapshot(jobs, [a_node("n1"), a_node("n2")])
        found = of_deadlines(snapshot, {"a": timed(), "b": timed(times), "c": timed()}, **parameters).moves
        wanted = [("b", "n2", "deadline")] if moved else []
        assert [(each.job_uid, each.node, each.relieves) for each in found if isinstance(each, Migrate)] == wanted


@pytest.mark.parametrize(
    ("known", "need"),
    [(needing(0.5), "needs 0.5 cores: "), (JobMemory(), "not timed yet, wants 1 "), (None, "not timed yet, wants 1 ")],
)
def test_an_arrival_needs_what_its_former_process_did_else_it_wants_what_it_can_use(
    known: JobMemory | None, need: str
) -> None:
    asked = Objectives(qoe_seconds=ASKED)
    waiting = (Arrival("new", "new", "team", START, useful_parallelism_cores=2.0, objectives=asked),)
    snapshot = replace(a_snapshot([], [a_node("n1")]), waiting=waiting)
    memory = MemoryState(arriving={} if known is None else {"new": known})
    (place,) = dqoes.Policy(dqoes.Parameters(), Setting(ITVAL, "limits")).decide(snapshot, memory).moves
    assert place.reason.startswith(need)
