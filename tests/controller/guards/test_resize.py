"""Guards: each names itself, its figure and its bound; clamps reduce, vetoes withhold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.reviewing import reviewed
from support.worlds import START, a_job, a_node, a_snapshot

from slopewise.guards.at_target import STOP_GUARDS
from slopewise.guards.move_budgets import JOINT_GUARDS
from slopewise.guards.moves import MIGRATION_GUARDS, MOVE_GUARDS
from slopewise.guards.permission import PERMISSIONS
from slopewise.guards.resize import GUARDS
from slopewise.guards.review import guard_names
from slopewise.model import (
    AcceleratorControl,
    AcceptedRange,
    Backoff,
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    CpuControl,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Node,
    Pace,
    PendingResize,
    Resize,
    Withheld,
    in_canary,
)

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
) -> Resize | Withheld[Resize]:
    """What becomes of one resize of job `j` on a node of two cores."""
    job = job or a_job("j")
    snapshot = a_snapshot([job], [node or a_node(cpu_cores=2.0)])
    memory = MemoryState({"j": known or JobMemory(levels=Levels(series="s"))})
    allowed, withheld = reviewed([Resize("j", "n1", control, now, to, "why")], snapshot, memory, bounds)
    return (allowed or withheld)[0]


def veto(verdict: Resize | Withheld[Resize]) -> str:
    assert isinstance(verdict, Withheld)
    assert verdict.reason.startswith(f"{verdict.guard}: ")
    return verdict.reason


def clamped(verdict: Resize | Withheld[Resize]) -> tuple[int, str]:
    assert isinstance(verdict, Resize)
    return verdict.to_millicores, verdict.reason


def accepting(*bounds: Any) -> Job:
    return a_job("j").altered(accepts=AcceptedRange(*bounds))


def backed_off(until: float | None) -> JobMemory:
    return JobMemory(levels=Levels(series="s"), backoff=Backoff(until_seconds=until, reason="OOM-killed"))


GPU = "asks for nvidia.com/gpu, which a resize could take away"
PAUSED = "and only Canary and Auto change anything"
PENDING = a_job("j").altered(pending=PendingResize("deferred", START - 10, "no room", CpuAllocation(500, 500)))
CANARY = replace(OPEN, mode="Canary")
TINY = a_job("j", request=1)


@pytest.mark.parametrize(
    ("to", "asked", "reason"),
    [
        (500, {"bounds": replace(OPEN, mode="Observe")}, f"paused: mode is Observe, {PAUSED}"),
        (500, {"bounds": replace(OPEN, mode="Recommend")}, f"paused: mode is Recommend, {PAUSED}"),
        (
            500,
            {"bounds": replace(CANARY, canary_ratio=1e-9)},
            "canary: mode is Canary, and the job is not in its share of 0%",
        ),
        (500, {"job": a_job("j").altered(ineligible_reason=GPU)}, f"ineligible: {GPU}"),
        (500, {"known": backed_off(START + 90)}, "backoff: for another 90 s: OOM-killed"),
        (1500, {"job": PENDING}, "pending: the last resize is deferred: no room"),
        # pinned by the platform, and never turned round
        (500, {"job": accepting(1000, None, "x")}, "accepted_range: wanted 500m, bound 1000m (x), has 1000m"),
        (500, {"job": accepting(1100, None, "x")}, "accepted_range: wanted 500m, bound 1100m (x), has 1000m"),
        (500, {"job": a_job("j", state=JobState.FINISHED)}, "ended: job is finished"),
        (500, {"job": a_job("j", finite=False)}, 'non_finite_metrics: training_loss{stage="eval"} is not finite'),
        (500, {"job": a_job("j", age=42)}, "stale_metrics: newest sample is 42 s old, bound 20 s"),
        (500, {"job": a_job("j", level=None)}, "stale_metrics: s is missing"),
        (500, {"job": a_job("j", restarted=True)}, "restarted: restarted within the window"),
        (
            950,
            {"bounds": replace(OPEN, min_change_ratio=0.1)},
            "minimum_change: change of 5.0% (1000m to 950m), bound 10%",
        ),
        # at a bound already, in the name of that bound
        (
            100,
            {"now": 250, "bounds": replace(OPEN, min_millicores=250)},
            "floor: wanted 100m, bound floor 250m, has 250m",
        ),
        (2000, {"job": a_job("j", useful_cores=1.0)}, "useful_parallelism: wanted 2000m"),
    ],
)
def test_a_veto_names_its_guard_its_figure_and_its_bound(to: int, asked: dict[str, Any], reason: str) -> None:
    assert veto(ask(to, **asked)).startswith(reason)


FLOOR, CEILING = replace(OPEN, min_millicores=250), replace(OPEN, max_millicores=1500)
STEP, ONE_THREAD = replace(OPEN, max_step_ratio=2.0), a_job("j", useful_cores=1.0)


@pytest.mark.parametrize(
    ("to", "asked", "given", "reason"),
    [
        (500, {}, 500, "why"),
        (500, {"bounds": replace(CANARY, canary_ratio=1.0)}, 500, "why"),
        (500, {"bounds": replace(OPEN, canary_ratio=1e-9)}, 500, "why"),  # in mode Auto
        (500, {"known": backed_off(START)}, 500, "why"),
        (500, {"known": backed_off(None)}, 500, "why"),
        (700, {"job": PENDING}, 700, "why"),  # it may be lowered
        (500, {"job": a_job("j", level=None), "known": JobMemory()}, 500, "why"),  # it never had metrics
        (200, {"job": accepting(400, None, "request")}, 400, "why (wanted 200m, request: 400m)"),
        (2000, {"job": accepting(None, 1200, "limit")}, 1200, "why (wanted 2000m, limit: 1200m)"),
        (800, {"job": accepting(400, 1200, "both")}, 800, "why"),
        # the platform's bound holds against the user's
        (100, {"job": accepting(600, None, "request"), "bounds": replace(OPEN, max_millicores=300)}, 600, ""),
        (100, {"bounds": FLOOR}, 250, "why (wanted 100m, floor 250m)"),
        (250, {"bounds": FLOOR}, 250, "why"),
        (200, {"bounds": FLOOR, "now": 100}, 250, "why (wanted 200m, floor 250m)"),
        (2000, {"bounds": CEILING, "now": 500}, 1500, ""),
        (1700, {"bounds": CEILING, "now": 1900}, 1500, ""),
        (2000, {"job": ONE_THREAD, "now": 500}, 1000, "why (wanted 2000m, useful parallelism 1000m)"),
        (2000, {"job": ONE_THREAD, "now": 500, "control": "requests"}, 2000, "why"),
        (3000, {}, 2000, "why (wanted 3000m, node capacity 2000m)"),
        (100, {"bounds": STEP, "control": "requests"}, 500, ""),  # alone: its even share is its request
        (4000, {"bounds": STEP, "control": "requests"}, 2000, ""),
        (1500, {"bounds": STEP, "control": "requests"}, 1500, "why"),
        # a step always moves
        (100, {"bounds": replace(OPEN, max_step_ratio=1.4), "now": 1, "job": TINY, "control": "requests"}, 2, ""),
        (
            500,
            {
                "bounds": replace(OPEN, cooldown_seconds=120),
                "known": JobMemory(levels=Levels("s"), last_resized_at_seconds=START - 120),
            },
            500,
            "why",
        ),
    ],
)
def test_a_clamp_names_what_was_wanted_and_its_bound(to: int, asked: dict[str, Any], given: int, reason: str) -> None:
    millicores, found = clamped(ask(to, **asked))
    assert (millicores, found.startswith(reason)) == (given, True)


def test_canary_changes_a_share_of_the_workloads_and_always_the_same_ones() -> None:
    chosen = [uid for uid in (f"workload-{number}" for number in range(1000)) if in_canary(uid, 0.1)]
    assert 70 <= len(chosen) <= 130
    assert set(chosen) <= {f"workload-{number}" for number in range(1000) if in_canary(f"workload-{number}", 0.2)}
    assert all(in_canary(f"{uid}:{slot}", 0.1) for uid in chosen for slot in range(4))


WITH_GPU = a_job("j", limit=6000).altered(accelerators=1.0)
TWO_CORES = JobMemory(
    levels=Levels(series="s"),
    original=CpuAllocation(6000, 1000),
    paces=tuple(Pace(START - 60 + 20 * number, 0.5, 2.0, 1.0, 0.0) for number in range(3)),
)
EIGHT = a_node(cpu_cores=8.0)


def test_a_job_with_gpus_is_not_changed_without_consent() -> None:
    expected = "accelerators: it has a GPU, and spec.resources.accelerators is Ignore"
    assert veto(ask(5000, now=6000, job=WITH_GPU, known=TWO_CORES, node=EIGHT)) == expected


@pytest.mark.parametrize(
    ("control", "consent", "least"), [("limits", "Share", 2400), ("limits", "Raise", 6000), ("requests", "Share", 300)]
)
def test_a_job_with_gpus_stays_as_fast_as_before(control: CpuControl, consent: AcceleratorControl, least: int) -> None:
    """It uses two of six cores: 2.4 of them, and with `requests` that part of a weight of 1000m on 8 cores."""
    now = 6000 if control == "limits" else 1000
    verdict = ask(
        100,
        now=now,
        bounds=replace(OPEN, accelerators=consent),
        job=WITH_GPU,
        known=TWO_CORES,
        control=control,
        node=EIGHT,
    )
    if least == now:
        assert veto(verdict) == "accelerators: wanted 100m, bound 6000m (as fast as with its original CPU), has 6000m"
    else:
        assert clamped(verdict) == (least, f"why (wanted 100m, as fast as with its original CPU: {least}m)")


def test_a_job_with_gpus_of_which_nothing_is_known_keeps_its_original() -> None:
    known = JobMemory(levels=Levels(series="s"), original=CpuAllocation(6000, 1000))
    verdict = ask(3000, now=6000, bounds=replace(OPEN, accelerators="Share"), job=WITH_GPU, known=known, node=EIGHT)
    assert "bound 6000m" in veto(verdict)


def test_a_raise_of_a_pod_whose_request_follows_stays_within_what_others_leave_of_the_node() -> None:
    """Others leave 6 of 8 cores. 2 and 3 are reserved, 1.5 more are too much, and fit after a cut of the other one."""
    jobs = [
        a_job(uid, limit=cpu, request=cpu).altered(accelerators=1.0, request_follows_limit=True)
        for uid, cpu in (("j", 2000), ("other", 3000))
    ]
    snapshot = a_snapshot(jobs, [a_node(cpu_cores=8.0, available_cores=6.0)])
    memory = MemoryState(
        {"j": JobMemory(levels=Levels(series="s")), "other": TWO_CORES.altered(original=CpuAllocation(3000, 3000))}
    )
    raised = Resize("j", "n1", "limits", 2000, 3500, "why")
    lowered = Resize("other", "n1", "limits", 3000, 2400, "why")
    bounds = replace(OPEN, accelerators="Share")
    allowed, withheld = reviewed([raised], snapshot, memory, bounds)
    assert (list(allowed), withheld[0].reason) == ([], "node_capacity: requests on n1 would be 500m over its 6000m")
    allowed, withheld = reviewed([raised, lowered], snapshot, memory, bounds)
    assert ([each.to_millicores for each in allowed], list(withheld)) == ([3500, 2400], [])


def a_give_back(job: Job, mode: str = "Auto") -> Resize | Withheld[Resize]:
    """What becomes of a tiny, early give-back of a job without metrics, far above the user's step and ceiling."""
    bounds = Bounds(mode, 1, 300, cooldown_seconds=600, max_step_ratio=1.1, min_change_ratio=0.9)
    known = JobMemory(
        levels=Levels("s"), backoff=Backoff(until_seconds=START + 600, reason="OOM"), last_resized_at_seconds=START
    )
    resize = Resize("j", "n1", "limits", 250, 1000, "gives back", is_rollback=True)
    snapshot = a_snapshot([job], [a_node(cpu_cores=2.0)])
    allowed, withheld = reviewed([resize], snapshot, MemoryState({"j": known}), bounds)
    return (allowed or withheld)[0]


