"""Trials of a study under `marginal`: who comes first, what is exchanged, what is said, and that no neighbour pays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from msgspec import structs
from support.instances import AT_ONCE, Exponential, a_policy_run, a_sim_job, a_sim_node, an_instance
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.model import Decisions, Job, JobMemory, Levels, MemoryState, Objectives, Points
from slopewise.policies import Setting, marginal
from slopewise.policies.marginal.forecast import Forecast
from slopewise.policies.marginal.studies import Studies, exchanged, normal_beyond
from slopewise.simulator.engine import run
from slopewise.simulator.world.model import RunOutcome, SimJob


def a_trial(uid: str, *, study: str = "s", favours_best: bool = False, **more: Any) -> Job:
    asked = Objectives(study=study, favours_best=favours_best)
    return a_job(uid, at=START, cpu_seconds=50.0, **more).altered(objectives=asked)


def curve_of(*levels: float, every: float = 10.0) -> JobMemory:
    """A job that has reported these losses, each after so many steps."""
    pairs = np.array([(every * place, level) for place, level in enumerate(levels)], np.float32)
    return JobMemory(points=Points("steps", "loss", pairs.tobytes(), work=float(pairs[-1, 0])))


def claims(jobs: Sequence[Job], *, done: Mapping[str, float] | None = None) -> dict[str, Forecast]:
    """Of 100 core-seconds each; 50 are done where nothing else is said. The first has the largest index."""
    return {
        job.uid: Forecast(job, (done or {}).get(job.uid, 50.0), True, 100.0, 100.0, index=1.0 / (1 + place))
        for place, job in enumerate(jobs)
    }


def studies_of(
    jobs: Sequence[Job], best_losses: Mapping[str, float], *, best: bool = True, done: Mapping[str, float] | None = None
) -> Studies:
    memory = MemoryState({uid: known().altered(points=curve_of(0.8, loss).points) for uid, loss in best_losses.items()})
    found = claims(jobs, done=done)
    due = {job.uid: 100.0 * (1 + place) for place, job in enumerate(jobs)}
    nodes = [a_node(name, 4.0) for name in sorted({job.node for job in jobs})]
    return exchanged(a_snapshot(jobs, nodes, at=START), memory, found, due, best=best)


def in_order(studies: Studies) -> list[str]:
    return sorted(studies.found, key=lambda uid: -studies.found[uid].index)


class TestOrder:
    def test_the_lowest_loss_comes_first_with_the_largest_index_and_the_indices_stay_the_same(self) -> None:
        studies = studies_of([a_trial("a"), a_trial("b"), a_trial("c")], {"a": 0.7, "b": 0.5, "c": 0.6})
        assert in_order(studies) == ["b", "c", "a"]
        indices = sorted(each.index for each in studies.found.values())
        assert indices == pytest.approx([1 / 3, 1 / 2, 1.0], rel=1e-6)

    def test_of_trials_as_likely_to_be_best_the_cheaper_one_comes_first(self) -> None:
        """b is a little ahead, but a costs a fifth of its work; c costs as little as a, and has nearly no chance."""
        jobs = [a_trial(uid) for uid in ("c", "b", "a")]
        memory = {"a": 0.51, "b": 0.5, "c": 0.79}
        found = {
            uid: structs.replace(each, total=total, done=total / 2)
            for (uid, each), total in zip(claims(jobs).items(), (20.0, 100.0, 20.0), strict=True)
        }
        curves = {uid: known().altered(points=curve_of(0.8, loss).points) for uid, loss in memory.items()}
        studies = exchanged(
            a_snapshot(jobs, at=START), MemoryState(curves), found, dict.fromkeys(memory, 100.0), best=True
        )
        assert in_order(studies) == ["a", "b", "c"]
        assert studies.trials["b"].best

    def test_one_that_has_hardly_begun_has_its_turn(self) -> None:
        studies = studies_of([a_trial("a"), a_trial("b")], {"a": 0.2, "b": 0.9}, done={"b": 1.0})
        assert in_order(studies) == ["b", "a"]
        assert studies.trials["b"].why(at_floor=False) == "has hardly begun, so it may be best"

    def test_losses_are_compared_after_the_same_steps(self) -> None:
        """A young trial that falls faster comes before an old one whose loss is lower, and a flat one after both."""
        curves = {
            "old": curve_of(1.0, 0.9, 0.8, 0.7, 0.6), "young": curve_of(1.0, 0.7), "flat": curve_of(1.0, 1.0, 1.0),
        }  # fmt: skip
        jobs = [a_trial(uid) for uid in ("flat", "old", "young")]
        due = dict.fromkeys(curves, 100.0)
        studies = exchanged(a_snapshot(jobs, at=START), MemoryState(curves), claims(jobs), due, best=True)
        assert in_order(studies) == ["young", "old", "flat"]
        assert studies.trials["young"].best
        chances = [studies.trials[uid].chance for uid in ("young", "old", "flat")]
        assert chances == sorted(chances, reverse=True)
        assert math.fsum(chances) == pytest.approx(1.0)

    def test_where_larger_is_better_the_largest_comes_first(self) -> None:
        rising = [a_trial(uid, objective="max") for uid in ("a", "b")]
        assert in_order(studies_of(rising, {"a": 0.3, "b": 0.9})) == ["b", "a"]

    def test_equal_losses_keep_an_order_by_what_is_done(self) -> None:
        studies = studies_of([a_trial("a"), a_trial("b")], {"a": 0.5, "b": 0.5}, done={"a": 30.0, "b": 60.0})
        assert in_order(studies) == ["b", "a"]

    def test_trials_each_of_which_is_behind_another_one_keep_an_order_and_chances(self) -> None:
        """b is behind a after 20 steps, c behind b after 40, a behind c after 20; and no curve may fall any more."""
        curves = {
            "a": curve_of(1.0, 0.5, 0.5), "b": curve_of(1.0, 0.6, 0.6, 0.1, 0.1), "c": curve_of(1.0, *(0.4,) * 5),
        }  # fmt: skip
        jobs = [a_trial(uid) for uid in curves]
        found = {uid: structs.replace(each, kappa=50.0) for uid, each in claims(jobs).items()}
        due = dict.fromkeys(curves, 100.0)
        studies = exchanged(a_snapshot(jobs, at=START), MemoryState(curves), found, due, best=True)
        assert math.fsum(each.chance for each in studies.trials.values()) == pytest.approx(1.0)
        assert studies.trials[in_order(studies)[0]].best

    @pytest.mark.parametrize("silent", ["b", "ab"])
    def test_where_larger_is_better_a_trial_without_an_evaluation_now_keeps_its_place(self, silent: str) -> None:
        jobs = [a_trial(uid, objective="max") for uid in ("a", "b")]
        jobs = [job.altered(evaluation=None) if job.uid in silent else job for job in jobs]
        memory = {
            uid: curve_of(0.1, best).altered(levels=Levels(first=0.1, best=best))
            for uid, best in (("a", 0.3), ("b", 0.9))
        }
        due = dict.fromkeys(memory, 100.0)
        studies = exchanged(a_snapshot(jobs, at=START), MemoryState(memory), claims(jobs), due, best=True)
        assert in_order(studies) == ["b", "a"]

    def test_ranks_of_one_training_are_one_trial_and_go_together(self) -> None:
        """Of one workload those with one evaluation are ranks; indices of a sweep have evaluations of their own."""
        jobs = [a_trial("a:0"), a_trial("w:0", level=0.6), a_trial("w:1", level=0.6)]
        losses = {"a:0": 0.7, "w:0": 0.5, "w:1": 0.5}
        studies = studies_of(jobs, losses)
        assert in_order(studies) == ["w:0", "w:1", "a:0"]
        assert studies.trials["w:0"] == studies.trials["w:1"]
        assert studies.trials["w:0"].chance + studies.trials["a:0"].chance == pytest.approx(1.0)
        of_sweep = studies_of([*jobs[:2], a_trial("w:1", level=0.5)], losses).trials.values()
        assert math.fsum(each.chance for each in of_sweep) == pytest.approx(1.0)

    def test_studies_of_two_namespaces_are_two(self) -> None:
        jobs = [a_trial("a"), a_trial("b").altered(namespace="other")]
        studies = studies_of(jobs, {"a": 0.9, "b": 0.1})
        assert (in_order(studies), dict(studies.trials)) == (["a", "b"], {})


class TestWhoseBestIsFavoured:
    def test_none_by_default(self) -> None:
        studies = studies_of([a_trial("a"), a_trial("b")], {"a": 0.7, "b": 0.5}, best=False)
        assert (in_order(studies), dict(studies.trials)) == (["a", "b"], {})

    def test_a_study_of_which_one_trial_says_so_and_no_other(self) -> None:
        jobs = [
            a_trial("a", favours_best=True), a_trial("b"), a_trial("c", study="other"), a_trial("d", study="other"),
        ]  # fmt: skip
        studies = studies_of(jobs, {"a": 0.7, "b": 0.5, "c": 0.7, "d": 0.5}, best=False)
        assert in_order(studies) == ["b", "a", "c", "d"]

    def test_losses_that_cannot_be_compared_are_shared_fairly_with_the_reason(self) -> None:
        jobs = [a_trial("a"), a_trial("b", series="accuracy", objective="max")]
        studies = studies_of(jobs, {"a": 0.7, "b": 0.5})
        assert in_order(studies) == ["a", "b"]
        assert studies.shared["a"] == (
            "its study is shared fairly, because b reports accuracy (max), and a training_loss{stage=\"eval\"} (min)"
        )  # fmt: skip


class TestDue:
    def test_the_next_to_end_is_due_when_under_fair_sharing_the_next_would_have_ended(self) -> None:
        jobs = [a_trial("a"), a_trial("b"), a_job("neighbour", at=START)]
        studies = studies_of(jobs, {"a": 0.7, "b": 0.5}, done={"a": 20.0, "b": 90.0})
        assert studies.due == {"b": 100.0, "a": 200.0, "neighbour": 300.0}

    def test_a_study_that_has_its_node_for_itself_is_due_as_a_whole(self) -> None:
        assert studies_of([a_trial("a"), a_trial("b")], {"a": 0.7, "b": 0.5}).due == {"a": 200.0, "b": 200.0}

    def test_trials_of_two_nodes_exchange_nothing(self) -> None:
        jobs = [a_trial("a"), a_trial("b").altered(node="n2")]
        studies = studies_of(jobs, {"a": 0.7, "b": 0.5})
        assert studies.due == {"a": 100.0, "b": 200.0}
        assert studies.found["a"].index == 1.0
        assert studies.trials["b"].best


class TestReasons:
    def test_chances_are_those_of_the_worked_example(self) -> None:
        beyond = [normal_beyond(each) for each in (0.0, 1.0, 2.0)]
        assert [round(100 * each / math.fsum(beyond)) for each in beyond] == [73, 23, 3]

    def test_of_a_node_each_trial_has_its_sentence(self) -> None:
        plans = {"a": 1000.0, "b": 1000.0, "c": 2000.0}
        jobs = [a_trial(uid).altered(steps_total=500.0, steps_planned=plan) for uid, plan in plans.items()]
        memory = {
            "a": flat(0.69).altered(levels=Levels(first=0.70, best=0.69)),
            "b": flat(0.5).altered(levels=Levels(first=0.70, best=0.50)),
            "c": flat(0.52).altered(levels=Levels(first=0.70, best=0.52)),
        }
        decided = decisions(jobs, memory)
        assert decided.reasons["b"].startswith("first: best so far, weight")
        assert decided.reasons["a"].startswith("waits: floor: ")
        assert "less than 0.1 % to be best, flat for 490 steps, weight" in decided.reasons["a"]
        assert "% to be best" in decided.reasons["c"]
        chances = [each.decided.chance or 0.0 for each in decided.memory.jobs.values()]
        assert math.fsum(chances) == pytest.approx(1.0)
        assert max(chances) == decided.memory.jobs["b"].decided.chance
        fair = decisions(jobs, memory, studies="Fair").memory.jobs
        for uid, each in decided.memory.jobs.items():
            assert each.decided.ends is not None
            assert (its_own := fair[uid].decided.ends) is not None
            assert each.decided.ends.fair_seconds == its_own.fair_seconds, "what was saved is measured by it"
        cores = {uid: each.decided.wanted_cores or 0.0 for uid, each in decided.memory.jobs.items()}
        assert cores["b"] > 10 * cores["a"] > 0


def flat(level: float) -> JobMemory:
    """500 of its steps, of 0.1 core-seconds each; the loss fell within the first 20."""
    steps = np.linspace(10.0, 500.0, 50)
    pairs = np.stack([steps, np.where(steps < 20, 0.7, level)], axis=1).astype(np.float32)
    points = Points(
        "steps", "loss", pairs.tobytes(), work=500.0, cpu_seconds=50.0, steps_first=0.0, steps=500.0,
        steps_cpu_seconds=50.0,
    )  # fmt: skip
    return JobMemory(points=points)


def decisions(
    jobs: Sequence[Job], memory: Mapping[str, JobMemory], studies: Literal["Fair", "Best"] = "Best"
) -> Decisions:
    policy = marginal.Policy(marginal.Parameters(), Setting(20.0, "requests", studies=studies))
    return policy.decide(a_snapshot(jobs, [a_node("n1", 2.0)], at=START), MemoryState(dict(memory)))


@dataclass(frozen=True)
class Late:
    """Flat until a part of its work, and then far below all others."""

    at_ratio: float

    def at(self, done_ratio: float) -> float:
        return 1.0 if done_ratio < self.at_ratio else 0.01

    def reached(self, improvement_ratio: float) -> float | None:
        return self.at_ratio if improvement_ratio > 0 else 0.0


@dataclass(frozen=True)
class To:
    """Falls evenly to its final loss within a tenth of its work."""

    final: float

    def at(self, done_ratio: float) -> float:
        return 1.0 - (1.0 - self.final) * min(1.0, 10 * done_ratio)

    def reached(self, improvement_ratio: float) -> float | None:
        return 0.1 * improvement_ratio / (1.0 - self.final) if improvement_ratio <= 1.0 - self.final else None


def trials(finals: Sequence[float], work: float = 300.0) -> list[SimJob]:
    return [
        a_sim_job(f"t{place}", work, curve=To(final), study="s", steps_planned=300, parallelism_cores=2.0)
        for place, final in enumerate(finals)
    ]


def an_outcome(jobs: Sequence[SimJob], policy: str, studies: Literal["Fair", "Best"] = "Best") -> RunOutcome:
    chosen = replace(a_policy_run(policy, behaviour=AT_ONCE), studies=studies if policy == "marginal" else "Fair")
    return run(an_instance(jobs, [a_sim_node(cpu=2.0)]), chosen)


def ends(outcome: RunOutcome) -> dict[str, float]:
    return {job.name: job.finished_seconds or math.inf for job in outcome.jobs}


class TestSimulated:
    def test_the_best_trial_ends_first_and_all_as_soon_as_under_fair_sharing(self) -> None:
        study = trials([0.8, 0.6, 0.2, 0.7])
        ours, fair = ends(an_outcome(study, "marginal")), ends(an_outcome(study, "fair"))
        assert ours["t2"] == min(ours.values())
        assert ours["t2"] < 0.5 * fair["t2"]
        assert max(ours.values()) <= 1.01 * max(fair.values())

    @pytest.mark.parametrize("neighbours", [1, 3])
    def test_no_neighbour_ends_later_than_under_fair_sharing_and_neither_does_the_study(self, neighbours: int) -> None:
        others = [
            a_sim_job(f"n{place}", work, curve=Exponential(), steps_planned=int(work), parallelism_cores=2.0)
            for place, work in enumerate((80.0, 250.0, 400.0)[:neighbours])
        ]
        jobs = [*trials([0.8, 0.6, 0.2, 0.7]), *others]
        ours, fair = ends(an_outcome(jobs, "marginal")), ends(an_outcome(jobs, "fair"))
        for other in others:
            assert ours[other.name] <= 1.02 * fair[other.name]
        of_study = [f"t{place}" for place in range(4)]
        assert max(ours[name] for name in of_study) <= 1.03 * max(fair[name] for name in of_study)
        unfavoured = ends(an_outcome(jobs, "marginal", "Fair"))
        assert ours["t2"] < 0.9 * unfavoured["t2"]

    def test_a_late_bloomer_stays_alive_and_is_first_once_its_loss_falls(self) -> None:
        bloomer = a_sim_job("late", 300.0, curve=Late(0.17), study="s", steps_planned=300, parallelism_cores=2.0)
        ours = ends(an_outcome([*trials([0.5, 0.6, 0.7]), bloomer], "marginal"))
        assert ours["t0"] < ours["late"] < min(ours["t1"], ours["t2"])
