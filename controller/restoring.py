"""Giving original resources back, without a pass: it needs the memory and the actuator, and no Prometheus.

Before it: a policy that leaves `Auto` or `Canary` or is deleted, a pod that its selector lets go, `slopewise restore`,
and the end of a run on one machine (`session.py`). `due` says whose turn it is, `give_back` does it; what waits or
fails is tried again by whoever calls it again, and no original is forgotten before it is back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from controller.bounds import acts, in_canary
from controller.errors import ActuationError
from controller.model import CpuAllocation, JobMemory, MemoryState, Restored, RestoreResult
from controller.ports import Actuator, Memory


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What became of each job, by uid, and why."""

    restored: Mapping[str, str] = field(default_factory=dict)
    """The detail says what could not come back with the rest, such as a limit that was added and stays."""
    gone: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Taken by the platform a moment ago, and not yet in effect: ask again soon."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """For room, for a kubelet that does not follow, for a turn: try again."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Not known whether another try helps: the API server did not answer, or refused."""
    impossible: Mapping[str, str] = field(default_factory=dict)
    """No other try helps until somebody changes something."""

    @property
    def not_back(self) -> Mapping[str, str]:
        """The jobs whose original resources are not in effect, and why."""
        return {**self.accepted, **self.trouble}

    @property
    def trouble(self) -> Mapping[str, str]:
        """Those of them that something is in the way of."""
        return {**self.waiting, **self.failed, **self.impossible}

    @property
    def settled(self) -> bool:
        """True when another try would do nothing more: what a finalizer waits for."""
        return not self.accepted and not self.waiting and not self.failed


def due(memory: MemoryState, mode: str, canary_ratio: float, selected_uids: Collection[str]) -> list[str]:
    """Whose original resources are to come back, in the order of the memory.

    `selected_uids`: the jobs that the policy selects now; none when it is deleted. A job that was never changed has no
    original, and is never due.
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


def give_back(memory: Memory, actuator: Actuator, uids: Iterable[str] | None = None) -> GivenBack:
    """Give these jobs (None: all) what they had before our first change; one failure stops no other.

    Carrying it out twice is the same as once. Raises only when the memory's storage fails, and then nothing is lost:
    the next try finds the resources back already.
    """
    state = memory.load()
    told: dict[RestoreResult, dict[str, str]] = {result: {} for result in get_args(RestoreResult)}
    for uid in list(state.jobs if uids is None else uids):
        known = state.jobs.get(uid)
        if known is not None and known.original is not None:
            restored = _restore(actuator, uid, known.original)
            told[restored.result][uid] = restored.detail
    done = told["applied"].keys() | told["gone"].keys()
    if done:
        cleared = {uid: _forgotten(state.jobs[uid]) for uid in done}
        memory.save(replace(state, jobs={**state.jobs, **cleared}))
    return GivenBack(
        restored=told["applied"],
        gone=told["gone"],
        accepted=told["accepted"],
        waiting=told["deferred"],
        failed=told["failed"],
        impossible=told["infeasible"],
    )


def _restore(actuator: Actuator, uid: str, original: CpuAllocation) -> Restored:
    try:
        return actuator.restore(uid, original)
    except ActuationError as error:
        return Restored("failed", str(error))


def _forgotten(known: JobMemory) -> JobMemory:
    """What the job was before our first change: nothing to give back, nothing to judge, no reason to leave it alone."""
    return known.altered(original=None, change=None, alone_until_seconds=None, alone_because=None)
