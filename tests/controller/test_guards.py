"""Guards: each names itself, its figure and its bound; clamps reduce, vetoes withhold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.worlds import START, a_job, a_node, a_snapshot

from controller.guards import GUARDS, MOVE_GUARDS, Bounds, guard_names, review
from controller.model import ClusterSnapshot, CpuControl, Job, JobMemory, JobState, MemoryState, Node, Resize, Withheld

OPEN = Bounds("Auto", 1, 64_000, cooldown_seconds=0, max_step_ratio=1000, min_change_ratio=0)


def ask(
    to: int,
    *,
    now: int = 1000,
    bounds: Bounds = OPEN,
    job: Job | None = None,
    known: JobMemory | None = None,
    control: CpuControl = "limits",
    node: Node | None = None,
) -> Resize | Withheld:
    """What becomes of one resize of job `j` on a node of two cores."""
    job = job or a_job("j")
    snapshot = a_snapshot([job], [node or a_node(cpu_cores=2.0)])
    memory = MemoryState({"j": known or JobMemory(series="s")})
    allowed, withheld = review([Resize("j", "n1", control, now, to, "why")], snapshot, memory, bounds)
    return (allowed or withheld)[0]


def veto(verdict: Resize | Withheld) -> str:
    assert isinstance(verdict, Withheld)
    assert verdict.reason.startswith(f"{verdict.guard}: ")
    return verdict.reason


def clamped(verdict: Resize | Withheld) -> tuple[int, str]:
    assert isinstance(verdict, Resize)
    return verdict.to_millicores, verdict.reason


def test_a_harmless_resize_passes_untouched() -> None:
    assert ask(500) == Resize("j", "n1", "limits", 1000, 500, "why")


@pytest.mark.parametrize("mode", ["Observe", "Recommend"])
def test_only_auto_changes_anything(mode: str) -> None:
    assert veto(ask(500, bounds=replace(OPEN, mode=mode))) == f"paused: mode is {mode}, and only Auto changes anything"


def test_an_ended_job_is_left_alone() -> None:
    assert veto(ask(500, job=a_job("j", state=JobState.FINISHED))) == "ended: job is finished"


def test_a_diverged_job_is_held() -> None:
    reason = veto(ask(500, job=a_job("j", finite=False)))
    assert reason == 'non_finite_metrics: training_loss{stage="eval"} is not finite'


def test_stale_metrics_hold_with_age_and_bound() -> None:
    assert veto(ask(500, job=a_job("j", age=42))) == "stale_metrics: newest sample is 42 s old, bound 20 s"


def test_metrics_that_went_missing_hold_and_metrics_that_never_were_do_not() -> None:
    silent = a_job("j", level=None)
    assert "training_loss is missing" in veto(ask(500, job=silent, known=JobMemory(series="training_loss")))
    assert clamped(ask(500, job=silent, known=JobMemory())) == (500, "why")


def test_a_restarted_job_is_held() -> None:
    assert veto(ask(500, job=a_job("j", restarted=True))).startswith("restarted: restarted within the window")


@pytest.mark.parametrize(("now", "to", "expected"), [(1000, 100, 250), (1000, 250, 250), (100, 200, 250)])
def test_nothing_is_left_below_the_floor(now: int, to: int, expected: int) -> None:
    assert clamped(ask(to, now=now, bounds=replace(OPEN, min_millicores=250)))[0] == expected


def test_a_clamp_says_what_was_wanted_and_which_bound_stopped_it() -> None:
    assert clamped(ask(100, bounds=replace(OPEN, min_millicores=250)))[1] == "why (wanted 100m, floor 250m)"


@pytest.mark.parametrize(("now", "to", "expected"), [(500, 2000, 1500), (1900, 1700, 1500)])
def test_nothing_is_left_above_the_ceiling(now: int, to: int, expected: int) -> None:
    assert clamped(ask(to, now=now, bounds=replace(OPEN, max_millicores=1500)))[0] == expected


def test_a_limit_above_the_useful_parallelism_helps_nobody() -> None:
    one_thread = a_job("j", useful_cores=1.0)
    assert clamped(ask(2000, now=500, job=one_thread)) == (1000, "why (wanted 2000m, useful parallelism 1000m)")
    assert clamped(ask(2000, now=500, job=one_thread, control="requests"))[0] == 2000


@pytest.mark.parametrize(("to", "expected"), [(100, 500), (4000, 2000), (1500, 1500)])
def test_one_step_changes_by_at_most_the_step_ratio(to: int, expected: int) -> None:
    bounds = replace(OPEN, max_step_ratio=2.0)
    assert clamped(ask(to, bounds=bounds, node=a_node(cpu_cores=8)))[0] == expected


def test_a_small_change_is_not_worth_a_call() -> None:
    reason = veto(ask(950, bounds=replace(OPEN, min_change_ratio=0.1)))
    assert reason == "minimum_change: change of 5.0% (1000m to 950m), bound 10%"


def test_a_job_that_is_at_a_bound_already_is_withheld_in_the_name_of_that_bound() -> None:
    reason = veto(ask(100, now=250, bounds=replace(OPEN, min_millicores=250)))
    assert reason == "floor: wanted 100m, bound floor 250m, has 250m"
    assert "useful_parallelism: wanted 2000m" in veto(ask(2000, now=1000, job=a_job("j", useful_cores=1.0)))


def test_a_step_always_moves_however_small_the_figures_are() -> None:
    assert clamped(ask(100, now=1, bounds=replace(OPEN, max_step_ratio=1.4)))[0] == 2


@pytest.mark.parametrize(("ago", "held"), [(30, True), (120, False)])
def test_cooldown_lets_the_last_change_show_its_effect_first(ago: float, held: bool) -> None:
    known = JobMemory(series="s", last_resized_at_seconds=START - ago)
    verdict = ask(500, bounds=replace(OPEN, cooldown_seconds=120), known=known)
    assert isinstance(verdict, Withheld) is held
    if held:
        assert veto(verdict) == "cooldown: resized 30 s ago, bound 120 s"


def test_no_limit_is_larger_than_its_node() -> None:
    assert clamped(ask(3000)) == (2000, "why (wanted 3000m, node capacity 2000m)")


def a_full_node() -> ClusterSnapshot:
    jobs = [a_job(uid, request=1000) for uid in ("a", "b")]
    return a_snapshot(jobs, [a_node(cpu_cores=2.0, requests_max_millicores=2000)])


def shares(**to: int) -> list[Resize]:
    return [Resize(uid, "n1", "requests", 1000, millicores, "why") for uid, millicores in to.items()]


def test_requests_may_move_within_a_full_node() -> None:
    allowed, withheld = review(shares(a=500, b=1500), a_full_node(), MemoryState(), OPEN)
    assert (len(allowed), withheld) == (2, ())


def test_a_raise_that_the_nodes_requests_have_no_room_for_is_withheld_and_the_decrease_goes_on() -> None:
    allowed, withheld = review(shares(a=900, b=1500), a_full_node(), MemoryState(), OPEN)
    assert [resize.job_uid for resize in allowed] == ["a"]
    assert withheld[0].reason == "node_capacity: requests on n1 would be 400m over its 2000m"


def test_requests_that_are_only_relative_weights_have_no_bound() -> None:
    snapshot = replace(a_full_node(), nodes=(a_node(cpu_cores=2.0),))
    allowed, _ = review(shares(a=1500, b=1500), snapshot, MemoryState(), OPEN)
    assert len(allowed) == 2


def test_whether_a_job_may_be_touched_is_asked_before_how_far() -> None:
    assert guard_names()[:6] == ["moving", "paused", "ended", "non_finite_metrics", "stale_metrics", "restarted"]
    assert guard_names()[12] == "node_capacity"
    assert len(guard_names()) == len(GUARDS) + len(MOVE_GUARDS) + 3
