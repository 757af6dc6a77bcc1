"""`marginal`: curves, what is expected of jobs, order under the promise, floors, placement, moves, and its memory."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.instances import AT_ONCE, Exponential, a_policy_run, a_sim_job, a_sim_node, an_instance
from support.searching import examples
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.estimators import measurements
from slopewise.estimators.growth import Measuring
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import (
    MEMORY_JSON,
    Anchor,
    Arrival,
    ClassFigures,
    Decisions,
    Departed,
    Evaluation,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Objectives,
    Pace,
    PassReport,
    Points,
    RawPoint,
    Responses,
    Usage,
)
from slopewise.policies import Setting, marginal
from slopewise.policies.marginal import FAVOURS, curve, forecast
from slopewise.policies.marginal.fair_ends import down, expected_ends, fair_ends, fair_share, order
from slopewise.policies.marginal.forecast import Forecast, forecasts
from slopewise.simulator.engine import controller_of, drive, run
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import Instance, Physics, RunOutcome, SimJob, SimNode
from slopewise.simulator.world.world import World


def a_forecast(uid: str, *, done: float = 0.0, total: float = 100.0, kappa: float = 10.0, **more: Any) -> Forecast:
    return Forecast(a_job(uid), done, True, total, total, kappa, **more)


def index_of(each: Forecast, favour: str = "balanced") -> float:
    return forecast.index_of(each, FAVOURS[favour], 100.0)


def points_of(kappa: float, *, work: float = 100.0, until: float = 0.5, count: int = 40, noise: float = 0.0) -> Any:
    luck = np.random.default_rng(1)
    done = np.linspace(0.01, until, count)
    level = 0.3 + 2.0 * np.exp(-kappa * done) + noise * luck.normal(size=count)
    return np.stack([work * done, level], axis=1).astype(np.float32)


class TestCurve:
    @pytest.mark.parametrize("kappa", [2.0, 10.0, 40.0])
    def test_the_rate_of_a_smooth_curve_is_found(self, kappa: float) -> None:
        (found,) = curve.fit([points_of(kappa)], [1.0], [100.0])
        assert found == pytest.approx(kappa, rel=0.15)

    def test_of_few_noisy_points_the_prior_says_more_and_of_none_all(self) -> None:
        noisy = [points_of(40.0, count=count, noise=0.3) for count in (3, 200)]
        few, many = curve.fit(noisy, [1.0] * 2, [100.0] * 2)
        assert abs(math.log(few / 10)) < abs(math.log(many / 10))
        flat = np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]], np.float32)
        assert curve.fit([flat[:1], flat], [1.0] * 2, [100.0] * 2) == pytest.approx([10.0, 10.0], rel=0.1)

    def test_jobs_that_are_fitted_together_do_not_change_each_other_also_where_a_metric_rises(self) -> None:
        some = [points_of(kappa, count=5 + 7 * at, noise=0.05) for at, kappa in enumerate((3.0, 9.0, 30.0))]
        alone = [curve.fit([each], [1.0], [100.0])[0] for each in some]
        mirrored = [each * np.array([1.0, -1.0], np.float32) for each in some]
        assert curve.fit([*some, *mirrored], [1.0] * 3 + [-1.0] * 3, [100.0] * 6) == [*alone, *alone]


class TestForecasts:
    def found(self, memory: MemoryState, **more: Any) -> Forecast:
        job = a_job("a", at=START, cpu_seconds=20.0).altered(**more)
        snapshot = a_snapshot([job], at=START)
        return forecasts(snapshot, memory, [job], {}, FAVOURS["balanced"], 20.0)["a"]

    def test_a_plan_is_steps_times_cpu_seconds_a_step_and_a_job_beyond_it_is_one_without(self) -> None:
        memory = MemoryState({"a": stepping(20.0, 10.0)})
        each = self.found(memory, steps_total=20.0, steps_planned=300.0)
        assert (each.planned, each.done, each.total, each.sure) == (True, 10.0, 150.0, 150.0)
        beyond = self.found(memory, steps_total=20.0, steps_planned=15.0)
        without = self.found(memory, steps_total=20.0, steps_planned=None)
        assert (beyond.planned, beyond.total, beyond.index) == (False, without.total, without.index)

    @pytest.mark.parametrize(
        ("study", "steps_first", "total"), [("s", 20.0, 150.0), ("s", 16.0, 300.0), ("", 20.0, 450.0)]
    )
    def test_of_a_trial_whose_start_is_in_its_own_steps_those_of_its_class_count(
        self, study: str, steps_first: float, total: float
    ) -> None:
        """20 steps and their start took 30 core-seconds; steps of its class take half a one, and its last four one."""
        points = Points(
            "steps", "loss", b"", work=20.0, cpu_seconds=30.0, steps_first=steps_first, steps=20.0,
            steps_cpu_seconds=30.0, cpu_first_seconds=26.0,
        )  # fmt: skip
        classes = {"s": (ClassFigures("x", START, 0.0, 0.5, 0.1),)}
        each = self.found(
            MemoryState({"a": JobMemory(points=points)}, classes=classes),
            steps_total=20.0, steps_planned=300.0, workload_class="s", objectives=Objectives(study=study),
        )  # fmt: skip
        assert each.total == pytest.approx(total)

    def test_without_a_plan_ten_lengths_of_the_curve_are_expected(self) -> None:
        points = Points("cpu", "loss", points_of(8.0, until=1.0).tobytes(), work=100.0, cpu_seconds=100.0)
        each = self.found(MemoryState({"a": JobMemory(points=points)}))
        assert each.total == pytest.approx(10 * 100 / 8, rel=0.2)

    def test_a_curve_is_fitted_again_also_where_its_points_were_averaged_or_began_again(self) -> None:
        """Of 200 points at most, 196 were fitted; without their average none would ever be 1.15 times as many."""
        points = Points("cpu", "loss", points_of(8.0, until=1.0, count=102).tobytes(), work=100.0, cpu_seconds=100.0)
        job = a_job("a", at=START, cpu_seconds=20.0)
        memory, fitted = MemoryState({"a": JobMemory(points=points)}), forecast.State(START, 0, 0, 1, 0, 196, rate=0.9)
        with_state, without = (
            forecasts(a_snapshot([job], at=START), memory, [job], states, FAVOURS["balanced"], 20.0)["a"]
            for states in ({"a": fitted}, dict[str, forecast.State]())
        )
        assert (with_state.rate, with_state.points) == (without.rate, 102)

    def test_without_a_plan_jobs_of_its_class_say_what_it_needs(self) -> None:
        classes = {"vae": (ClassFigures("x", START, work=90.0), ClassFigures("y", START, work=110.0))}
        each = self.found(MemoryState({"a": JobMemory()}, classes=classes), workload_class="vae")
        assert each.total == 100.0

    def test_what_is_promised_without_a_plan_is_little_beyond_what_is_done(self) -> None:
        """6,000 core-seconds of work in passes of 20 s: a guess of 24,000 makes nobody wait for more than a fifth."""
        points = Points(
            "cpu", "loss", points_of(2.0, work=6000.0, until=1.0).tobytes(), work=6000.0, cpu_seconds=6000.0
        )
        each = self.found(MemoryState({"a": JobMemory(points=points)}), usage=Usage(START, 6000.0))
        assert each.total > 12_000
        assert each.sure == pytest.approx(1.2 * 6000 + 4 * 20)

    def test_milestones_are_where_the_curve_has_them(self) -> None:
        each = a_forecast("a", kappa=10.0)
        assert each.work_to(0.9) == pytest.approx(23.0, abs=0.1)
        assert each.work_to(0.99) == pytest.approx(46.0, abs=0.2)
        assert a_forecast("b", done=30.0).work_to(0.9) == 0.0


def stepping(steps: float, cpu_seconds: float) -> JobMemory:
    points = Points(
        "steps", "loss", b"", work=steps, cpu_seconds=cpu_seconds, steps_first=0.0, steps=steps,
        steps_cpu_seconds=cpu_seconds,
    )  # fmt: skip
    return JobMemory(points=points)


class TestIndex:
    @pytest.mark.parametrize(
        ("first", "other", "times"),
        [
            (a_forecast("a", done=95.0), a_forecast("b", done=60.0), 3.0),  # near its end, and long converged
            (a_forecast("a"), a_forecast("b", done=50.0), 1.0),  # young, and converged
            (a_forecast("a", total=50.0), a_forecast("b", total=300.0), 1.0),  # short, and long
        ],
    )
    def test_a_job_comes_before_another(self, first: Forecast, other: Forecast, times: float) -> None:
        assert index_of(first) > times * index_of(other)

    def test_quality_favours_the_young_and_ends_those_that_end(self) -> None:
        ratios = {
            favour: index_of(a_forecast("young"), favour) / index_of(a_forecast("ending", done=80.0), favour)
            for favour in FAVOURS
        }
        assert ratios["quality"] > ratios["balanced"] > ratios["ends"]

    def test_the_weight_of_a_job_counts_in_proportion(self) -> None:
        heavy = a_forecast("b")
        heavy.job = heavy.job.altered(objectives=Objectives(weight=3.0))
        assert index_of(heavy) == pytest.approx(3 * index_of(a_forecast("a")))


def shared_in_small_steps(left: Sequence[float], cores: Sequence[float], capacity: float) -> list[float]:
    """Ends under max-min fair sharing, job by job, the plain way."""
    remaining, now, ends = list(left), 0.0, [0.0] * len(left)
    while running := [at for at, each in enumerate(remaining) if each > 1e-9]:
        room, rates = capacity, {}
        for taken, at in enumerate(sorted(running, key=lambda at: cores[at])):
            rates[at] = min(cores[at], room / (len(running) - taken))
            room -= rates[at]
        step = min(remaining[at] / rates[at] for at in running)
        now += step
        for at in running:
            remaining[at] -= rates[at] * step
            if remaining[at] <= 1e-9:
                ends[at] = now
    return ends


class TestFairShare:
    @examples(50)
    @given(st.lists(st.tuples(st.floats(0.5, 200), st.floats(0.1, 4)), min_size=1, max_size=8), st.floats(0.5, 8))
    def test_ends_are_those_of_sharing_step_by_step(self, jobs: list[tuple[float, float]], capacity: float) -> None:
        left, cores = [each[0] for each in jobs], [each[1] for each in jobs]
        _, ends = fair_share(left, cores, capacity)
        assert ends == pytest.approx(shared_in_small_steps(left, cores, capacity), rel=1e-6)

    def test_what_was_had_by_then_adds_up_to_what_the_cluster_gives(self) -> None:
        luck = random.Random(3)
        left = [luck.uniform(10, 100) for _ in range(9)] + [math.inf]
        served, _ = fair_share(left, [1.0] * 10, 3.0, 40.0)
        assert math.fsum(served) == pytest.approx(120.0)
        assert all(had <= most for had, most in zip(served, left, strict=True))

    def test_a_job_without_an_end_never_ends_and_others_end_as_the_docstring_says(self) -> None:
        assert fair_share([math.inf, 5.0], [1.0, 1.0], 1.0)[1] == [math.inf, 10.0]
        assert fair_share([10.0, 40.0, 100.0], [2.0, 2.0, 1.0], 2.0)[1] == pytest.approx([15.0, 45.0, 105.0])


class TestOrder:
    def in_order(self, *jobs: tuple[float, float, float]) -> list[str]:
        """Jobs by due time, work left and index; on one core."""
        found = [a_forecast(f"j{at}", total=left, index=index) for at, (_, left, index) in enumerate(jobs)]
        due = {f"j{at}": each[0] for at, each in enumerate(jobs)}
        return [each.job.uid for each in order(found, due, 1.0, 10.0).jobs]

    def test_the_index_decides_unless_a_job_would_end_late(self) -> None:
        assert self.in_order((100, 80, 1.0), (300, 100, 2.0)) == ["j1", "j0"]
        assert self.in_order((85, 80, 1.0), (300, 100, 2.0)) == ["j0", "j1"]

    def test_jobs_that_are_due_together_do_not_wait_for_one_another(self) -> None:
        """As trials of a study that has its node for itself: in any order the last one ends when all work is done."""
        assert self.in_order((100, 95, 1.0), (100, 98, 2.0)) == ["j1", "j0"]
        assert self.in_order((100, 95, 1.0), (101, 98, 2.0)) == ["j0", "j1"]

    def test_all_due_before_count_for_the_slack_of_one(self) -> None:
        found = [a_forecast("a", total=50.0), a_forecast("b", total=60.0)]
        slack = order(found, {"a": 100.0, "b": 115.0}, 1.0, 10.0).slack_seconds
        assert slack == {"a": 50.0, "b": 5.0}

    @examples(50)
    @given(st.lists(st.tuples(st.floats(0.01, 2), st.floats(0, 1)), min_size=1, max_size=8), st.floats(0.5, 8))
    def test_cpu_is_all_of_the_node_and_no_more(self, jobs: list[tuple[float, float]], capacity: float) -> None:
        uids = [str(at) for at in range(len(jobs))]
        cores = {uid: each[0] for uid, each in zip(uids, jobs, strict=True)}
        floors = {uid: min(cores[uid], each[1] * capacity / len(jobs)) for uid, each in zip(uids, jobs, strict=True)}
        given_out = down(uids, floors, cores, capacity)
        assert math.fsum(given_out.values()) == pytest.approx(min(capacity, math.fsum(cores.values())))
        assert all(floors[uid] <= cpu + 1e-12 and cpu <= cores[uid] + 1e-9 for uid, cpu in given_out.items())

    def test_a_plan_that_is_a_lie_does_not_spoil_the_end_that_is_expected_of_another(self) -> None:
        jobs = [a_forecast("lie", total=1e9), a_forecast("a", total=60.0)]
        due = {"lie": 2e9, "a": 130.0}
        ends = expected_ends(jobs, due, due, {"lie": 1.0, "a": 1.0}, 1.0, START)["a"]
        assert (ends.at_seconds - START, ends.earliest_seconds - START) == (120.0, 60.0)
        assert (ends.latest_seconds - START, (ends.fair_seconds or 0.0) - START) == (130.0, 130.0)


def decisions(
    jobs: Sequence[Any], memory: Mapping[str, JobMemory], *, cores: float = 2.0, at: float = START
) -> Decisions:
    policy = marginal.Policy(marginal.Parameters(), Setting(20.0, "requests"))
    return policy.decide(a_snapshot(jobs, [a_node("n1", cores)], at=at), MemoryState(dict(memory)))


class TestNode:
    def test_a_job_whose_loss_is_not_finite_neither_claims_nor_leads(self) -> None:
        diverged = a_job("nan", at=START, cpu_seconds=1.0).altered(
            evaluation=Evaluation(math.nan, 4, START, "loss", finite=False)
        )
        sound = a_job("sound", at=START, cpu_seconds=50.0)
        state = decisions([diverged, sound], {"nan": known(), "sound": known()}, cores=1.0)
        cores = {uid: each.decided.wanted_cores or 0.0 for uid, each in state.memory.jobs.items()}
        assert cores["nan"] == pytest.approx(0.025)
        assert cores["sound"] == pytest.approx(0.975)
        assert "not finite" in state.reasons["nan"]
        assert state.memory.jobs["nan"].decided.ends is None

    def test_a_scrape_that_is_missed_makes_no_job_that_has_diverged_lead(self) -> None:
        jobs = [a_job("nan", at=START, cpu_seconds=1.0, level=None), a_job("sound", at=START, cpu_seconds=50.0)]
        levels = Levels("s", 1.0, 0.5, Anchor(START - 40, 0.5, None), finite=False, silent_since_seconds=START)
        state = decisions(jobs, {"nan": known(levels=levels), "sound": known()}, cores=1.0)
        assert state.memory.jobs["nan"].decided.wanted_cores == pytest.approx(0.025)
        assert "not finite" in state.reasons["nan"]

    def test_a_served_model_without_a_loss_gets_what_its_objective_needs(self) -> None:
        server = a_job("server", at=START, cpu_seconds=50.0).altered(evaluation=None, responses=Responses(100, 30.0),
            objectives=Objectives(qoe_seconds=0.5),
        )  # fmt: skip
        trains = a_job("train", at=START, cpu_seconds=50.0)
        paces = (Pace(START - 40, 1.0, 0.3), Pace(START - 20, 0.6, 0.5))
        found = decisions([server, trains], {"server": JobMemory(paces=paces), "train": known()}, cores=1.0)
        assert found.reasons["server"].startswith("objective: its objective or deadline needs 0.6")
        assert found.memory.jobs["server"].decided.wanted_cores == pytest.approx(0.6, rel=0.1)
        assert math.fsum(each.decided.wanted_cores or 0.0 for each in found.memory.jobs.values()) == pytest.approx(1.0)

    def test_a_served_model_whose_objective_no_cpu_meets_keeps_what_it_came_with_as_one_without_an_objective(
        self,
    ) -> None:
        server = a_job("server", at=START).altered(evaluation=None, responses=Responses(100, 30.0))
        asking = server.altered(objectives=Objectives(qoe_seconds=0.5))
        paces = (Pace(START - 40, 1.0, 0.3), Pace(START - 20, 0.9, 0.5))  # 0.75 s of them no CPU saves
        memory = {"server": JobMemory(paces=paces), "train": known()}
        for one in (server, asking):
            found = decisions([one, a_job("train", at=START, cpu_seconds=50.0)], memory)
            assert found.reasons["server"] == "unchanged: reports no loss, keeps its original CPU"
            assert found.memory.jobs["server"].decided.wanted_cores is None


class TestStarts:
    @pytest.mark.parametrize(("study", "served"), [("s", 5.0), ("", 10.0)])
    def test_what_fair_sharing_gives_a_trial_before_its_first_loss_is_its_start(
        self, study: str, served: float
    ) -> None:
        """On one core two jobs were served 10 core-seconds each in 20 s; 5 of them were steps."""
        jobs = [a_job(uid).altered(objectives=Objectives(study=study)) for uid in ("a", "b")]
        found = {job.uid: msgspec.structs.replace(a_forecast(job.uid, done=5.0, points=4), job=job) for job in jobs}
        starting = {job.uid: forecast.State(START, 0.0, 0.0, 1.0, 0.0) for job in jobs}
        memory = MemoryState({job.uid: known() for job in jobs})
        node = [a_node("n1", 1.0)]
        first, due = fair_ends(a_snapshot(jobs, node, at=START + 20), memory, starting, found)
        states = {uid: state for uid, each in first.jobs.items() if (state := forecast.state_of(each.decided.state))}
        assert {state.served for state in states.values()} == {served}
        assert due["a"] == pytest.approx(2 * (100.0 - served))
        later, _ = fair_ends(a_snapshot(jobs, node, at=START + 40), first, states, found)
        after = forecast.state_of(later.jobs["a"].decided.state)
        assert after is not None
        assert after.served == pytest.approx(served + 10.0)


class TestDepartedJobs:
    def test_a_job_that_has_ended_goes_on_in_the_virtual_sharing(self) -> None:
        """Served first, `a` ends after 100 s; shared, after 200. Until then `b` is due no sooner for it."""
        policy = marginal.Policy(marginal.Parameters(), Setting(20.0, "requests"))
        node = [a_node("n1", 1.0)]
        a, b = (
            a_job(uid, at=START, cpu_seconds=0.0).altered(steps_total=0.0, steps_planned=100.0) for uid in ("a", "b")
        )
        begun = {uid: stepping(1.0, 1.0).altered(levels=Levels(first=2.0, best=2.0)) for uid in ("a", "b")}
        first = policy.decide(a_snapshot([a, b], node, at=START), MemoryState(begun)).memory
        due = first.jobs["b"].decided.ends
        remembered = replace(first, jobs={**first.jobs, "a": first.jobs["a"].with_decided(wanted_cores=1.0)})
        later = a_snapshot([b], node, at=START + 100)
        measured = measurements.measure(later, remembered, Measuring(20.0))
        assert [each.job_uid for each in measured.departed] == ["a"]
        after = policy.decide(later, measured).memory
        assert due is not None
        now = after.jobs["b"].decided.ends
        assert now is not None
        assert now.fair_seconds == pytest.approx(due.fair_seconds, abs=5.0)

    def test_what_is_remembered_of_a_job_that_has_ended_stays_once_it_has_ended_there(self) -> None:
        over = msgspec.json.encode(forecast.State(START, 60.0, 60.0, 1.0, 60.0, over=True)).decode()
        job, before = a_job("a", state=JobState.FINISHED), MemoryState({"a": known(state=over)})
        after = marginal.Policy(marginal.Parameters(), Setting(20.0, "requests")).decide(
            a_snapshot([job], at=START + 20), before
        )
        assert after.memory.jobs["a"] is before.jobs["a"]

    def test_a_job_that_is_suspended_for_long_goes_on_there_once_and_not_again_and_again(self) -> None:
        """A cluster remembers it for as long as its Job is there: `a` has 60 core-seconds, of which 50 were its share.

        Its other ten end 20 s later under fair sharing, and from then on `b` has the core there.
        """
        policy = marginal.Policy(marginal.Parameters(), Setting(20.0, "requests"))
        state = msgspec.json.encode(forecast.State(START, 50.0, 100.0, 1.0, 60.0)).decode()
        stored = {"a": known(state=state), "b": stepping(1.0, 1.0).altered(levels=Levels(first=2.0, best=2.0))}
        departed: tuple[Departed, ...] = ()
        fair, kept = [], []
        for at in (START + 20 * step for step in range(12)):
            b = a_job("b", at=at, cpu_seconds=1.0).altered(steps_total=1.0, steps_planned=1000.0)
            snapshot = a_snapshot([b], [a_node("n1", 1.0)], at=at)
            measured = measurements.measure(snapshot, MemoryState(stored, departed=departed), Measuring(20.0))
            after = policy.decide(snapshot, measured).memory
            stored, departed = {**stored, **after.jobs}, after.departed
            ends = after.jobs["b"].decided.ends
            fair.append(ends.fair_seconds if ends is not None else None)
            kept.append([each.job_uid for each in departed if each.state])
        assert kept[-6:] == [[]] * 6
        assert fair[-1] == pytest.approx(fair[-6], abs=1.0)


class TestBesideOtherPods:
    """Of the 16 cores of `taken`, other pods leave 0.2 or 12; three jobs share the four cores of `free`."""

    def decided(self, left: float, *, waiting: bool) -> list[tuple[str, str]]:
        jobs = [
            a_job(f"job-{n}", node="free", at=START + 100, cpu_seconds=20.0).altered(
                steps_total=20.0, steps_planned=300.0, migratable=True,
                points=(RawPoint(START + 99, 0.5, 20.0),),
            )
            for n in range(3)
        ]  # fmt: skip
        nodes = [a_node("free", 4.0, available_cores=4.0), a_node("taken", 16.0, available_cores=left)]
        snapshot = a_snapshot(jobs, nodes, at=START + 100)
        if waiting:
            snapshot = replace(snapshot, waiting=(Arrival("new", "new", "team", START + 99, 500),))
        how = Measuring(20.0, reads_points=True)
        memory = measurements.measure(snapshot, MemoryState(), how)
        later = replace(snapshot, taken_at_seconds=START + 105)
        policy = marginal.Policy(marginal.Parameters(), Setting(20.0, "requests"))
        return [
            (move.job_uid, move.node) for move in policy.decide(later, measurements.measure(later, memory, how)).moves
        ]

    def test_an_arrival_goes_where_jobs_can_have_more(self) -> None:
        assert self.decided(0.2, waiting=True) == [("new", "free")]
        assert self.decided(12.0, waiting=True) == [("new", "taken")]

    def test_no_job_moves_to_less_than_it_has(self) -> None:
        assert self.decided(0.2, waiting=False) == []
        assert [node for _, node in self.decided(12.0, waiting=False)] == ["taken"]


def an_outcome(jobs: Sequence[SimJob], nodes: Sequence[SimNode] = (), policy: str = "marginal") -> RunOutcome:
    instance = an_instance(jobs, nodes or [a_sim_node()], physics=Physics(contention_ratio=0.01))
    return run(instance, a_policy_run(policy, behaviour=AT_ONCE))


@cache
def of_mixed(policy: str = "marginal", planned: bool = True) -> RunOutcome:
    """The outcome of the mixed jobs, which several tests read."""
    return an_outcome(mixed() if planned else mixed(steps_planned=None), policy=policy)


def mixed(count: int = 8, **more: Any) -> list[SimJob]:
    works = [100.0, 250.0, 30.0, 180.0, 120.0, 60.0, 260.0, 90.0]
    return [
        a_sim_job(
            f"job-{n}", works[n % 8], arrive=17.0 * n, curve=Exponential(8.0 + n), noise=0.01,
            **{"steps_planned": round(10 * works[n % 8]), **more},
        )
        for n in range(count)
    ]  # fmt: skip


def ends(outcome: RunOutcome) -> dict[str, float]:
    return {job.name: job.jct_seconds or math.inf for job in outcome.jobs}


class TestWholeRuns:
    @pytest.mark.parametrize(("planned", "what", "at_most"), [(True, "ends", 0.85), (False, "good", 0.95)])
    def test_jobs_end_or_are_good_sooner_on_average_and_none_ends_much_later_than_under_fair_sharing(
        self, planned: bool, what: str, at_most: float
    ) -> None:
        ours, fair = of_mixed(planned=planned), of_mixed("fair", planned=planned)
        means = [
            np.mean([(job.at_90_seconds or math.inf) - job.arrived_seconds for job in each.jobs])
            if what == "good"
            else np.mean(list(ends(each).values()))
            for each in (ours, fair)
        ]
        assert means[0] < at_most * means[1]
        assert max(ends(ours)[name] / seconds for name, seconds in ends(fair).items()) < 1.08

    @pytest.mark.parametrize("plan", [20_000, 10**9])
    def test_short_jobs_do_not_pay_for_a_long_one_of_one_thread(self, plan: int) -> None:
        """On two cores it could never make up for a core that it misses; so it gets what fair sharing gives it."""
        falls = Exponential(10.0)
        jobs = [a_sim_job("week", 2_000.0, steps_planned=plan, curve=falls)]
        jobs += [
            a_sim_job(
                f"s{n}",
                60.0 + 20 * (n % 3),
                arrive=30.0 + 10 * n + 140 * (n // 3),
                steps_planned=600 + 200 * (n % 3),
                curve=falls,
            )
            for n in range(6)
        ]
        two_cores = [a_sim_node(cpu=2.0)]
        ours, fair = (ends(an_outcome(jobs, two_cores, policy)) for policy in ("marginal", "fair"))
        assert max(ours[name] / fair[name] for name in fair) < 1.03

    def test_a_deadline_is_met_that_fair_sharing_misses(self) -> None:
        jobs = mixed()
        jobs[1] = replace(jobs[1], deadline_seconds=jobs[1].arrive_seconds + 400.0)
        assert ends(of_mixed("fair"))["job-1"] > 400.0 > ends(an_outcome(jobs))["job-1"]

    def test_a_node_that_idles_takes_a_job_from_a_crowded_one(self) -> None:
        jobs = [a_sim_job(f"job-{n}", 400.0, curve=Exponential(8.0), steps_planned=4000) for n in range(4)]
        jobs += [a_sim_job(f"short-{n}", 20.0, curve=Exponential(8.0), steps_planned=200) for n in range(2)]
        moved = an_outcome(jobs, [a_sim_node("n1"), a_sim_node("n2")])
        assert {stay.node for job in moved.jobs for stay in job.stays} == {"n1", "n2"}

    def test_each_job_has_a_reason_of_one_sentence_which_says_when_it_is_good_or_what_work_that_takes(self) -> None:
        reasons = [reason for _, of_pass in decided(restart=False) for reason in of_pass.values()]
        assert not [reason for reason in reasons if ". " in reason or "\n" in reason]
        timed = [each for each in reasons if "without a plan" not in each and "decided again" not in each]
        first = [reason for reason in timed if reason.startswith("first: ")]
        waits = [reason for reason in timed if reason.startswith("waits: ")]
        assert first
        assert waits
        assert all(re.search(r" is (\d+[smhd])+ away", reason) for reason in first)
        assert all(re.search(r" is [\d.e+-]+ core-s away", reason) for reason in waits)

    def test_goes_on_after_a_restart_as_if_nothing_had_happened(self) -> None:
        assert decided(restart=False) == decided(restart=True)

    def test_memory_of_a_job_stays_far_below_what_a_jobgrowth_holds(self) -> None:
        last = passes(restart=False)[-40]
        assert last.decisions is not None
        sizes = [len(MEMORY_JSON.encode(each)) for each in last.decisions.memory.jobs.values()]
        assert 0 < max(sizes) < 8_000


class Restarting(DictionaryMemory):
    """A memory that goes through JSON between two passes, as through a JobGrowth."""

    def load(self) -> MemoryState:
        return msgspec.json.decode(MEMORY_JSON.encode(super().load()), type=MemoryState)


@cache
def passes(*, restart: bool) -> tuple[PassReport, ...]:
    """All passes over the mixed jobs; with `restart` memory is stored and read between them, by another policy."""
    instance: Instance = an_instance(mixed(), [a_sim_node()], physics=Physics(contention_ratio=0.01))
    policy, world = a_policy_run("marginal", behaviour=AT_ONCE), World(instance, "requests")
    controller = controller_of(policy, world)
    reports: list[PassReport] = []
    if restart:
        controller._ports = replace(controller._ports, memory=Restarting())
    follow = controller._follow

    def record(report: PassReport) -> None:
        reports.append(report)
        follow(report)
        if restart:
            controller._policy = controller_of(policy, world)._policy

    controller._follow = record  # type: ignore[method-assign]
    drive(world, DefaultScheduler(world, 1), controller)
    return tuple(reports)


def decided(*, restart: bool) -> list[tuple[float, Mapping[str, str]]]:
    return [
        (report.taken_at_seconds, dict(report.decisions.reasons))
        for report in passes(restart=restart)
        if report.decisions is not None
    ]
