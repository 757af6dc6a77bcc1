"""Restores original resources without a pass: it needs the memory and the actuator, and no Prometheus.

It runs when a policy leaves `Auto` or `Canary` or is deleted, when a selector no longer matches a pod, in `slopewise
restore`, and at the end of a run on one machine. Callers retry pending and failed restores; an original is forgotten
only after it is restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from slopewise.errors import ActuationError
from slopewise.memory_sizing import restorable
from slopewise.model import CpuAllocation, JobMemory, MemoryState, Restored, RestoreResult, acts, in_canary
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
        memory.save(replace(state, jobs={**state.jobs, **cleared}))
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
        written_limit_bytes=None,
        change=None,
        backoff_until_seconds=None,
        backoff_reason=None,
    )
