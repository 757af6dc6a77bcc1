"""Corrections: what an earlier change has harmed gets back what it had, and what waits too long is taken back.

Before it: the policy's `decide`. After it: `guards`, which a correction passes more easily than a policy's wish. What
a change did is judged for a few intervals, and only of jobs whose vitals are known: a machine or a simulated world
without them behaves as if this were not there.

A verdict stays in the job's memory until the former resources are back, so that neither an API server that refuses for
a while nor a restart of the controller changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from controller.control import actual_millicores, now_millicores
from controller.model import (
    Change,
    ClusterSnapshot,
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
    Vitals,
)

JUDGED_INTERVALS = 3.0
"""How long after a change what happens to the job counts as its doing; later on, much else may have happened."""

THROTTLED_RATIO = 0.5
"""Throttled in more than half of all periods: under a limit that is used, that alone is normal."""

THROTTLED_PERIODS = 100
"""Periods of 0.1 s that must have passed for that share to mean anything: 10 s."""

CPU_COUNT_AGE_SECONDS = 19.0
"""A kubelet counts CPU every 10 to 15 s, and is scraped a few seconds later."""

WASTE_FACTOR = 1.4
"""CPU-seconds a step beyond which throttling wastes: threads that wait for a throttled one, spinning."""

SIGNIFICANT_PROGRESS = 0.05
"""Of the range of the loss, in one interval. What moves less shows noise: half of it says nothing."""

SMALL_CUT = 0.25
"""A cut by less than a quarter wastes nothing to speak of: when growth collapses after 971m became 849m, as seen on a
loss that was flattening, then it would have collapsed without it."""

EFFICIENCY_FACTOR = 0.5
"""Growth per CPU below this share of what was to be expected is harm."""

ROUNDING_MILLICORES = 1
"""A limit is kept 1m off its request where the platform forbids that they are equal."""

SAME_MOMENT_SECONDS = 1.0
"""An interval that began at the pass of a change began after it: only that pass's own rounding lies between."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, and how long to leave alone; from `spec.behaviour`."""

    interval_seconds: float
    deferred_deadline_seconds: float
    leave_alone_seconds: float


@dataclass(frozen=True, slots=True)
class Corrected:
    """The policy's decisions with what has to be corrected in them, and what became of earlier changes since."""

    decisions: Decisions
    late: tuple[Outcome, ...] = ()
    """Of changes that were accepted in an earlier pass and that the node has not carried out; each told once."""


@dataclass(frozen=True, slots=True)
class _Correction:
    """What is to be done for one job, remembered of it and told of it."""

    known: JobMemory
    resize: Resize | None = None
    late: Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """One job, and all that is needed to judge it."""

    job: Job
    known: JobMemory
    node: Node
    now_seconds: float
    patience: Patience


def review(decisions: Decisions, snapshot: ClusterSnapshot, patience: Patience) -> Corrected:
    """Replace the policy's wishes for jobs that have to be corrected; everything else stays as it was decided."""
    nodes = {node.name: node for node in snapshot.nodes}
    corrections: dict[str, _Correction] = {}
    for job in snapshot.jobs:
        if job.vitals is None and job.pending is None:
            continue
        known = decisions.memory.jobs.get(job.uid)
        if known is None or job.state.ended:
            continue
        case = _Case(job, known, nodes[job.node], snapshot.taken_at_seconds, patience)
        if (correction := _correct(case)) is not None:
            corrections[job.uid] = correction
    return _with(decisions, corrections) if corrections else Corrected(decisions)


def watches(memory: MemoryState, snapshot: ClusterSnapshot, patience: Patience) -> bool:
    """Whether some change is still to be judged, so that the next look must not wait for a node in back-off."""
    for job in snapshot.jobs:
        if job.pending is not None:
            return True
        if job.vitals is None:
            continue
        known = memory.jobs.get(job.uid)
        if known and known.change and _is_recent(known.change, snapshot.taken_at_seconds, patience):
            return True
    return False


