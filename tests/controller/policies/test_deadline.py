"""Deadline: what a job needs, who is guaranteed it, where newcomers go, and when limits change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, classes, limits

from slopewise.model import (
    Arrival,
    CpuAllocation,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Node,
    NodeMemory,
    Objectives,
    Pace,
    Place,
)
from slopewise.policies import Setting
from slopewise.policies.deadline import Parameters, Policy

ITVAL = 20.0
FLOOR = 0.05


def training(
    uid: str, *, steps: float | None = 900, within: float | None = 1000, age: float = 500, useful: float | None = 1.0
) -> Job:
    """A job of one thread with so many steps and seconds left."""
    job = a_job(uid, started_at=START - age, useful_cores=useful)
    planned, total = (None, None) if steps is None else (steps + 100, 100.0)
    objectives = Objectives(deadline_at_seconds=None if within is None else START + within)
    return job.altered(steps_total=total, steps_planned=planned, objectives=objectives)


def timed(cpu_seconds: float = 1.0, wanted: float | None = None, cores: float = 0.5, **more: object) -> JobMemory:
    """A job that takes so many CPU-seconds a step."""
    pace = Pace(START - 1, cpu_seconds / cores, cores)
    original = more.pop("original", None)
    return JobMemory(paces=(pace,), original=original).with_decided(wanted_cores=wanted, **more)  # type: ignore[arg-type]


def decide(
    jobs: list[Job],
    known: Mapping[str, JobMemory],
    nodes: list[Node] | None = None,
    waiting: tuple[Arrival, ...] = (),
    evaluated: bool = False,
    **parameters: Any,
) -> Decisions:
    without_reserve = {"ending_scrapes": 0.0, **parameters}
    policy = Policy(Parameters(**without_reserve), Setting(ITVAL, "limits"))
    snapshot = replace(a_snapshot(jobs, nodes or [a_node()]), waiting=waiting)
    looks = {"n1": NodeMemory(frozenset(known), START - ITVAL, ITVAL)} if evaluated else {}
    return policy.decide(snapshot, MemoryState(known, looks))


BUSY = training("busy", within=None)
"""It takes whatever the others do not need."""


class TestNeeds:
    @pytest.mark.parametrize(
        ("cpu_seconds", "steps", "parameters", "needed"),
        [
            (1.0, 900, {"gamma": 1.0}, 0.9),  # the printed vector, and the next one
            (0.6, 900, {"gamma": 1.0}, 0.54),
            (1.0, 900, {"gamma": 1.0, "ending_scrapes": 4.0}, 0.9 / 0.98),  # before the last scrapes
            (1.0, 450, {}, 0.5),  # a tenth of the time in reserve
            (1.0, 970, {}, 0.975),  # feasible only without it: all that it can use
        ],
    )
    def test_a_job_gets_what_its_steps_need_until_its_deadline(
        self, cpu_seconds: float, steps: float, parameters: dict[str, Any], needed: float
    ) -> None:
        known = {"job": timed(cpu_seconds), "busy": JobMemory()}
        decisions = decide([training("job", steps=steps), BUSY], known, **parameters)
        assert limits(decisions) == pytest.approx({"job": needed, "busy": 1 - needed})
        assert classes(decisions) == {"job": "guaranteed", "busy": "best-effort"}

    def test_what_is_infeasible_here_and_feasible_on_the_largest_node_is_not_hopeless(self) -> None:
        """The largest one is that of which other pods leave most."""
        jobs, known = [training("job", useful=None)], {"job": timed(2.0)}
        alone = decide(jobs, known)
        assert classes(alone) == {"job": "hopeless"}
        assert "job takes 30m00s even alone" in alone.reasons["job"]
        assert classes(decide(jobs, known, [a_node(), a_node("n2", 4.0)])) == {"job": "best-effort"}
        taken = a_node("n2", 4.0, available_cores=0.5)
        assert classes(decide(jobs, known, [a_node(), taken])) == {"job": "hopeless"}

    def test_no_more_is_promised_than_other_pods_leave(self) -> None:
        jobs, known = [training("job", steps=500), BUSY], {"job": timed(), "busy": JobMemory()}
        assert sum(limits(decide(jobs, known, [a_node(available_cores=0.7)])).values()) == pytest.approx(0.7)
        scarce = decide(jobs, known, [a_node(available_cores=0.4)])
        assert classes(scarce)["job"] == "hopeless"
        assert sum(limits(scarce).values()) == pytest.approx(0.4)

    def test_time_that_no_cpu_saves_counts(self) -> None:
        """0.4 s + 0.8 CPU-seconds a step: 500 steps in 1000 s take 0.8/1.6 cores."""
        known = JobMemory(paces=(Pace(START, 2.0, 0.5), Pace(START, 1.2, 1.0)))
        decisions = decide([training("job", steps=500), BUSY], {"job": known, "busy": JobMemory()}, gamma=1.0)
        assert limits(decisions)["job"] == pytest.approx(0.5)

    @pytest.mark.parametrize("within", [0, -50])
    def test_a_deadline_that_has_passed_is_hopeless(self, within: float) -> None:
        decisions = decide([training("job", within=within)], {"job": timed()})
        assert classes(decisions) == {"job": "hopeless"}
        assert f"passed {-within:.0f}s ago" in decisions.reasons["job"]

    def test_a_job_that_does_not_report_its_steps_has_an_even_share(self) -> None:
        jobs = [training("silent", steps=None), BUSY]
        decisions = decide(jobs, {"silent": JobMemory(), "busy": JobMemory()})
        assert classes(decisions)["silent"] == "profiling"
        assert limits(decisions)["silent"] == pytest.approx(0.5)

    def test_one_that_has_done_all_its_steps_has_an_even_share_until_it_ends(self) -> None:
        jobs = [training("ending", steps=0), training("job", steps=990)]
        assert limits(decide(jobs, {"ending": timed(), "job": timed()}))["ending"] == 0.5


class TestAdmission:
    def test_earlier_deadlines_come_first_and_the_rest_has_what_is_left(self) -> None:
        jobs = [training("soon", steps=600, within=1000), training("later", steps=890, within=1001)]
        decisions = decide(jobs, {"soon": timed(), "later": timed()}, gamma=1.0)
        assert classes(decisions) == {"soon": "guaranteed", "later": "best-effort"}
        assert limits(decisions) == pytest.approx({"soon": 0.975, "later": 0.025})
        assert "other deadlines leave too little" in decisions.reasons["later"]

    def test_what_does_not_fit_beside_an_earlier_job_may_fit_after_it(self) -> None:
        """50 CPU-seconds due in 100 s and 95 in 150 s: 0.5 + 0.63 cores are too much at once, 145 in 150 s are not."""
        jobs = [training("soon", steps=50, within=100), training("later", steps=95, within=150)]
        decisions = decide(jobs, {"soon": timed(), "later": timed()}, gamma=1.0)
        assert classes(decisions) == {"soon": "guaranteed", "later": "guaranteed"}
        assert limits(decisions) == pytest.approx({"soon": 0.975, "later": 0.025})

    def test_of_what_does_not_fit_the_longest_is_late(self) -> None:
        """50 CPU-seconds due in 100 s, 120 in 150 s and 90 in 160 s: without the second one the others are in time."""
        jobs = [
            training("first", steps=50, within=100),
            training("second", steps=120, within=150),
            training("third", steps=90, within=160),
        ]
        decisions = decide(jobs, {job.uid: timed() for job in jobs}, gamma=1.0)
        assert classes(decisions) == {"first": "guaranteed", "second": "best-effort", "third": "guaranteed"}

    def test_a_job_of_one_thread_that_cannot_wait_for_those_before_has_its_need_at_once(self) -> None:
        """1,000 CPU-seconds on two cores, due first, leave time for 900 of one thread, but not one after the other."""
        jobs = [training("wide", steps=1000, within=1000, useful=2.0), training("narrow", steps=900, within=1001)]
        decisions = decide(jobs, {job.uid: timed() for job in jobs}, [a_node(cpu_cores=2.0)], gamma=1.0)
        assert classes(decisions) == {"wide": "guaranteed", "narrow": "guaranteed"}
        assert limits(decisions) == pytest.approx({"wide": 2 - 900 / 1001, "narrow": 900 / 1001})

    def test_a_hopeless_job_starves_no_feasible_one_whatever_its_deadline(self) -> None:
        jobs = [training("hopeless", within=100), training("job", within=1000)]
        decisions = decide(jobs, {"hopeless": timed(), "job": timed()}, gamma=1.0)
        assert classes(decisions) == {"hopeless": "hopeless", "job": "guaranteed"}
        assert limits(decisions)["job"] == pytest.approx(0.975)

    def test_best_effort_goes_by_deadline_after_the_guaranteed(self) -> None:
        jobs = [
            training("first", steps=700, within=1000, useful=0.8),
            training("later", steps=710, within=1002),
            training("sooner", steps=750, within=1001),
        ]
        decisions = decide(jobs, {job.uid: timed() for job in jobs}, gamma=1.0)
        assert classes(decisions) == {"first": "guaranteed", "sooner": "best-effort", "later": "best-effort"}
        got = limits(decisions)
        assert got == pytest.approx({"first": 0.8, "sooner": 0.2 - FLOOR / 3, "later": FLOOR / 3})

    def test_a_job_that_leaves_cpu_unused_is_the_last_to_be_given_more(self) -> None:
        """Neither says what it can use; one never used more than half a core, the other used 3."""
        jobs = [training("idle", steps=100, within=900, useful=None), training("busy", steps=100, useful=None)]
        known = {"idle": timed(cores=0.5), "busy": timed(cores=3.0)}
        assert limits(decide(jobs, known, [a_node(cpu_cores=4.0)])) == pytest.approx({"idle": 1.0, "busy": 3.0})


class TestNewcomers:
    def test_before_it_is_timed_it_has_what_it_can_use_where_that_is_free(self) -> None:
        jobs = [training("new", age=5), training("old", steps=450)]
        decisions = decide(jobs, {"new": JobMemory(), "old": timed()}, [a_node(cpu_cores=2.0)])
        assert classes(decisions)["new"] == "profiling"
        assert "steps not timed yet" in decisions.reasons["new"]
        assert limits(decisions) == pytest.approx({"new": 1.0, "old": 1.0})

    def test_else_an_even_share_whatever_is_guaranteed(self) -> None:
        jobs = [training("new", age=5), training("old", steps=900, within=1000)]
        decisions = decide(jobs, {"new": JobMemory(), "old": timed()})
        assert limits(decisions) == pytest.approx({"new": 0.5, "old": 0.5})


def arrival(uid: str, *, within: float | None = 1000) -> Arrival:
    deadline = None if within is None else START + within
    return Arrival(
        uid, uid, "team", START, useful_parallelism_cores=1.0, objectives=Objectives(deadline_at_seconds=deadline)
    )


def placed(decisions: Decisions) -> list[tuple[str, str]]:
    return [(move.job_uid, move.node) for move in decisions.moves if isinstance(move, Place)]


class TestPlacement:
    NODES = (a_node("n1", 2.0), a_node("n2", 2.0), a_node("n3", 4.0))

    def on(self, node: str, uid: str, steps: float) -> Job:
        return training(uid, steps=steps).altered(node=node)

    def test_the_node_with_the_least_free_cpu_that_fits_is_chosen(self) -> None:
        jobs = [self.on("n1", "a", 900), self.on("n1", "b", 450), self.on("n2", "c", 450), self.on("n3", "d", 90)]
        known = {job.uid: timed() for job in jobs}
        decisions = decide(jobs, known, list(self.NODES), (arrival("new"),))
        assert placed(decisions) == [("new", "n2")]  # 0.5, 1.5 and 3.9 cores are free
        assert "least free CPU that fits it (1.5 cores)" in decisions.moves[0].reason

    def test_jobs_are_placed_in_order_of_slack_and_each_sees_those_before(self) -> None:
        waiting = (arrival("none", within=None), arrival("late", within=900), arrival("soon", within=100))
        decisions = decide([], {}, [a_node("n1"), a_node("n2")], waiting)
        assert placed(decisions) == [("soon", "n1"), ("late", "n2"), ("none", "n1")]

    def test_hopeless_jobs_take_no_room(self) -> None:
        jobs = [self.on("n1", "a", 5000), self.on("n2", "b", 500)]
        decisions = decide(jobs, {job.uid: timed() for job in jobs}, [a_node("n1"), a_node("n2")], (arrival("new"),))
        assert placed(decisions) == [("new", "n1")]

    def test_switched_off_nothing_is_placed(self) -> None:
        decisions = decide([], {}, [a_node()], (arrival("new"),), placement=False)
        assert decisions.moves == ()

    def test_without_autoscaling_nothing_is_resized_and_every_running_job_takes_room(self) -> None:
        jobs = [self.on("n1", "a", 90), self.on("n1", "b", 90), self.on("n2", "c", 5000)]
        nodes = [a_node("n1"), a_node("n2")]
        decisions = decide(jobs, {job.uid: timed() for job in jobs}, nodes, (arrival("new"),), autoscaling=False)
        assert decisions.resizes == ()
        assert all("unchanged" in decisions.reasons[uid] for uid in ("a", "b", "c"))
        assert placed(decisions) == [("new", "n2")]

    def test_once_autoscaling_is_switched_off_a_job_gets_back_what_it_came_with(self) -> None:
        job = training("a").altered(allocation=CpuAllocation(50, 10))
        known = {"a": timed(wanted=0.05, job_class="best-effort", original=CpuAllocation(1000, 10))}
        decisions = decide([job], known, autoscaling=False)
        assert [(each.to_millicores, each.is_rollback) for each in decisions.resizes] == [(1000, True)]