def test_a_give_back_waits_for_no_metrics_cooldown_step_or_other_harm() -> None:
    verdict = a_give_back(a_job("j", age=1000, restarted=True))
    assert (clamped(verdict), isinstance(verdict, Resize) and verdict.is_rollback) == ((1000, "gives back"), True)


def test_a_give_back_is_held_by_a_mode_that_changes_nothing_by_the_jobs_end_and_by_others_who_resize() -> None:
    assert veto(a_give_back(a_job("j"), "Recommend")).startswith("paused: ")
    assert veto(a_give_back(a_job("j", state=JobState.FAILED))) == "ended: job is failed"
    assert veto(a_give_back(a_job("j").altered(ineligible_reason="vpa resizes it"))) == "ineligible: vpa resizes it"


def test_floor_and_ceiling_of_a_weight_are_in_cpu() -> None:
    """Four jobs have weights of 500m each on two cores, so that 100m of weight are 100m of CPU; of 50m each, 10m."""
    bounds = replace(OPEN, min_millicores=100, max_millicores=1000)
    assert clamped(ask_of_four(20, now=500, bounds=bounds, control="requests"))[0] == 100
    small = JobMemory(levels=Levels(series="s"), original=CpuAllocation(None, 50))
    alone = a_job("j", request=50)
    assert clamped(ask(1, now=50, bounds=bounds, job=alone, known=small, control="requests")) == (
        3,
        "why (wanted 1m, floor 100m of CPU, weight 3m)",
    )
    assert clamped(ask(40, now=10, bounds=bounds, job=alone, known=small, control="requests"))[0] == 40