def _is_recent(change: Change, now_seconds: float, patience: Patience) -> bool:
    return now_seconds - change.at_seconds <= JUDGED_INTERVALS * patience.interval_seconds


def _with(decisions: Decisions, corrections: dict[str, _Correction]) -> Corrected:
    resizes = {uid: each.resize for uid, each in corrections.items() if each.resize is not None}
    kept = tuple(resize for resize in decisions.resizes if resize.job_uid not in resizes)
    jobs = {**decisions.memory.jobs, **{uid: each.known for uid, each in corrections.items()}}
    corrected = replace(
        decisions,
        resizes=kept + tuple(resizes.values()),
        reasons={**decisions.reasons, **{uid: resize.reason for uid, resize in resizes.items()}},
        memory=replace(decisions.memory, jobs=jobs),
    )
    return Corrected(corrected, tuple(each.late for each in corrections.values() if each.late is not None))


def _correct(case: _Case) -> _Correction | None:
    """What waits comes first: it was never in effect, and so has done nothing that could be judged."""
    job, change = case.job, case.known.change
    if job.pending is not None:
        return _of_pending(case, job.pending) if case.known.original is not None else None
    if job.vitals is None or change is None or change.gives_back:
        return None
    harm = change.harm or _harm(case, change, job.vitals)
    return None if harm is None else _give_back(case, change, harm)


# --- a change that is in effect, and did harm ---------------------------------------------------------------


def _give_back(case: _Case, change: Change, harm: str) -> _Correction:
    known = _left_alone(case, case.known.altered(change=replace(change, harm=harm)), harm)
    if now_millicores(case.job, case.node, change.control) == change.from_millicores:
        return _Correction(known.altered(change=None))  # somebody was faster: there is nothing left to give back
    return _Correction(known, _resize(case, change.control, change.from_millicores, f"gives back: {harm}"))


def _harm(case: _Case, change: Change, vitals: Vitals) -> str | None:
    """What the change did to the job, in words; None: nothing that shows."""
    has = actual_millicores(case.job, case.node, change.control)
    in_effect = abs(has - change.to_millicores) <= ROUNDING_MILLICORES
    if not in_effect or not _is_recent(change, case.now_seconds, case.patience):
        return None
    what = _ended_by_it(change.vitals, vitals)
    if what is None and change.to_millicores <= (1 - SMALL_CUT) * change.from_millicores:
        what = _throttled(change, vitals, case) or _grows_less(change, case.known)
    return what and f"{what} after its CPU went from {change.from_millicores}m to {change.to_millicores}m"


def _ended_by_it(before: Vitals | None, now: Vitals) -> str | None:
    """Killed or restarted since. Only differences count: the node's clock is not ours."""
    if before is None or now.restarts_total < before.restarts_total:  # fewer: another pod took its place
        return None
    if now.oom_killed_at_seconds not in (None, before.oom_killed_at_seconds):
        return "OOM-killed"
    return "restarted" if now.restarts_total > before.restarts_total else None


def _throttled(change: Change, vitals: Vitals, case: _Case) -> str | None:
    """Throttled, and each step costs more CPU than before; a limit that only slows a job down does no harm.

    Worked example: 4 threads that wait for each other by spinning; 1 s a step at 2 cores before, which is 2
    CPU-seconds, and 6 s at 0.5 cores now, which is 3: 1.5 times as much, and throttled in 90 % of the periods.
    """
    ratio = _throttled_ratio(change.vitals, vitals)
    before, now = _dearest_step_before(change, case.known), _cpu_seconds_a_step(_pace_since(change, case))
    if ratio is None or ratio <= THROTTLED_RATIO or not before or now is None or now <= WASTE_FACTOR * before:
        return None
    return f"throttled in {ratio:.0%} of the time and {now / before:.1f} times the CPU a step"


