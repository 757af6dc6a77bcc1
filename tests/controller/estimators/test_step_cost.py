"""The cost of a step: its least, what changes neither side, and when a job oversubscribes its CPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.worlds import START, a_job, a_snapshot

from slopewise.estimators import pace
from slopewise.estimators.step_cost import OVERSUBSCRIBES_RATIO, measure, oversubscribed, step_cost
from slopewise.model import Job, JobMemory, JobState, MemoryState, MoveRecord, Pace, Responses, Timing, Usage


def after(*costs: float | None, moved_after: int | None = None, cores: float = 0.5) -> JobMemory:
    """The memory after intervals of 20 s with these CPU-seconds a step."""
    known = JobMemory()
    for number, cost in enumerate(costs):
        at = START + 20 * number
        if number == moved_after:
            known = known.altered(moves=(MoveRecord(at - 1, "n1", "n2"),))
        newest = Pace(at, 1.0, None) if cost is None else Pace(at, cost / cores, cores)
        known = known.altered(paces=(*known.paces, newest)[-12:])
        known = measure(a_snapshot([a_job("a")], at=at), MemoryState({"a": known}), MemoryState()).jobs["a"]
    return known


def ratio(*costs: float | None, moved_after: int | None = None) -> float | None:
    cost = step_cost(after(*costs, moved_after=moved_after))
    return None if cost is None else round(cost.ratio, 6)


def test_steps_that_cost_more_for_three_intervals_than_they_did_for_three() -> None:
    cost = step_cost(after(2, 2, 2, 3.2, 3.6, 3.4))
    assert cost is not None
    assert tuple(cost) == pytest.approx((3.2, 2.0, 0.5, True))
    assert cost.ratio == pytest.approx(1.6)
    assert cost.oversubscribes


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((2, 2, 2, 20, 2), 1),  # an evaluation or a checkpoint of one interval or two
        ((2, 2, 2, 20, 20), 1),
        ((50, 2, 2), 1),  # the first one with compilation
        ((10, 5, 10, 5, 10, 10, 5) * 4, 1),  # steps of 12 s, of which one or two are counted in each
        ((9,) * 12, 1),  # it was never cheaper
        ((2,) * 3 + (4,) * 30, 2),  # what it cost at the start is remembered beyond the paces that are kept
    ],
)
def test_only_steps_that_are_dear_for_three_intervals_are_a_ratio(costs: tuple[float, ...], expected: float) -> None:
    assert ratio(*costs) == expected


@pytest.mark.parametrize("cheap", [1, 2])
def test_steps_that_jump_after_a_resume_or_cpu_that_is_counted_late_are_no_least(cheap: int) -> None:
    assert after(2, 2, 2, *[0.01] * cheap, 2, 2, 2).timing.least_step_cpu_seconds == pytest.approx(2)


@pytest.mark.parametrize("costs", [(), (2.0,), (2.0, 2.0), (2.0, None, 2.0), (2.0, 2.0, 2.0, None)])
def test_too_few_intervals_or_cpu_that_is_not_known_say_nothing(costs: tuple[float | None, ...]) -> None:
    assert step_cost(after(*costs)) is None


def test_a_job_that_waits_without_cpu_has_no_least_of_noise() -> None:
    assert after(2.0, 2.0, 2.0, cores=0.001).timing.least_step_cpu_seconds is None


@pytest.mark.parametrize(
    ("costs", "oversubscribes"),
    [
        ((2.9,), False),
        ((3.1,), True),
        ((3.1, 2.9), True),
        ((3.1, 2.9, 3.1), True),
        ((3.1, 2.4), False),
        ((3.1, 2.4, 2.9), False),
    ],
)
def test_a_ratio_about_the_bound_is_no_end_until_steps_cost_clearly_less(
    costs: tuple[float, ...], oversubscribes: bool
) -> None:
    known = after(2, 2, 2, *(cost for cost in costs for _ in range(3)))
    assert (oversubscribed(a_job("a"), known) is not None) is oversubscribes


def test_another_node_begins_again() -> None:
    """Its processor may be an older one."""
    assert ratio(*[2.0] * 3, *[4.0] * 2, moved_after=3) is None
    assert ratio(*[2.0] * 3, *[4.0] * 3, moved_after=3) == 1
    assert ratio(*[2.0] * 3, *[4.0] * 3, *[8.0] * 3, moved_after=3) == 2


def test_a_served_model_has_no_steps() -> None:
    job = a_job("a").altered(responses=Responses(10, 1.0))
    memory = MemoryState({"a": JobMemory(paces=(Pace(START, 1.0, 0.5),) * 3)})
    assert measure(a_snapshot([job]), memory, memory) is memory


class TestARestart:
    """70 s after the first process ended, or another training in that one; 20 s at one core are an interval."""

    OF_FIRST = [a_job("a", life=START - 20).altered(steps_total=10.0 * number) for number in range(5)]

    @staticmethod
    def after(jobs: Sequence[Job], begin: int, known: JobMemory) -> JobMemory:
        for number, job in enumerate(jobs):
            at = START + begin + 20 * number
            seen = job.altered(evaluation=None, usage=Usage(20.0 * number, at))
            before = MemoryState({"a": known})
            snapshot = a_snapshot([seen], at=at)
            known = measure(snapshot, pace.measure(snapshot, before, 20), before).jobs["a"]
        return known

    def test_the_steps_of_the_one_before_are_not_those_of_now(self) -> None:
        dear = self.after(self.OF_FIRST, 0, JobMemory()).altered(timing=Timing(least_step_cpu_seconds=1.0))
        assert oversubscribed(a_job("a"), dear) is not None
        resumed = [a_job("a", life=START + 140).altered(steps_total=35.0 + 20 * number) for number in range(4)]
        assert step_cost(self.after(resumed[:1], 150, dear)) is None
        cost = step_cost(self.after(resumed, 150, dear))
        assert cost is not None
        assert tuple(cost) == pytest.approx((1.0, 1.0, 1.0, False))

    @pytest.mark.parametrize("life", [START + 140, START - 20])
    def test_one_that_counts_its_steps_from_the_start_is_another_training(self, life: float) -> None:
        known = self.after(self.OF_FIRST, 0, JobMemory())
        other = [a_job("a", life=life).altered(steps_total=2.0 * number) for number in range(6)]
        cost = step_cost(self.after(other, 150, known))
        assert cost is not None
        assert tuple(cost) == pytest.approx((10.0, 10.0, 1.0, False))
        resumed = [a_job("a", life=START + 140).altered(steps_total=30.0 + 2 * number) for number in range(6)]
        assert oversubscribed(a_job("a"), self.after(resumed, 150, known)) is not None


class TestItsSentence:
    KNOWN = after(*[2.0] * 3, *[3.2] * 3)

    def test_threads_cores_and_what_a_step_costs(self) -> None:
        job = a_job("a").altered(threads=8.0)
        assert oversubscribed(job, self.KNOWN) == "8 threads on 0.50 cores: a step costs 3.2 CPU-seconds, 2 at best"
        assert oversubscribed(job.altered(threads=1.0), self.KNOWN) is not None

    def test_threads_that_are_not_reported_are_left_out(self) -> None:
        assert oversubscribed(a_job("a"), self.KNOWN) == "on 0.50 cores: a step costs 3.2 CPU-seconds, 2 at best"

    def test_a_job_below_the_bound_or_that_has_ended_has_none(self) -> None:
        assert oversubscribed(a_job("a"), after(*[2.0] * 3, *[2 * OVERSUBSCRIBES_RATIO] * 3)) is None
        assert oversubscribed(a_job("a", state=JobState.FINISHED), self.KNOWN) is None
        assert oversubscribed(a_job("a"), None) is None
