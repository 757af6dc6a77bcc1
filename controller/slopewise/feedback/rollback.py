"""Rolls back resizes after which a job regressed, and cancels resizes that stay pending.

A regression is an OOM kill, a restart, throttling or lower growth per CPU.
A resize is judged for a few intervals, and only where the container's health is known; of a job with accelerators also
by its steps (`gpu_effects.py`). Scrapes that time out are a regression of any job that has less than its original CPU,
which it then gets back, on one machine too.
The verdict stays in the job's memory until the former CPU is restored, across API errors and restarts of the
controller. Throttling and growth judge a cut with which a job is to run on; under a policy that serves jobs in turns a
cut is a wait, in which they say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from slopewise.allocation import accepted_millicores, actual_millicores, original_millicores
from slopewise.estimators.pace import CPU_COUNT_AGE_SECONDS, increase
from slopewise.estimators.step_cost import cpu_seconds
from slopewise.feedback import gpu_effects
from slopewise.model import (
    Backoff,
    Change,
    ClusterSnapshot,
    ContainerHealth,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Node,
    Outcome,
    Pace,
    PendingResize,
    Resize,
)

JUDGED_INTERVALS = 3.0
"""How long after a resize a regression counts as its effect; later there are other causes."""

THROTTLED_RATIO = 0.5
"""Throttled in more than half of all periods: under a limit that is used, that alone is normal."""

THROTTLED_PERIODS = 100
"""Periods of 0.1 s that the share needs at least: 10 s."""

WASTE_FACTOR = 1.4
"""CPU-seconds a step beyond which throttling wastes: threads that wait for a throttled one, spinning."""

SIGNIFICANT_PROGRESS = 0.05
"""Of the range of the loss, in one interval; less is noise."""

SMALL_CUT = 0.25
"""A cut by less than a quarter is not judged: growth that collapsed after 971m became 849m, on a flattening loss, would
have collapsed without it."""

EFFICIENCY_FACTOR = 0.5
"""Growth per CPU below this share of the expected is a regression."""

ROUNDING_MILLICORES = 1
"""A limit is 1m off its request where the platform forbids equal values."""

SAME_MOMENT_SECONDS = 1.0
"""Tolerance for an interval that began with the pass of the change."""


@dataclass(frozen=True, slots=True)
class RollbackSettings:
    """Deadlines of rollbacks and of the back-off after them; from `spec.behaviour`."""

    interval_seconds: float
    deferred_deadline_seconds: float
    backoff_seconds: float
    judges_cuts: bool = True
    """By throttling and growth; False where the policy serves jobs in turns (`PolicyFile.in_turns`)."""


@dataclass(frozen=True, slots=True)
class RollbackReview:
    """The policy's decisions with rollbacks in place, and late outcomes of earlier resizes."""

    decisions: Decisions
    late: tuple[Outcome[Resize], ...] = ()
    """Of accepted resizes that the node has not carried out; each reported once."""


@dataclass(frozen=True, slots=True)
class _Rollback:
    """The rollback of one job: its memory, its resize, its late outcome."""

    known: JobMemory
    resize: Resize | None = None
    late: Outcome[Resize] | None = None


class _Case(msgspec.Struct, frozen=True, gc=False):
    """One job, with all that its verdict depends on."""

    job: Job
    known: JobMemory
    node: Node
    now_seconds: float
    settings: RollbackSettings


def review(decisions: Decisions, snapshot: ClusterSnapshot, settings: RollbackSettings) -> RollbackReview:
    """Replace the policy's resizes by rollbacks where jobs regressed or resizes stay pending."""
    nodes = {node.name: node for node in snapshot.nodes}
    rollbacks: dict[str, _Rollback] = {}
    for job in snapshot.jobs:
        if job.container_health is None and job.pending is None and not (_times_out(job) or job.accelerators):
            continue
        known = decisions.memory.jobs.get(job.uid)
        if known is None or job.state.ended:
            continue
        case = _Case(job, known, nodes[job.node], snapshot.taken_at_seconds, settings)
        if (rollback := _rollback_of(case)) is not None:
            rollbacks[job.uid] = rollback
    return _with(decisions, rollbacks) if rollbacks else RollbackReview(decisions)