def _throttled_ratio(before: Vitals | None, now: Vitals) -> float | None:
    """The share of the periods since then in which it was throttled; None: not known, or too few."""
    if before is None:
        return None
    periods = _increase(before.cpu_periods_total, now.cpu_periods_total)
    throttled = _increase(before.cpu_throttled_periods_total, now.cpu_throttled_periods_total)
    return None if periods is None or throttled is None or periods < THROTTLED_PERIODS else throttled / periods


def _increase(before: float | None, now: float | None) -> float | None:
    """Of a counter; None when it is not known, or began anew."""
    return None if before is None or now is None or now < before else now - before


def _dearest_step_before(change: Change, known: JobMemory) -> float | None:
    """CPU-seconds, of two intervals: the same lag makes steps look cheap in one at whose start CPU was raised."""
    earlier = [pace for pace in known.paces if pace.at_seconds <= change.at_seconds][-2:]
    costs = [_cpu_seconds_a_step(pace) for pace in (change.pace, *earlier)]
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


def _cpu_seconds_a_step(pace: Pace | None) -> float | None:
    return None if pace is None or pace.cores is None else pace.seconds * pace.cores


def _grows_less(change: Change, known: JobMemory) -> str | None:
    """Growth per CPU below half of what was to be expected after its own natural decay.

    Worked example: 0.08 and then 0.06 per second and node before the change. The same decay again would give 0.045, and
    0.03 is no harm; 0.02 is. A job that improved by less than 5 % in the interval before is not judged: its noise is as
    large. Nor is one that was measured only once before: its decay is not known.
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


def _of_pending(case: _Case, pending: PendingResize) -> _Correction | None:
    """Tell it once; take it back when it cannot be, or when it has waited too long for room."""
    told = _told(case, pending)
    known = told.known if told else case.known
    waited = _waited_seconds(case, pending)
    if pending.result != "infeasible" and waited <= case.patience.deferred_deadline_seconds:
        return told
    control = _control_of(case, pending)
    in_effect = now_millicores(replace(case.job, allocation=pending.in_effect), case.node, control)
    wished = now_millicores(case.job, case.node, control)
    if in_effect == wished:
        return told  # what waits is not what we control
    cannot = "cannot be" if pending.result == "infeasible" else f"waited {waited:.0f} s"
    why = f"a change to {wished}m {cannot}: {pending.detail}"
    resize = _resize(case, control, in_effect, f"takes back: {why}")
    return _Correction(_left_alone(case, known, why), resize, told.late if told else None)


def _told(case: _Case, pending: PendingResize) -> _Correction | None:
    """The outcome of a change of ours that the node tells only now; None when it was told before."""
    change = case.known.change
    if change is None or change.told == pending.result:
        return None
    known = case.known.altered(change=replace(change, told=pending.result))
    job, ago = case.job, case.now_seconds - change.at_seconds
    reason = f"accepted {ago:.0f} s ago"
    asked = Resize(job.uid, job.node, change.control, change.from_millicores, change.to_millicores, reason)
    return _Correction(known, late=Outcome(asked, pending.result, pending.detail))


def _waited_seconds(case: _Case, pending: PendingResize) -> float:
    """Since our own change where it is known: what the node says of the time is by its clock, and not by ours."""
    change = case.known.change
    return case.now_seconds - (pending.since_seconds if change is None else change.at_seconds)


def _control_of(case: _Case, pending: PendingResize) -> CpuControl:
    """Which side waits, also when the memory of the change was lost between the API server and our storage."""
    if case.known.change is not None:
        return case.known.change.control
    return "requests" if pending.in_effect.limit_millicores == case.job.allocation.limit_millicores else "limits"


def _resize(case: _Case, control: CpuControl, to_millicores: int, reason: str) -> Resize:
    job = case.job
    has = now_millicores(job, case.node, control)
    return Resize(job.uid, job.node, control, has, to_millicores, reason, gives_back=True)


def _left_alone(case: _Case, known: JobMemory, because: str) -> JobMemory:
    until = case.now_seconds + case.patience.leave_alone_seconds
    return known.altered(alone_until_seconds=until, alone_because=because)
