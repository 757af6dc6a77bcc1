"""`marginal`: index, order under the guarantee, floors, placement, moves, and what it remembers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.instances import AT_ONCE, Exponential, a_policy_run, a_sim_job, a_sim_node, an_instance
from support.searching import examples
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.config.pass_settings import setting_of
from slopewise.config.training_policy import Behaviour
from slopewise.estimators import curves, measurements
from slopewise.estimators.growth import Measuring
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import (
    MEMORY_JSON,
    Arrival,
    ClassFigures,
    CurveFit,
    Ends,
    MemoryState,
    Objectives,
    PassReport,
    RawPoint,
)
from slopewise.policies import Setting, marginal
from slopewise.policies.shared.guarantees import least_service_ratio
from slopewise.policies.shared.marginal_index import FAVOURS, planned_indices
from slopewise.policies.shared.marginal_moves import Load, milestones
from slopewise.policies.shared.marginal_order import expected_ends, handed_down, order
from slopewise.policies.shared.marginal_unplanned import look_ahead
from slopewise.policies.shared.prospects import Prospect
from slopewise.policies.shared.work_priors import priors
from slopewise.simulator.engine import controller_of, drive, run
from slopewise.simulator.world.default_scheduler import DefaultScheduler
from slopewise.simulator.world.model import Instance, Physics, RunOutcome, SimJob, SimNode
from slopewise.simulator.world.world import World

BALANCED = FAVOURS["balanced"]


def a_prospect(
    uid: str, *, done: float = 0.0, total: float = 100.0, kappa: float = 10.0, index: float = 0.0, **more: Any
) -> Prospect:
    found = Prospect(a_job(uid), done, curves.unknown(total), 1.0, planned=True, **more)
    found.total = found.low = found.high = total
    found.rate, found.index = kappa / total, index
    return found


def index_of(*found: Prospect, weights: str = "balanced", dropped: Sequence[bool] = ()) -> list[float]:
    return [float(each) for each in planned_indices(found, dropped or [False] * len(found), FAVOURS[weights], 100.0)]


class TestIndex:
    def test_a_job_near_its_end_comes_before_one_that_has_long_converged(self) -> None:
        ending, converged = index_of(a_prospect("a", done=95.0), a_prospect("b", done=60.0))
        assert ending > 3 * converged

    def test_a_young_job_comes_before_a_converged_one(self) -> None:
        young, converged = index_of(a_prospect("a"), a_prospect("b", done=60.0))
        assert young > 2 * converged

    def test_a_short_job_comes_before_a_long_one(self) -> None:
        short, long = index_of(a_prospect("a", total=50.0), a_prospect("b", total=300.0))
        assert short > long

    def test_quality_favours_the_young_and_ends_those_that_end(self) -> None:
        jobs = a_prospect("young"), a_prospect("ending", done=80.0)
        ratios = {}
        for favour in FAVOURS:
            young, ending = index_of(*jobs, weights=favour)
            ratios[favour] = young / ending
        assert ratios["quality"] > ratios["balanced"] > ratios["ends"]

    def test_a_job_whose_losses_have_dropped_may_drop_again(self) -> None:
        smooth, dropped = index_of(*[a_prospect("a", done=60.0)] * 2, dropped=[False, True])
        assert dropped > smooth

    def test_the_weight_of_a_job_counts_in_proportion(self) -> None:
        plain, heavy = a_prospect("a"), a_prospect("b")
        heavy.job = replace(heavy.job, objectives=Objectives(weight=3.0))
        one, other = index_of(plain, heavy)
        assert other == pytest.approx(3 * one)

    def test_without_a_plan_the_next_piece_is_worth_less_the_longer_the_job_has_run(self) -> None:
        found = []
        for done in (5.0, 5000.0):
            each = Prospect(a_job("job"), done, CurveFit(0, 4 * done, 0, curves.FLAT), 1.0, planned=False)
            look_ahead([each], priors({}, 5.0), BALANCED)
            found.append(each)
        assert found[0].index > 10 * found[1].index > 0
        assert all(each.done < each.total < math.inf for each in found)

    def test_jobs_that_have_ended_say_how_long_one_without_a_plan_will_take(self) -> None:
        totals = []
        for ended in ((), (100.0,) * 3, (10_000.0,) * 3):
            each = Prospect(a_job("job"), 20.0, CurveFit(0, 80.0, 0, curves.FLAT), 1.0, planned=False)
            look_ahead([each], priors({"other": of_works(*ended)}, 5.0), BALANCED)
            totals.append(each.total)
        assert totals[1] < totals[0] < totals[2]

    def test_a_class_is_trusted_as_far_as_its_jobs_are_alike(self) -> None:
        spans = {}
        records = {"alike": of_works(100.0, 110.0, 121.0), "unlike": of_works(20.0, 110.0, 600.0)}
        for name in ("alike", "unlike", "other"):
            each = unplanned(5.0, name)
            look_ahead([each], priors(records, 5.0), BALANCED)
            assert each.low < each.total < each.high
            spans[name] = each.high / each.low
        assert spans["alike"] < 0.6 * spans["unlike"]
        assert spans["unlike"] < 0.8 * spans["other"]

    def test_more_is_left_however_far_a_job_has_come(self) -> None:
        low = []
        for done in (20.0, 90.0, 400.0):
            each = unplanned(done, "known")
            look_ahead([each], priors({"known": of_works(100.0, 110.0, 121.0)}, 5.0), BALANCED)
            low.append(each.low)
        assert low[0] < 100.0
        assert 90.0 < low[1] < low[2]
        assert low[2] > 400.0

    @pytest.mark.parametrize("done", [1e-3, 5.0, 1e6])
    @pytest.mark.parametrize("best", [0, 44])
    def test_a_curve_that_contradicts_its_class_leaves_a_posterior(self, done: float, best: int) -> None:
        scores = np.full(curves.RATES, -1e6, "<f4")
        scores[best] = 0.0
        each = unplanned(done, "known")
        each.fit = CurveFit(20, 4 * done, 0, scores.tobytes())
        look_ahead([each], priors({"known": of_works(*[100.0] * 4)}, 5.0), BALANCED)
        assert done < each.low <= each.total <= each.high < math.inf
        assert 0 < each.index < math.inf
        assert 0 < each.rate < math.inf


def unplanned(done: float, workload_class: str) -> Prospect:
    job = replace(a_job("job"), workload_class=workload_class)
    return Prospect(job, done, CurveFit(0, 4 * done, 0, curves.FLAT), 1.0, planned=False)


def of_works(*works: float) -> tuple[ClassFigures, ...]:
    return tuple(ClassFigures(f"ended-{n}", 1.0, work=work, kappa=10.0) for n, work in enumerate(works))


class TestErrors:
    @pytest.mark.parametrize(("lateness", "ratio"), [(1.0, 0.25), (1.05, 0.25), (1.1, 0.5), (2.0, 0.9)])
    def test_the_later_jobs_have_ended_the_more_service_is_guaranteed(self, lateness: float, ratio: float) -> None:
        ended = tuple(ClassFigures(uid, 1.0, work=100.0, fair_service=100.0 * lateness) for uid in "abc")
        assert least_service_ratio(MemoryState(classes={"vae": ended})) == pytest.approx(ratio)

    def test_half_of_the_service_is_guaranteed_before_any_job_has_ended(self) -> None:
        assert least_service_ratio(MemoryState()) == pytest.approx(0.5)


def ordered(jobs: Sequence[Prospect], due: Mapping[str, float], capacity: float = 1.0) -> list[str]:
    return list(order(jobs, due, {each.job.uid: 1.0 for each in jobs}, capacity, 10.0).uids)


class TestOrder:
    def test_the_index_decides_while_all_are_ahead_of_their_ends(self) -> None:
        jobs = [a_prospect("soon", total=80.0, index=1.0), a_prospect("late", total=100.0, index=2.0)]
        assert ordered(jobs, {"soon": 100.0, "late": 300.0}) == ["late", "soon"]

    def test_a_job_that_would_end_late_goes_before_all_that_are_due_later(self) -> None:
        jobs = [a_prospect("soon", total=95.0, index=1.0), a_prospect("late", total=100.0, index=2.0)]
        assert ordered(jobs, {"soon": 100.0, "late": 300.0}) == ["soon", "late"]

    def test_all_due_before_count_for_the_slack_of_one(self) -> None:
        jobs = [
            a_prospect("a", total=60.0, index=1.0),
            a_prospect("b", total=60.0, index=2.0),
            a_prospect("c", total=60.0, index=3.0),
        ]
        due = {"a": 100.0, "b": 125.0, "c": 900.0}
        assert ordered(jobs, due) == ["b", "a", "c"]
        assert ordered(jobs, {**due, "b": 140.0}) == ["c", "b", "a"]

    def test_a_job_of_one_core_that_is_longer_than_all_together_goes_first(self) -> None:
        jobs = [a_prospect("long", total=300.0, index=0.1), a_prospect("short", total=30.0, index=5.0)]
        due = {"long": 900.0, "short": 900.0}
        assert ordered(jobs, due, capacity=4.0)[0] == "long"
        assert ordered(jobs, due, capacity=1.0)[0] == "short"

    def test_a_job_ends_after_those_before_it_and_no_surer_than_they(self) -> None:
        first, second = a_prospect("first", total=60.0), a_prospect("second", total=100.0)
        first.low, first.high, second.low, second.high = 50.0, 72.0, 80.0, 120.0
        jobs, cores = {"first": first, "second": second}, {"first": 1.0, "second": 1.0}
        found = expected_ends(["first", "second"], jobs, cores, 1.0, 1000.0)
        assert found["first"] == Ends(1060.0, 1050.0, 1072.0)
        assert found["second"] == Ends(1160.0, 1137.6, 1183.3)
        alone = expected_ends(["first"], jobs, {"first": 0.5}, 4.0, 0.0)
        assert alone["first"] == Ends(120.0, 100.0, 144.0)

    @examples(60)
    @given(
        cores=st.lists(st.floats(0.05, 4.0), min_size=1, max_size=12),
        capacity=st.floats(0.5, 16.0),
        floor=st.floats(0.0, 1.0),
    )
    def test_cpu_is_never_more_than_the_node_and_none_is_wasted(
        self, cores: list[float], capacity: float, floor: float
    ) -> None:
        usable = {f"job-{n}": each for n, each in enumerate(cores)}
        given_cores = handed_down(list(usable), dict.fromkeys(usable, floor), usable, capacity)
        assert math.fsum(given_cores.values()) == pytest.approx(min(capacity, math.fsum(cores)))
        assert all(0 <= given_cores[uid] <= usable[uid] + 1e-9 for uid in usable)


class TestPlacement:
    def test_milestones_are_joined_so_that_value_per_work_falls(self) -> None:
        blocks = milestones([20.0, 40.0, 41.0], BALANCED, 1.0)
        ratios = [value / work for value, work in blocks]
        assert ratios == sorted(ratios, reverse=True)
        assert math.fsum(value for value, _ in blocks) == pytest.approx(1.05)
        assert math.fsum(work for _, work in blocks) == pytest.approx(41.0)

    def test_what_is_reached_is_worth_nothing(self) -> None:
        assert milestones([0.0, 0.0, 10.0], BALANCED, 1.0) == [(0.30, 10.0)]

    def test_the_cost_is_that_of_putting_the_blocks_in_order(self) -> None:
        node = Load(a_node("n", 1.0))
        node.add(1.0, [(1.0, 10.0), (0.1, 50.0)])
        # In order: 1.0 after 10, then the new 0.5 after 30, then 0.1 after 80 instead of 60.
        assert node.rise(1.0, ((0.5, 20.0),)) == pytest.approx(0.5 * 30 + 0.1 * 20)

    def test_a_node_with_free_cores_delays_no_other_job(self) -> None:
        node = Load(a_node("n", 4.0))
        node.add(1.0, [(1.0, 10.0)])
        assert node.rise(1.0, ((0.5, 20.0),)) == pytest.approx(0.5 * 20)


class TestBesideOtherPods:
    """Of the 16 cores of `taken`, other pods leave 0.2 or 12; three jobs share the four cores of `free`."""

    def decided(self, left: float, *, waiting: bool) -> list[tuple[str, str]]:
        jobs = [
            replace(
                a_job(f"job-{n}", node="free", at=START + 100, cpu_seconds=20.0),
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
    def test_jobs_end_sooner_on_average_and_none_much_later_than_under_fair_sharing(self) -> None:
        ours, fair = ends(an_outcome(mixed())), ends(an_outcome(mixed(), policy="fair"))
        assert np.mean(list(ours.values())) < 0.85 * np.mean(list(fair.values()))
        assert max(ours[name] / fair[name] for name in fair) < 1.08

    def test_without_a_plan_too(self) -> None:
        jobs = mixed(steps_planned=None)
        ours, fair = ends(an_outcome(jobs)), ends(an_outcome(jobs, policy="fair"))
        assert np.mean(list(ours.values())) < np.mean(list(fair.values()))

    def test_a_deadline_is_met_that_fair_sharing_misses(self) -> None:
        jobs = mixed()
        jobs[1] = replace(jobs[1], deadline_seconds=jobs[1].arrive_seconds + 400.0)
        late = {job.name: job for job in an_outcome(jobs, policy="fair").jobs}["job-1"]
        ours = {job.name: job for job in an_outcome(jobs).jobs}["job-1"]
        assert (late.jct_seconds or 0.0) > 400.0 > (ours.jct_seconds or math.inf)

    def test_a_node_that_idles_takes_a_job_from_a_crowded_one(self) -> None:
        jobs = [a_sim_job(f"job-{n}", 400.0, curve=Exponential(8.0), steps_planned=4000) for n in range(4)]
        jobs += [a_sim_job(f"short-{n}", 20.0, curve=Exponential(8.0), steps_planned=200) for n in range(2)]
        nodes = [a_sim_node("n1"), a_sim_node("n2")]
        moved = an_outcome(jobs, nodes)
        both = {stay.node for job in moved.jobs for stay in job.stays}
        assert both == {"n1", "n2"}

    def test_every_job_has_a_reason_of_one_sentence(self) -> None:
        for report in passes(mixed()):
            assert report.decisions is not None
            for reason in report.decisions.reasons.values():
                assert ". " not in reason
                assert "\n" not in reason

    def test_the_first_one_says_in_seconds_when_it_is_good_and_the_others_what_work_that_takes(self) -> None:
        reasons = [
            reason for report in passes(mixed()) if report.decisions for reason in report.decisions.reasons.values()
            if "no plan" not in reason and "next evaluation" not in reason  # timed by now, and decided in this pass
        ]  # fmt: skip
        first = [reason for reason in reasons if reason.startswith("first: ")]
        waits = [reason for reason in reasons if reason.startswith("waits: ")]
        assert first
        assert waits
        assert all(re.search(r" is -?\d+ (s|min) away", reason) for reason in first)
        assert all(re.search(r" is [\d.e+-]+ core-s away", reason) for reason in waits)

    def test_goes_on_after_a_restart_as_if_nothing_had_happened(self) -> None:
        assert decided(mixed(), restart=False) == decided(mixed(), restart=True)

    def test_memory_of_a_job_stays_far_below_what_a_jobgrowth_holds(self) -> None:
        last = passes(mixed())[-40]
        assert last.decisions is not None
        sizes = [len(MEMORY_JSON.encode(each)) for each in last.decisions.memory.jobs.values()]
        assert sizes
        assert max(sizes) < 8_000


class Restarting(DictionaryMemory):
    """A memory that goes through JSON between two passes, as through a JobGrowth."""

    def load(self) -> MemoryState:
        return msgspec.json.decode(MEMORY_JSON.encode(super().load()), type=MemoryState)


def passes(jobs: Sequence[SimJob], *, restart: bool = False) -> list[PassReport]:
    """All passes of a run; with `restart` the memory is stored and read between them, and the policy is another one."""
    instance: Instance = an_instance(jobs, [a_sim_node()], physics=Physics(contention_ratio=0.01))
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
    return reports


def decided(jobs: Sequence[SimJob], *, restart: bool) -> list[tuple[float, Mapping[str, str]]]:
    return [
        (report.taken_at_seconds, dict(report.decisions.reasons))
        for report in passes(jobs, restart=restart)
        if report.decisions is not None
    ]


class TestSqueezes:
    @pytest.mark.parametrize(
        ("cooldown", "ratio", "squeeze"), [(120.0, 2.0, 0.25), (60.0, 2.0, 0.125), (0.0, 100.0, 1e-6)]
    )
    def test_are_no_deeper_than_two_intervals_take_back(self, cooldown: float, ratio: float, squeeze: float) -> None:
        behaviour = Behaviour(cooldown_seconds=cooldown, max_step_ratio=ratio)
        assert setting_of(behaviour, 60.0, "requests").squeeze_ratio == pytest.approx(squeeze)