def watches(memory: MemoryState, snapshot: ClusterSnapshot, settings: RollbackSettings) -> bool:
    """Whether a resize is still to be judged, so that the next pass comes after one interval."""
    for job in snapshot.jobs:
        if job.pending is not None:
            return True
        if job.container_health is None and not job.accelerators:
            continue
        known = memory.jobs.get(job.uid)
        if known and known.change and _is_recent(known.change, snapshot.taken_at_seconds, settings):
            return True
    return False


def regressed(known: JobMemory, now_seconds: float) -> bool:
    """Whether a job regressed after a resize, until the back-off after its rollback ends."""
    was_judged = known.change is not None and known.change.regression is not None
    return was_judged and known.backoff.until_seconds is not None and now_seconds < known.backoff.until_seconds


def _is_recent(change: Change, now_seconds: float, settings: RollbackSettings) -> bool:
    return now_seconds - change.at_seconds <= JUDGED_INTERVALS * settings.interval_seconds


def _with(decisions: Decisions, rollbacks: dict[str, _Rollback]) -> RollbackReview:
    resizes = {uid: each.resize for uid, each in rollbacks.items() if each.resize is not None}
    kept = tuple(resize for resize in decisions.resizes if resize.job_uid not in resizes)
    reviewed = replace(
        decisions,
        resizes=kept + tuple(resizes.values()),
        reasons={**decisions.reasons, **{uid: resize.reason for uid, resize in resizes.items()}},
        memory=decisions.memory.with_jobs({uid: each.known for uid, each in rollbacks.items()}),
    )
    return RollbackReview(reviewed, tuple(each.late for each in rollbacks.values() if each.late is not None))


def _rollback_of(case: _Case) -> _Rollback | None:
    """A pending resize first: it was never in effect, so there is no effect to judge."""
    job, change = case.job, case.known.change
    if job.pending is not None:
        return _of_pending(case, job.pending) if case.known.original is not None else None
    if change is None or change.is_rollback:
        return None
    if _times_out(job) and (unheard := _unheard(case, change)) is not None:
        return unheard
    if (case.known.moved_at_seconds or 0.0) > change.at_seconds:
        return None  # of another pod: that of now came with its original CPU
    if (found := _gpu_effect(case, change)) is not None:
        known = case.known.altered(gpu=case.known.gpu.altered(learned=found.learned))
        learned = msgspec.structs.replace(case, known=known)
        return _rolled_back(learned, msgspec.structs.replace(change, from_millicores=found.back_to), found.reason)
    if job.container_health is None and not change.regression:
        return None
    regression = change.regression or _regression(case, change, job.container_health or ContainerHealth())
    return None if regression is None else _rolled_back(case, change, regression)


# --- a resize in effect, after which the job regressed ------------------------------------------------------


def _rolled_back(case: _Case, change: Change, regression: str) -> _Rollback:
    known = _backing_off(
        case, case.known.altered(change=msgspec.structs.replace(change, regression=regression)), regression
    )
    has = accepted_millicores(case.job, case.node, change.control)
    if has == change.from_millicores or abs(has - change.to_millicores) > ROUNDING_MILLICORES:
        return _Rollback(known.altered(change=None))  # another writer has changed it, or its pod was replaced
    return _Rollback(known, _resize(case, change.control, change.from_millicores, f"rolls back: {regression}"))


def _times_out(job: Job) -> bool:
    return job.missing_evaluation is not None and job.missing_evaluation.reason == "ScrapeTimesOut"


def _unheard(case: _Case, change: Change) -> _Rollback | None:
    """The original CPU for a job that was lowered, in one step or in many, until it answers no scrape in time.

    Not the CPU before its last change: of a job that went from 200m to 20m in steps that may be 30m, which is too
    little as well. None: it has its original CPU, so that something else delays its answers.
    """
    job, control = case.job, change.control
    has = accepted_millicores(job, case.node, control)
    original = original_millicores(job, {job.uid: case.known}, case.node, control)
    if has >= original:
        return None
    because = f"its scrapes time out with {has}m of its original {original}m"
    return _Rollback(
        _backing_off(case, case.known, because), _resize(case, control, original, f"rolls back: {because}")
    )


