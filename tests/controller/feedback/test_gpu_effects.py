"""What speaks against a change of a job with GPUs: steps that are slower for want of CPU, a raise in vain."""

from __future__ import annotations

import pytest
from support.worlds import START, a_job, a_node

from slopewise.feedback.gpu_effects import Effect, effect
from slopewise.model import Change, CpuAllocation, GpuMemory, JobMemory, LearnedCores, Pace

CHANGED_AT = START + 40
CUT = Change(CHANGED_AT, "limits", 6000, 2400)
RAISE = Change(CHANGED_AT, "limits", 3000, 6000)
GIVEN_BACK = Change(CHANGED_AT, "limits", 9000, 6000)


def found(
    change: Change,
    before: tuple[float, float],
    *after: tuple[float, float],
    short: float | None = None,
    original: int = 6000,
    learned: LearnedCores | None = None,
) -> Effect | None:
    """Of intervals of 20 s, each with the seconds of a step and the seconds of it that waited, on three cores."""
    paces = [Pace(START + 20 * n, before[0], 3.0, 1.0, before[1] / before[0]) for n in range(3)]
    paces += [
        Pace(CHANGED_AT + 20 * (n + 1), step, 3.0, 1.0, waited / step, short) for n, (step, waited) in enumerate(after)
    ]
    known = JobMemory(gpu=GpuMemory(learned=learned), paces=tuple(paces), original=CpuAllocation(original, 1000))
    return effect(a_job("a").altered(accelerators=1.0), known, change, a_node(cpu_cores=24.0))


def test_steps_that_wait_after_a_cut_take_it_back_and_the_job_lends_no_more() -> None:
    """0.5 s became 0.56 s, of which 0.06 s are waited; 36 steps an interval may be one off, which is 2.8 %."""
    slower = found(CUT, (0.5, 0.0), (0.56, 0.06))
    assert slower is not None
    assert slower.reason == "steps take 0.56 s, 12% more than before, after its CPU went from 6000m to 2400m"
    assert slower.learned == LearnedCores(CHANGED_AT + 20, least=6.0)


def test_steps_that_are_slower_and_neither_wait_nor_lack_cpu_have_another_cause() -> None:
    assert found(CUT, (0.5, 0.0), (0.6, 0.0), short=0.0) is None
    assert found(CUT, (0.5, 0.0), (0.6, 0.0), short=0.5) is not None


def test_what_was_forgotten_is_not_remembered_again_with_what_is_learned() -> None:
    slower = found(CUT, (0.5, 0.0), (0.56, 0.06), learned=LearnedCores(CHANGED_AT - 4000, most=2.0))
    assert slower is not None
    assert slower.learned == LearnedCores(CHANGED_AT + 20, least=6.0)


@pytest.mark.parametrize(("seconds", "counts"), [(0.52, False), (0.56, True)])
def test_a_difference_within_what_counting_whole_steps_explains_is_none(seconds: float, counts: bool) -> None:
    """One of 38 steps more or less is 2.6 %, beside the 3 % that is tolerated."""
    assert (found(CUT, (0.5, 0.0), (seconds, seconds - 0.5)) is not None) is counts


def test_small_losses_show_over_several_intervals() -> None:
    """4.5 % over three intervals, of 115 steps together."""
    assert found(CUT, (0.5, 0.0), (0.5225, 0.0225)) is None
    assert found(CUT, (0.5, 0.0), *[(0.5225, 0.0225)] * 3) is not None


def test_what_was_lent_to_it_may_be_taken_back() -> None:
    assert found(GIVEN_BACK, (0.3, 0.0), (0.45, 0.15)) is None


def test_a_raise_is_judged_after_two_intervals_by_half_of_what_it_was_to_bring() -> None:
    """0.9 s, of which 0.5 s wait, were to become 0.45 s with twice the CPU."""
    before = (0.9, 0.5)
    assert found(RAISE, before, (0.85, 0.45), original=3000) is None
    little = found(RAISE, before, (0.85, 0.45), (0.85, 0.45), original=3000)
    assert little is not None
    assert little.reason.startswith("steps take 0.85 s instead of 0.45 s, so it lacks loader workers and not CPU,")
    assert little.learned.most == 3.0
    assert found(RAISE, before, (0.67, 0.27), (0.67, 0.27), original=3000) is None


def test_nothing_is_said_before_an_interval_has_ended_nor_long_after() -> None:
    assert found(CUT, (0.5, 0.0)) is None
    assert found(CUT, (0.5, 0.0), *[(0.9, 0.4)] * 4) is None
