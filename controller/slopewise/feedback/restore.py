"""Stores original resources before the first change, and restores them without a pass and without Prometheus.

A restore runs when a policy leaves `Auto` or `Canary` or is deleted, when a selector no longer matches a pod, in
`slopewise restore`, and at the end of a run on one machine. Callers retry pending and failed restores; an original is
forgotten only after it is restored. Each original is a write, so `in_turn` bounds how many workloads a pass resizes for
the first time.

An outage, in which no pass has observed for three intervals, restores too: a job that waited when it began may have the
floor's CPU, and nothing would ever raise it. It ends with the first pass that observes, which decides from what the
jobs have then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeVar, get_args

from slopewise.errors import ActuationError
from slopewise.memory_sizing import restorable
from slopewise.model import (
    Backoff,
    Change,
    ClusterSnapshot,
    ContainerHealth,
    CpuAllocation,
    Decision,
    Job,
    JobMemory,
    JobUid,
    MemoryResizes,
    MemoryState,
    Outcome,
    PassReport,
    Resize,
    ResizeMemory,
    Restored,
    RestoreResult,
    acts,
    in_canary,
)
from slopewise.ports import Actuator, Memory


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Results of restores with their details, by uid."""

    restored: Mapping[str, str] = field(default_factory=dict)
    """The detail names a part that cannot be restored, such as an added limit."""
    gone: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Accepted by the platform, and not yet in effect."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """Deferred: no room, a kubelet that is behind, a rate limit."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The API server did not answer, or refused."""
    impossible: Mapping[str, str] = field(default_factory=dict)
    """Retries are useless until the cause changes."""

    @property
    def outstanding(self) -> Mapping[str, str]:
        """The jobs whose original resources are not in effect, with the reason."""
        return {**self.accepted, **self.trouble}

    @property
    def trouble(self) -> Mapping[str, str]:
        """Those whose restore is not even accepted."""
        return {**self.waiting, **self.failed, **self.impossible}

    @property
    def settled(self) -> bool:
        """True when a retry has nothing left to do: the condition of the finalizer."""
        return not self.accepted and not self.waiting and not self.failed


def due(memory: MemoryState, mode: str, canary_ratio: float, selected_uids: Collection[str]) -> list[str]:
    """Uids of the changed jobs that are to be restored, in the order of the memory.

    `selected_uids`: the jobs that the policy selects now; none when it is deleted.
    """
    return [
        uid
        for uid, known in memory.jobs.items()
        if known.original is not None and not _may_keep(uid, mode, canary_ratio, selected_uids)
    ]


def _may_keep(uid: str, mode: str, canary_ratio: float, selected_uids: Collection[str]) -> bool:
    if not acts(mode) or uid not in selected_uids:
        return False
    return mode != "Canary" or in_canary(uid, canary_ratio)


def restore_originals(memory: Memory, actuator: Actuator, uids: Iterable[str] | None = None) -> RestoreReport:
    """Restore the originals of these jobs (None: all); idempotent, and one failure does not stop the others.

    Raises only when the memory's storage fails; the next call then finds the resources restored.
    """
    state = memory.load()
    by_result: dict[RestoreResult, dict[str, str]] = {result: {} for result in get_args(RestoreResult)}
    for uid in list(state.jobs if uids is None else uids):
        known = state.jobs.get(uid)
        if known is not None and known.original is not None:
            restored = _restore(actuator, uid, known.original, known)
            by_result[restored.result][uid] = restored.detail
    done = by_result["applied"].keys() | by_result["gone"].keys()
    if done:
        cleared = {uid: _forgotten(state.jobs[uid]) for uid in done}
        memory.save(state.with_jobs(cleared))
    return RestoreReport(
        restored=by_result["applied"],
        gone=by_result["gone"],
        accepted=by_result["accepted"],
        waiting=by_result["deferred"],
        failed=by_result["failed"],
        impossible=by_result["infeasible"],
    )


def _restore(actuator: Actuator, uid: str, original: CpuAllocation, known: JobMemory) -> Restored:
    memory, note = restorable(known)
    try:
        restored = actuator.restore(uid, original, memory)
    except ActuationError as error:
        return Restored("failed", str(error))
    if restored.result != "applied" or not note:
        return restored
    return replace(restored, detail="; ".join(filter(None, (restored.detail, note))))


def _forgotten(known: JobMemory) -> JobMemory:
    """Without the originals, the change to judge and the back-off."""
    return known.altered(
        original=None,
        original_memory=None,
        memory_resizes=known.memory_resizes.altered(written_limit_bytes=None),
        change=None,
        backoff=Backoff(),
    )


R = TypeVar("R", Resize, ResizeMemory)