@pytest.mark.parametrize(("to", "expected"), [(10, 31), (100, 62)], ids=["floor", "ceiling"])
def test_bounds_of_a_weight_come_from_the_nodes_weights_not_a_rounded_even_share(to: int, expected: int) -> None:
    """Requests of 20m, 21m and 21m on two cores are 31m a core. Three even shares of 21m would be 31.5m."""
    jobs = [a_job("j", request=20), a_job("a", request=21), a_job("b", request=21)]
    bounds = replace(OPEN, min_millicores=1000, max_millicores=2000)
    known = MemoryState({"j": JobMemory(levels=Levels(series="s"), original=CpuAllocation(None, 20))})
    resize = Resize("j", "n1", "requests", 40, to, "why")
    (allowed,), _ = reviewed([resize], a_snapshot(jobs, [a_node(cpu_cores=2.0)]), known, bounds)
    assert allowed.to_millicores == expected


def test_no_ceiling_lowers_a_weight_below_the_even_share() -> None:
    """At most 100m each, of four jobs on two cores: less than the 500m that each has evenly."""
    bounds = replace(OPEN, max_millicores=100)
    assert clamped(ask_of_four(900, now=400, bounds=bounds, control="requests"))[0] == EVEN
    assert clamped(ask_of_four(900, now=400, bounds=bounds, control="limits"))[0] == 100


