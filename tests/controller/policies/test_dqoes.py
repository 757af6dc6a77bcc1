"""DQoES-style: the published vectors, the choice when CPU is scarce, and limits that settle where the objective is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs
from support.worlds import START, a_job, a_node, a_snapshot, classes, limits

from slopewise.allocation import capacity_cores
from slopewise.estimators.pace import KEPT
from slopewise.model import (
    Answering,
    CpuAllocation,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    NodeMemory,
    Objectives,
    Pace,
    PolicyMemory,
    Responses,
    Timing,
)
from slopewise.policies import Setting
from slopewise.policies.dqoes import Parameters, Policy
from slopewise.policies.shared.shares import had_cores, speed

ITVAL = 20.0
ASKED = 10.0


def served(uid: str, *, asked: float | None = ASKED, weight: float = 1.0, useful: float | None = None) -> Job:
    job = a_job(uid, level=None, useful_cores=useful)
    return job.altered(objectives=Objectives(qoe_seconds=asked, weight=weight), responses=Responses(0, 0.0))


def took(seconds: float, cores: float | None, wanted: float | None = None, **more: object) -> JobMemory:
    return JobMemory(paces=(Pace(START - 1, seconds, cores),)).with_decided(wanted_cores=wanted, **more)


def that_wants(cores: float, **more: object) -> JobMemory:
    """Timed at half of what it wants, where it takes twice as long as asked."""
    return took(2 * ASKED, cores / 2, **more)  # type: ignore[arg-type]


def decide(jobs: list[Job], known: Mapping[str, JobMemory], cores: float = 1.0, **parameters: Any) -> Decisions:
    policy = Policy(Parameters(**parameters), Setting(ITVAL, "limits"))
    return policy.decide(a_snapshot(jobs, [a_node(cpu_cores=cores)]), MemoryState(known))


class TestClasses:
    def test_a_job_that_is_not_timed_and_one_without_objective_are_reported_as_such(self) -> None:
        decisions = decide([served("new"), served("none", asked=None)], {"new": JobMemory(), "none": JobMemory()})
        assert classes(decisions) == {"new": "unknown", "none": "no objective"}
        assert "not timed yet" in decisions.reasons["new"]
        assert "shares evenly what the others leave" in decisions.reasons["none"]

    def test_a_server_that_hangs_is_named_and_has_an_even_share(self) -> None:
        """Beside one that needs 0.4 of the core, which it has."""
        hangs = served("hangs").altered(responses=Responses(0, 0.0, in_flight=12))
        silent = JobMemory(timing=Timing(answering=Answering(0.0, START - 75)), decided=PolicyMemory(wanted_cores=0.1))
        decisions = decide([hangs, served("works")], {"hangs": silent, "works": that_wants(0.4)})
        assert decisions.reasons["hangs"].startswith(
            "unknown: 10 s asked, no responses for 75 s, requests that wait: 12"
        )
        assert limits(decisions) == pytest.approx({"hangs": 0.5, "works": 0.5})

    @pytest.mark.parametrize("variant", ["direct", "step"])
    @pytest.mark.parametrize(
        ("known", "message"),
        [
            (
                took(10, 0.5).altered(timing=Timing(answering=Answering(0.4))),
                "S: 10 s of 10 s asked, 40% of responses fail",
            ),
            (took(10, 0.5).altered(timing=Timing(answering=Answering(0.0))), "S: 10 s of 10 s asked"),
            (
                JobMemory(timing=Timing(answering=Answering(1.0, START - 60))),
                "unknown: 10 s asked, no responses for 60 s, all responses fail",
            ),
        ],
    )
    def test_a_server_that_errs_is_named(self, variant: str, known: JobMemory, message: str) -> None:
        reason = decide([served("errs")], {"errs": known}, variant=variant).reasons["errs"]
        assert reason.startswith(message)
        assert ("fail" in reason) == ("fail" in message)

    def test_a_server_that_is_offered_too_much_is_out_of_reach_and_the_others_are_kept(self) -> None:
        """Its responses take longer with every interval, at all the CPU that it had."""
        growing = tuple(Pace(START - 20 * (4 - n), 15.0 * 2**n, 0.5) for n in range(4))
        jobs = [served("overloaded", useful=1.0), served("kept"), served("training", asked=None)]
        known = {"overloaded": JobMemory(paces=growing), "kept": that_wants(0.5), "training": JobMemory()}
        decisions = decide(jobs, known)
        assert classes(decisions)["overloaded"] == "unsatisfiable"
        assert "needs" in decisions.reasons["overloaded"]
        given = limits(decisions)
        assert given["kept"] >= 0.47
        assert given["training"] >= 0.05 / 3
        assert sum(given.values()) <= 1 + 1e-9


class TestRequestsThatComeAnyway:
    """Two a second of 0.1 CPU-seconds each: 0.2 cores, for 80 % of the time with 0.25."""

    def test_a_loose_objective_never_leaves_less_cpu_than_they_take(self) -> None:
        limit = 0.5
        paces: tuple[Pace, ...] = ()
        for _ in range(3 * KEPT):
            paces = (*paces, Pace(START - 1, 0.1 / limit, limit, busy_ratio=0.2 / limit))[-KEPT:]
            known = JobMemory(decided=PolicyMemory(wanted_cores=limit), paces=paces)
            decisions = decide([served("loose"), served("rest", asked=None)], {"loose": known, "rest": JobMemory()})
            limit = limits(decisions)["loose"]
            assert limit >= 0.25 - 1e-9
        assert limit == pytest.approx(0.25)


class TestDirect:
    def test_a_job_that_took_20_s_of_10_at_0_2_cores_wants_0_4(self) -> None:
        other = served("other", asked=None)
        decisions = decide([served("job"), other], {"job": took(20, 0.2), "other": JobMemory()})
        assert limits(decisions) == {"job": pytest.approx(0.4), "other": pytest.approx(0.6)}
        assert classes(decisions)["job"] == "B"

    def test_of_four_that_want_more_than_there_is_the_three_smallest_are_satisfied(self) -> None:
        wants = {"a": 0.2, "b": 0.3, "c": 0.4, "d": 0.5}
        decisions = decide([served(uid) for uid in wants], {uid: that_wants(cores) for uid, cores in wants.items()})
        assert limits(decisions) == pytest.approx({"a": 0.2, "b": 0.3, "c": 0.4, "d": 0.1})
        assert classes(decisions)["d"] == "unsatisfiable"
        assert "d needs 0.467 cores" in decisions.reasons["d"]

    @pytest.mark.parametrize(("available", "satisfied"), [(None, {"a", "b", "c"}), (0.6, {"a", "b"}), (-1.0, set())])
    def test_no_more_is_promised_than_other_pods_leave(self, available: float | None, satisfied: set[str]) -> None:
        wants = {"a": 0.2, "b": 0.3, "c": 0.4}
        node = a_node(cpu_cores=1.0, available_cores=available)
        policy = Policy(Parameters(), Setting(ITVAL, "limits"))
        snapshot = a_snapshot([served(uid) for uid in wants], [node])
        memory = MemoryState({uid: that_wants(cores) for uid, cores in wants.items()})
        decisions = policy.decide(snapshot, memory)
        assert {uid for uid, listed in classes(decisions).items() if listed != "unsatisfiable"} == satisfied
        assert sum(limits(decisions).values()) <= capacity_cores(node) * (1 + 1e-9)

    def test_the_tolerance_satisfies_one_more_than_the_objectives_themselves(self) -> None:
        """0.5 and 0.53 are more than a core; within 7 % of the objective, 0.467 and 0.495 are not."""
        known = {"a": that_wants(0.5), "b": that_wants(0.53)}
        decisions = decide([served("a"), served("b")], known)
        assert classes(decisions) == {"a": "B", "b": "B"}
        assert sum(limits(decisions).values()) == pytest.approx(1.0)
        assert limits(decisions)["a"] > 0.467
        assert limits(decisions)["b"] > 0.495
        strict = decide([served("a"), served("b")], known, margin_ratio=0.1)
        assert classes(strict)["b"] == "unsatisfiable"

    def test_slack_goes_to_all_in_proportion_up_to_what_they_can_use(self) -> None:
        known = {"a": that_wants(0.2), "b": that_wants(0.4)}
        jobs = [served("a"), served("b")]
        assert limits(decide(jobs, known, cores=1.2)) == pytest.approx({"a": 0.4, "b": 0.8})
        narrow = [served("a", useful=0.3), served("b")]
        assert limits(decide(narrow, known, cores=1.2)) == pytest.approx({"a": 0.3, "b": 0.9})

    def test_when_cpu_is_scarce_they_still_have_the_floor(self) -> None:
        known = {"a": that_wants(0.97), "x": JobMemory()}
        got = limits(decide([served("a"), served("x", asked=None)], known))
        assert got == pytest.approx({"a": 0.97, "x": 0.03})
        assert limits(decide([served("a"), served("x", asked=None)], {**known, "a": that_wants(1.02)}))["x"] == 0.025

    def test_weight_decides_who_is_satisfied(self) -> None:
        known = {"a": that_wants(0.5), "b": that_wants(0.7)}
        assert classes(decide([served("a"), served("b")], known))["b"] == "unsatisfiable"
        assert classes(decide([served("a"), served("b", weight=2.0)], known))["a"] == "unsatisfiable"

    def test_who_has_a_share_keeps_it_unless_another_needs_clearly_less(self) -> None:
        jobs = [served("a"), served("b")]
        held = {"a": that_wants(0.6), "b": that_wants(0.63, wanted=0.63)}
        assert classes(decide(jobs, held)) == {"a": "unsatisfiable", "b": "B"}
        clearly_less = {**held, "a": that_wants(0.55)}
        assert classes(decide(jobs, clearly_less)) == {"a": "B", "b": "unsatisfiable"}

    @pytest.mark.parametrize(
        ("known", "why"),
        [
            (that_wants(3.0), "job needs 2.8 cores and can use 2"),
            (JobMemory(paces=tuple(Pace(START, 12 + 0.1 / cores, cores) for cores in (0.1, 0.5, 1.0))), "no CPU would"),
        ],
    )
    def test_says_why_an_objective_is_out_of_reach(self, known: JobMemory, why: str) -> None:
        decisions = decide([served("job")], {"job": known}, cores=2.0)
        assert classes(decisions) == {"job": "unsatisfiable"}
        assert why in decisions.reasons["job"]

    def test_a_satisfied_job_is_left_alone_within_the_deadband(self) -> None:
        known = {"a": took(9.8, 0.4, wanted=0.4), "x": JobMemory(decided=PolicyMemory(wanted_cores=0.6))}
        got = limits(decide([served("a"), served("x", asked=None)], known))
        assert got == pytest.approx({"a": 0.4, "x": 0.6})  # the line says 0.392


QUOTA_SPEEDS = ((0.0, 0.0), (0.1, 0.065), (0.25, 0.205), (0.5, 0.47), (1.0, 1.0))


def under_a_quota(limit: float) -> float:
    """Measured: a hard quota below one core costs more than its fraction."""
    for (low, slow), (high, fast) in pairwise(QUOTA_SPEEDS):
        if limit <= high:
            return slow + (limit - low) / (high - low) * (fast - slow)
    return limit


class TestClosedLoop:
    """What the policy decides, done to served models whose speed it does not know."""

    def run(self, asked: Mapping[str, float], speed: Callable[[float], float], looks: int) -> list[dict[str, float]]:
        """Response time ÷ objective of each job after each look; one CPU-second a response, one core."""
        policy = Policy(Parameters(), Setting(ITVAL, "limits"))
        memory, had, ratios = MemoryState(), dict.fromkeys(asked, 1 / len(asked)), []
        for look in range(looks):
            at = START + ITVAL * look
            measured = {uid: memory.jobs.get(uid, JobMemory()) for uid in asked}
            if look:
                paces = {uid: Pace(at, 1 / speed(cores), cores) for uid, cores in had.items()}
                measured = {
                    uid: structs.replace(job, paces=(*job.paces, paces[uid])[-12:]) for uid, job in measured.items()
                }
                ratios.append({uid: paces[uid].seconds / asked[uid] for uid in asked})
            jobs = [
                served(uid, asked=asked[uid]).altered(allocation=CpuAllocation(round(1000 * cores), 1000))
                for uid, cores in had.items()
            ]
            memory = policy.decide(a_snapshot(jobs, at=at), MemoryState(measured, memory.nodes)).memory
            had = {uid: job.decided.wanted_cores or 0.0 for uid, job in memory.jobs.items()}
        return ratios

    def test_a_quota_that_costs_more_than_its_fraction_is_corrected_and_stays_so(self) -> None:
        ratios = self.run({"a": 10.0, "b": 4.0, "c": 2.5}, under_a_quota, looks=14)
        assert not all(ratio <= 1.1 for ratio in ratios[0].values())  # an even share does not do
        assert all(ratio <= 1.1 for each in ratios[4:] for ratio in each.values())
        assert ratios[-1] == pytest.approx(ratios[-2], rel=0.01)

    def test_when_cpu_is_scarce_the_same_jobs_stay_satisfied(self) -> None:
        ratios = self.run({"a": 4.0, "b": 3.9, "c": 3.8, "d": 2.0}, lambda cores: cores, looks=14)
        assert [sorted(uid for uid, ratio in each.items() if ratio <= 1.1) for each in ratios[3:]] == [
            ["a", "b", "c"]
        ] * 10


class TestSpeed:
    @pytest.mark.parametrize(
        ("known", "had", "target", "limit"),
        [
            (JobMemory(paces=(Pace(START - 1, 0.2, 0.5, busy_ratio=0.95),)), 0.5, 0.25, 0.4),  # a client that waits
            (JobMemory(paces=(Pace(START - 1, 0.2, None, busy_ratio=0.5), Pace(START - 1, 0.2, 0.5))), 0.5, 10.0, 0.25),
            (took(1.0, 0.8), 1.0, 100.0, 0.4),  # none far below all that was seen
            (took(20.0, None), 0.2, 10.0, 0.4),  # without CPU use, what it might use counts
        ],
    )
    def test_the_limit_for_a_response_time(self, known: JobMemory, had: float, target: float, limit: float) -> None:
        found = speed(known, had)
        assert found is not None
        assert found.limit_for(target) == pytest.approx(limit)

    def test_what_jobs_might_use_is_an_even_share_under_their_limits_or_in_proportion_to_requests(self) -> None:
        jobs = [a_job("a", limit=200, request=100), a_job("b", request=300)]
        assert had_cores(jobs, a_node(), "limits") == pytest.approx([0.2, 0.8])
        assert had_cores(jobs, a_node(), "requests") == pytest.approx([0.25, 0.75])


class TestStep:
    def step(self, jobs: list[Job], known: Mapping[str, JobMemory], **more: Any) -> Decisions:
        return decide(jobs, known, variant="step", **more)

    @pytest.mark.parametrize(
        ("known", "expected"),
        [
            # q of 0.2 and 0.6: factors of 1 - 0.1 x 0.25 and 1 - 0.1 x 0.75
            ({"a": took(8, 0.5, wanted=0.5), "b": took(4, 0.5, wanted=0.5)}, {"a": 0.4875, "b": 0.4625}),
            # below its target, and satisfied
            ({"a": took(20, 0.3, wanted=0.3), "b": took(9.5, 0.3, wanted=0.3)}, {"a": 0.33, "b": 0.3}),
            # what is too much is taken from those below target
            ({"a": took(20, 0.6, wanted=0.6), "b": took(9.5, 0.4, wanted=0.4)}, {"a": 0.6, "b": 0.4}),
            # all make room for an arrival
            ({"a": took(9.5, 0.7, wanted=0.7), "b": JobMemory()}, {"a": 0.25 + 0.45 * 5 / 7, "b": 0.25 + 0.25 * 5 / 7}),
        ],
    )
    def test_jobs_above_target_shrink_by_their_part_of_beta_and_jobs_below_grow_as_far_as_there_is_room(
        self, known: Mapping[str, JobMemory], expected: Mapping[str, float]
    ) -> None:
        assert limits(self.step([served("a"), served("b")], known)) == pytest.approx(expected)

    def test_no_job_goes_below_half_an_even_share_or_above_the_node(self) -> None:
        known = {"a": took(5, 0.26, wanted=0.26), "b": JobMemory()}
        assert limits(self.step([served("a"), served("b")], known))["a"] == 0.25
        alone = {"a": took(20, 0.99, wanted=0.99)}
        assert limits(self.step([served("a")], alone)) == {"a": 1.0}

    def test_jobs_without_objective_share_what_is_left_and_have_half_an_even_share_at_least(self) -> None:
        known = {"a": took(9.5, 0.3, wanted=0.3), "x": JobMemory(decided=PolicyMemory(wanted_cores=0.1))}
        jobs = [served("a"), served("x", asked=None)]
        assert limits(self.step(jobs, known)) == pytest.approx({"a": 0.3, "x": 0.7})
        full = {"a": took(20, 0.9, wanted=0.9), "x": JobMemory()}
        assert limits(self.step(jobs, full)) == pytest.approx({"a": 0.75, "x": 0.25})

    def after(self, before: Mapping[str, str], *, looked: float = ITVAL, now: Mapping[str, float]) -> float:
        """The interval after a look; `before` are the classes, `now` what each job took."""
        jobs = {uid: took(seconds, 0.3, wanted=0.3, job_class=before.get(uid)) for uid, seconds in now.items()}
        nodes = {"n1": NodeMemory(frozenset(before), START - looked, looked)}
        policy = Policy(Parameters(variant="step", max_interval_ratio=4), Setting(ITVAL, "limits"))
        decisions = policy.decide(a_snapshot([served(uid) for uid in now]), MemoryState(jobs, nodes))
        return decisions.memory.nodes["n1"].interval_seconds

    @pytest.mark.parametrize(
        ("before", "looked", "now", "interval"),
        [
            ({"a": "S", "b": "B"}, ITVAL, {"a": 10.0, "b": 20.0}, 40.0),
            ({"a": "S", "b": "B"}, 80.0, {"a": 10.0, "b": 20.0}, 80.0),  # its bound
            ({"a": "S", "b": "B"}, 80.0, {"a": 10.0, "b": 10.0}, 80.0),  # more are satisfied
            ({"a": "S", "b": "B"}, 80.0, {"a": 5.0, "b": 20.0}, ITVAL),  # fewer are
            ({"a": "S", "b": "G"}, 80.0, {"a": 10.0, "b": 20.0}, ITVAL),  # more are below
            ({"a": "S"}, 80.0, {"a": 10.0, "b": 20.0}, ITVAL),  # others are there
        ],
    )
    def test_the_interval_doubles_while_the_classes_stay_and_returns_to_its_first_value_when_they_get_worse(
        self, before: Mapping[str, str], looked: float, now: Mapping[str, float], interval: float
    ) -> None:
        assert self.after(before, looked=looked, now=now) == interval