def _regression(case: _Case, change: Change, container_health: ContainerHealth) -> str | None:
    """The regression after the change, as a message; None: none is visible."""
    if not (_is_in_effect(case, change) and _is_recent(change, case.now_seconds, case.settings)):
        return None
    what = _ended_by_it(change.container_health, container_health)
    is_cut = change.to_millicores <= (1 - SMALL_CUT) * change.from_millicores
    if what is None and is_cut and case.settings.judges_cuts and not case.job.accelerators:
        what = _throttled(change, container_health, case) or _grows_less(change, case.known)
    return what and f"{what} after its CPU went from {change.from_millicores}m to {change.to_millicores}m"


def _gpu_effect(case: _Case, change: Change) -> gpu_effects.Effect | None:
    if not case.job.accelerators or change.regression or not _is_in_effect(case, change):
        return None
    return gpu_effects.effect(case.job, case.known, change, case.node)


def _is_in_effect(case: _Case, change: Change) -> bool:
    has = actual_millicores(case.job, case.node, change.control)
    return abs(has - change.to_millicores) <= ROUNDING_MILLICORES


def _ended_by_it(before: ContainerHealth | None, now: ContainerHealth) -> str | None:
    """Killed or restarted since the change. Only differences count, because clocks differ between nodes."""
    if before is None or now.restarts_total < before.restarts_total:  # fewer: another pod
        return None
    if now.oom_killed_at_seconds not in (None, before.oom_killed_at_seconds):
        return "OOM-killed"
    return "restarted" if now.restarts_total > before.restarts_total else None


def _throttled(change: Change, container_health: ContainerHealth, case: _Case) -> str | None:
    """Throttled, and each step costs more CPU than before; a limit that only slows a job down is no regression.

    Worked example: 4 threads that wait for each other by spinning; 1 s a step at 2 cores before, which is 2
    CPU-seconds, and 6 s at 0.5 cores now, which is 3: 1.5 times as much, and throttled in 90 % of the periods.
    """
    ratio = _throttled_ratio(change.container_health, container_health)
    before, now = _dearest_step_before(change, case.known), cpu_seconds(_pace_since(change, case))
    if ratio is None or ratio <= THROTTLED_RATIO or not before or now is None or now <= WASTE_FACTOR * before:
        return None
    return f"throttled in {ratio:.0%} of the time and {now / before:.1f} times the CPU a step"


def _throttled_ratio(before: ContainerHealth | None, now: ContainerHealth) -> float | None:
    """The share of the periods since then in which it was throttled; None: not known, or too few."""
    if before is None:
        return None
    periods = increase(before.cpu_periods_total, now.cpu_periods_total)
    throttled = increase(before.cpu_throttled_periods_total, now.cpu_throttled_periods_total)
    return None if periods is None or throttled is None or periods < THROTTLED_PERIODS else throttled / periods


def _dearest_step_before(change: Change, known: JobMemory) -> float | None:
    """CPU-seconds a step, the larger one of two intervals.

    In an interval after a raise the lag of CPU counts makes steps look cheap.
    """
    earlier = [pace for pace in known.paces if pace.at_seconds <= change.at_seconds][-2:]
    costs = [cpu_seconds(pace) for pace in (change.pace, *earlier)]
    return max((cost for cost in costs if cost is not None), default=None)


def _pace_since(change: Change, case: _Case) -> Pace | None:
    """The newest pace when its interval began clearly after the change.

    A kubelet's count of CPU is up to 20 s older than the steps. In the interval that began at the pass of the change,
    it is partly of the time before: of 15 s at 0.5 cores and 5 s at 0.25, for steps done at 0.25, which looks like 1.75
    times the CPU a step.
    """
    paces = case.known.paces
    if len(paces) < 2 or paces[-2].at_seconds < change.at_seconds + CPU_COUNT_AGE_SECONDS:
        return None
    return paces[-1]