def test_floor_and_ceiling_that_are_the_same_do_not_contradict_each_other() -> None:
    """290m of weight on two cores: 100m of CPU are 14.5m of it."""
    bounds, known = (
        replace(OPEN, min_millicores=100, max_millicores=100),
        JobMemory(levels=Levels(series="s"), original=CpuAllocation(None, 290)),
    )
    alone = a_job("j", request=290)
    assert clamped(ask(5, now=290, bounds=bounds, job=alone, known=known, control="requests"))[0] == 15


# --- the even share: up to there a raise only gives back what belongs to the job ------------------------------------

EVEN = 500
"""Of each of four jobs: 2 cores under limits, 2000m of weights under requests."""


def ask_of_four(
    to: int,
    *,
    now: int,
    bounds: Bounds = OPEN,
    job: Job | None = None,
    known: JobMemory | None = None,
    control: CpuControl = "limits",
) -> Resize | Withheld[Resize]:
    """What becomes of one resize of job `j`, which has three more jobs beside it on a node of two cores."""
    asked = (job or a_job("j")).altered(allocation=CpuAllocation(now, now))
    others = [a_job(uid, request=1900) for uid in ("a", "b", "c")]
    remembered = {uid: JobMemory(original=CpuAllocation(None, EVEN)) for uid in ("a", "b", "c")}
    mine = known or JobMemory(levels=Levels(series="s"))
    remembered["j"] = mine if mine.original else structs.replace(mine, original=CpuAllocation(None, EVEN))
    snapshot = a_snapshot([asked, *others, a_job("done", state=JobState.FINISHED)], [a_node(cpu_cores=2.0)])
    allowed, withheld = reviewed(
        [Resize("j", "n1", control, now, to, "why")], snapshot, MemoryState(remembered), bounds
    )
    return (allowed or withheld)[0]