def in_turn(resizes: Sequence[R], memory: MemoryState, most: int | None) -> tuple[list[R], list[Outcome[R]]]:
    """Resizes that may be made now, and deferred outcomes of the rest: `most` workloads may have their first one.

    Decreases come before increases, so that a node is never overcommitted; otherwise the order stays.
    """
    ordered = sorted(resizes, key=attrgetter("raises"))
    if most is None:
        return ordered, []
    due: list[R] = []
    waiting: list[Outcome[R]] = []
    first: set[str] = set()
    reason = f"no more than {most} workloads are changed for the first time in one pass; its turn comes in a later one"
    for resize in ordered:
        known = memory.jobs.get(resize.job_uid)
        if known is None or known.original is None:
            workload = JobUid.of(resize.job_uid).workload
            if workload not in first and len(first) == most:
                waiting.append(Outcome(resize, "deferred", reason))
                continue
            first.add(workload)
        due.append(resize)
    return due, waiting


def remember_originals(
    memory: MemoryState, allowed: Sequence[Resize | ResizeMemory], snapshot: ClusterSnapshot
) -> MemoryState:
    """Memory with what each job had before its first change; a stored original is never overwritten.

    The first change of its memory stores its CPU too, so that `original` alone says that a job was changed.
    """
    jobs, changed = {job.uid: job for job in snapshot.jobs}, dict[str, JobMemory]()
    for resize in allowed:
        known = changed.get(resize.job_uid) or memory.jobs.get(resize.job_uid) or JobMemory()
        changed[resize.job_uid] = _with_originals(known, jobs[resize.job_uid], resize)
    return memory.with_jobs(changed)


def _with_originals(known: JobMemory, job: Job, resize: Resize | ResizeMemory) -> JobMemory:
    if known.original is None:
        known = known.altered(original=job.allocation)
    if isinstance(resize, ResizeMemory) and known.original_memory is None:
        return known.altered(original_memory=job.memory)
    return known


def remember_changes(
    memory: MemoryState, outcomes: Iterable[Outcome[Decision]], snapshot: ClusterSnapshot
) -> MemoryState:
    """Memory with each applied change, for cooldowns, for rollbacks, and for the pause after one was taken back."""
    now_seconds, changed = snapshot.taken_at_seconds, dict[str, JobMemory]()
    container_health = {job.uid: job.container_health for job in snapshot.jobs}
    for change in (each.decision for each in outcomes if each.result == "applied"):
        known = changed.get(change.job_uid) or memory.jobs[change.job_uid]
        if isinstance(change, Resize):
            known = _with_change(known, change, container_health[change.job_uid], now_seconds)
        elif isinstance(change, ResizeMemory):
            before = known.memory_resizes
            refused_at = now_seconds if change.is_rollback else before.refused_at_seconds
            limit = change.to_bytes if change.bound == "limit" else before.written_limit_bytes
            known = known.altered(memory_resizes=MemoryResizes(now_seconds, refused_at, limit))
        changed[change.job_uid] = known
    return memory.with_jobs(changed)


def _with_change(
    known: JobMemory, resize: Resize, container_health: ContainerHealth | None, now_seconds: float
) -> JobMemory:
    """The job's memory with the measurements before this resize, which the rollback compares with."""
    change = Change(
        now_seconds,
        resize.control,
        resize.from_millicores,
        resize.to_millicores,
        container_health,
        known.growth,
        known.previous_growth,
        known.paces[-1] if known.paces else None,
        is_rollback=resize.is_rollback,
        regression=known.change.regression if resize.is_rollback and known.change else None,
    )
    return known.altered(last_resized_at_seconds=now_seconds, change=change)


OUTAGE_INTERVALS = 3
"""Two held passes in a row may be a restart of Prometheus."""

_UNCHANGED = "; nothing is changed meanwhile"


class Outage:
    """Follows the reports of one policy's passes."""

    def __init__(self, interval_seconds: float, now_seconds: float, *, restores: bool) -> None:
        """`restores`: whether the policy changes jobs at all."""
        self._interval_seconds = interval_seconds
        self._expected_since_seconds = now_seconds
        """An interval before the next observation was expected: a policy may have planned a longer pause."""
        self._restores = restores
        self.lasts = False
        """True once original resources are to be restored, until a pass observes."""

    def note(self, report: PassReport) -> PassReport:
        """The report of a pass, which says so when its outage has lasted for so long."""
        if report.held is None or report.policy_failed:
            planned_seconds = report.requeue_at_seconds - self._interval_seconds
            self._expected_since_seconds = max(report.taken_at_seconds, planned_seconds)
            self.lasts = False
            return report
        seconds = report.taken_at_seconds - self._expected_since_seconds
        self.lasts = self._restores and seconds >= OUTAGE_INTERVALS * self._interval_seconds
        if not self.lasts:
            return report
        restored = f"No observation for {seconds:.0f} s, {OUTAGE_INTERVALS} intervals: original resources are restored."
        return replace(report, held=f"{report.held.replace(_UNCHANGED, '')} {restored}")