def _grows_less(change: Change, known: JobMemory) -> str | None:
    """Growth per CPU below half of what was to be expected after its own natural decay.

    Worked example: 0.08 and then 0.06 per second and node before the change. The same decay again would give 0.045, and
    0.03 is no regression; 0.02 is. A job that improved by less than 5 % in the interval before is not judged: its noise
    is as large. Nor is one that was measured only once before: its decay is not known.
    """
    before, earlier, now = change.growth, change.previous_growth, known.growth
    if before is None or earlier is None or now is None:
        return None
    if now.at_seconds - now.interval_seconds < change.at_seconds - SAME_MOMENT_SECONDS:
        return None  # part of the interval lies before the change
    if before.change_per_second * before.interval_seconds < SIGNIFICANT_PROGRESS:
        return None
    had, had_earlier, has = before.cpu_efficiency, earlier.cpu_efficiency, now.cpu_efficiency
    if had is None or has is None or not had_earlier:
        return None
    expected = had * min(1.0, had / had_earlier)
    if has >= EFFICIENCY_FACTOR * expected:
        return None
    return f"growth per CPU {has:.2g}/s, expected {expected:.2g}/s,"


# --- a change that was accepted, and is not in effect ----------------------------------------------------------


def _of_pending(case: _Case, pending: PendingResize) -> _Rollback | None:
    """Report a pending resize once; cancel it when it is infeasible or was deferred for too long."""
    reported = _late_outcome(case, pending)
    known = reported.known if reported else case.known
    waited = _waited_seconds(case, pending)
    if pending.result != "infeasible" and waited <= case.settings.deferred_deadline_seconds:
        return reported
    control = _control_of(case, pending)
    actual = accepted_millicores(case.job.altered(allocation=pending.actual), case.node, control)
    desired = accepted_millicores(case.job, case.node, control)
    if actual == desired:
        return reported  # the pending part is not the controlled dimension
    cannot = "cannot be" if pending.result == "infeasible" else f"waited {waited:.0f} s"
    why = f"a change to {desired}m {cannot}: {pending.detail}"
    resize = _resize(case, control, actual, f"cancels: {why}")
    return _Rollback(_backing_off(case, known, why), resize, reported.late if reported else None)


def _late_outcome(case: _Case, pending: PendingResize) -> _Rollback | None:
    """The late outcome of an accepted resize; None: reported before."""
    change = case.known.change
    if change is None or change.reported == pending.result:
        return None
    known = case.known.altered(change=msgspec.structs.replace(change, reported=pending.result))
    job, ago = case.job, case.now_seconds - change.at_seconds
    reason = f"accepted {ago:.0f} s ago"
    accepted = Resize(job.uid, job.node, change.control, change.from_millicores, change.to_millicores, reason)
    return _Rollback(known, late=Outcome(accepted, pending.result, pending.detail))


def _waited_seconds(case: _Case, pending: PendingResize) -> float:
    """Since the recorded change where there is one: the node's clock may differ."""
    change = case.known.change
    return case.now_seconds - (pending.since_seconds if change is None else change.at_seconds)


def _control_of(case: _Case, pending: PendingResize) -> CpuControl:
    """The pending dimension, also where the record of the change was lost before it was stored."""
    if case.known.change is not None:
        return case.known.change.control
    return "requests" if pending.actual.limit_millicores == case.job.allocation.limit_millicores else "limits"


def _resize(case: _Case, control: CpuControl, to_millicores: int, reason: str) -> Resize:
    job, has = case.job, accepted_millicores(case.job, case.node, control)
    return Resize(job.uid, job.node, control, has, to_millicores, reason, is_rollback=True)


def _backing_off(case: _Case, known: JobMemory, because: str) -> JobMemory:
    until = case.now_seconds + case.settings.backoff_seconds
    return known.altered(backoff=Backoff(until, because))