BOTH_CONTROLS = pytest.mark.parametrize("control", ["limits", "requests"])
SILENT = (a_job("j", age=42), a_job("j", level=None))


@BOTH_CONTROLS
@pytest.mark.parametrize("job", SILENT, ids=["stale", "missing"])
def test_a_squeezed_job_that_has_gone_silent_is_raised_up_to_the_even_share(job: Job, control: CpuControl) -> None:
    assert clamped(ask_of_four(300, now=25, job=job, control=control)) == (300, "why")
    target, reason = clamped(ask_of_four(2000, now=25, job=job, control=control))
    assert target == EVEN
    assert "wanted 2000m, even share 500m: " in reason


@BOTH_CONTROLS
@pytest.mark.parametrize("job", SILENT, ids=["stale", "missing"])
@pytest.mark.parametrize(("now", "to"), [(500, 600), (800, 1000), (300, 100), (800, 300)])
def test_of_a_silent_job_nothing_else_is_changed(job: Job, now: int, to: int, control: CpuControl) -> None:
    assert "stale_metrics: " in veto(ask_of_four(to, now=now, job=job, control=control))


@BOTH_CONTROLS
def test_a_silent_job_that_was_never_lowered_keeps_what_it_came_with(control: CpuControl) -> None:
    came_with = JobMemory(levels=Levels(series="s"), original=CpuAllocation(300, 300))
    assert "stale_metrics: " in veto(ask_of_four(450, now=300, job=SILENT[0], known=came_with, control=control))
    assert clamped(ask_of_four(450, now=290, job=SILENT[0], known=came_with, control=control))[0] == 450


@BOTH_CONTROLS
def test_a_diverged_winner_is_lowered_to_the_even_share_and_no_further(control: CpuControl) -> None:
    diverged = a_job("j", finite=False)
    assert clamped(ask_of_four(900, now=1400, job=diverged, control=control)) == (900, "why")
    target, reason = clamped(ask_of_four(100, now=1400, job=diverged, control=control))
    assert (target, "even share 500m" in reason) == (EVEN, True)
    for now, to in ((500, 100), (300, 100), (100, 300), (1400, 1900)):
        assert "is not finite" in veto(ask_of_four(to, now=now, job=diverged, control=control))


@BOTH_CONTROLS
def test_a_raise_up_to_the_even_share_waits_for_no_cooldown_and_no_step_cap(control: CpuControl) -> None:
    careful = replace(OPEN, max_step_ratio=2.0, cooldown_seconds=120)
    just_now = JobMemory(levels=Levels(series="s"), last_resized_at_seconds=START - 30)
    assert clamped(ask_of_four(450, now=25, bounds=careful, known=just_now, control=control)) == (450, "why")
    assert clamped(ask_of_four(2000, now=25, bounds=careful, known=just_now, control=control))[0] == EVEN
    assert clamped(ask_of_four(2000, now=25, bounds=careful, control=control))[0] == EVEN
    assert clamped(ask_of_four(2000, now=400, bounds=careful, control=control))[0] == 800
    assert clamped(ask_of_four(2000, now=500, bounds=careful, control=control))[0] == 1000


@BOTH_CONTROLS
@pytest.mark.parametrize(("now", "to"), [(500, 900), (600, 900), (400, 100)])
def test_everything_else_waits_for_the_cooldown(now: int, to: int, control: CpuControl) -> None:
    known = JobMemory(levels=Levels(series="s"), last_resized_at_seconds=START - 30)
    verdict = ask_of_four(to, now=now, bounds=replace(OPEN, cooldown_seconds=120), known=known, control=control)
    assert veto(verdict) == "cooldown: resized 30 s ago, bound 120 s"


def test_an_even_share_below_the_floor_counts_as_the_floor() -> None:
    careful = replace(OPEN, max_step_ratio=2.0, min_millicores=700)
    assert clamped(ask_of_four(2000, now=25, bounds=careful))[0] == 700


def test_the_users_and_the_platforms_bounds_hold_below_the_even_share_too() -> None:
    silent = a_job("j", age=42).altered(accepts=AcceptedRange(None, 400, "its limit"))
    assert clamped(ask_of_four(2000, now=25, bounds=replace(OPEN, max_millicores=300), job=silent))[0] == 300
    assert clamped(ask_of_four(2000, now=25, job=silent))[0] == 400


def a_full_node() -> ClusterSnapshot:
    jobs = [a_job(uid, request=1000) for uid in ("a", "b")]
    return a_snapshot(jobs, [a_node(cpu_cores=2.0, requests_max_millicores=2000)])


def shares(**to: int) -> list[Resize]:
    return [Resize(uid, "n1", "requests", 1000, millicores, "why") for uid, millicores in to.items()]


def test_requests_may_move_within_a_full_node_and_have_no_bound_where_they_are_only_weights() -> None:
    for wanted, snapshot in (
        (shares(a=500, b=1500), a_full_node()),
        (shares(a=1500, b=1500), replace(a_full_node(), nodes=(a_node(cpu_cores=2.0),))),
    ):
        allowed, withheld = reviewed(wanted, snapshot, MemoryState(), OPEN)
        assert (len(allowed), withheld) == (2, ())


def test_a_raise_that_the_nodes_requests_have_no_room_for_is_withheld_and_the_decrease_goes_on() -> None:
    allowed, withheld = reviewed(shares(a=900, b=1500), a_full_node(), MemoryState(), OPEN)
    assert [resize.job_uid for resize in allowed] == ["a"]
    assert withheld[0].reason == "node_capacity: requests on n1 would be 400m over its 2000m"


def test_whether_a_job_may_be_touched_is_asked_before_how_far() -> None:
    whether = ["moving", "paused", "canary", "frozen", "ended", "ineligible", "accelerators", "backoff"]
    known_enough = ["non_finite_metrics", "stale_metrics", "restarted", "pending"]
    assert guard_names()[:12] == whether + known_enough
    assert guard_names()[19] == "node_capacity"
    of_moves = [*MOVE_GUARDS, *MIGRATION_GUARDS, *JOINT_GUARDS]
    own = [*GUARDS, *of_moves, *STOP_GUARDS, *PERMISSIONS, *PERMISSIONS, *PERMISSIONS]
    assert len(guard_names()) == len(set(guard_names())) == len(own) + 4
