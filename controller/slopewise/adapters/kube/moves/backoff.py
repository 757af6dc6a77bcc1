"""Remembers workloads whose move was refused, with the reason and the time of the next try.

`suspend/begin.py` and `evict/controller.py` record each refusal; `moves/movability_inputs.py` reads it in every pass
(`Movability.backoff_reason`), so that guards hold such a job back and policies choose another one. A refusal expires
after a while, and at once when its cause has changed: a disruption budget of the namespace, the labels of the namespace
or of the pod, the spec of the Job.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from slopewise.adapters.kube.cache.records import ManagedPod, ObjectRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Cause, Refused
from slopewise.adapters.kube.client.protocol import Api, Json, Store, path_of
from slopewise.adapters.pauses import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS
from slopewise.crds.conditions import timestamp
from slopewise.ports import Clock
from slopewise.tracking import TtlMap

BUDGETS_KEPT_SECONDS = 5.0
"""Two policies that pass at the same time read the budgets of a namespace once."""

KEPT_REFUSALS = 10_000

_ENDS_EARLY: Mapping[Cause, str] = {
    "budget": "a disruption budget of its namespace changes",
    "rule": "its Job or a label of its namespace changes",
}
"""By the cause of the refusal."""

Budgets = Mapping[str, tuple[object, ...]]
"""The fields of each disruption budget that decide on an eviction, by its name."""


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """The objects whose change ends a refusal early."""

    pod_labels: Mapping[str, str]
    namespace_labels: Mapping[str, str]
    job_generation: int
    budgets: Budgets | None
    """None: irrelevant, or unreadable."""

    def differ_from(self, earlier: _Surroundings) -> bool:
        """Whether anything that is known of both has changed."""
        budgets_known = self.budgets is not None and earlier.budgets is not None
        return (
            self.pod_labels != earlier.pod_labels
            or self.namespace_labels != earlier.namespace_labels
            or self.job_generation != earlier.job_generation
            or (budgets_known and self.budgets != earlier.budgets)
        )


@dataclass(frozen=True, slots=True)
class _Backoff:
    refused: Refused
    pause_seconds: float
    until_seconds: float
    surroundings: _Surroundings

    def until(self, joint: str) -> str:
        """The time of day, and after `joint` what ends it before that, for messages."""
        early = _ENDS_EARLY.get(self.refused.cause)
        return f"{timestamp(self.until_seconds):%H:%M:%S} UTC{f'{joint}{early}' if early else ''}"


@dataclass(slots=True)
class MoveBackoff:
    """The last refusal of each workload. One for all policies; safe from any thread."""

    api: Api
    jobs: Store[ObjectRecord]
    namespaces: Store[ObjectRecord] | None
    """None where they may not be read."""
    clock: Clock
    _known: dict[str, _Backoff] = field(default_factory=dict)
    """By the uid of the workload, whose pods move together."""
    _budgets: TtlMap[str, Budgets | None] = field(init=False)
    """Of each namespace."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._budgets = TtlMap(BUDGETS_KEPT_SECONDS, self.clock.monotonic)

    def note(self, managed: ManagedPod, refused: Refused) -> str:
        """Keep a refusal; returns its message, with the time of the next try where that is not the next pass."""
        if refused.cause == "moment":
            return refused.detail
        workload = managed.workload.uid
        surroundings = self._surroundings(managed, refused, fresh=True)
        with self._lock:
            pause = self._pause_seconds(self._known.pop(workload, None), refused)
            until = self.clock.now() + pause
            if len(self._known) >= KEPT_REFUSALS:
                del self._known[next(iter(self._known))]
            known = self._known[workload] = _Backoff(refused, pause, until, surroundings)
        return f"{refused.detail}; tried again at {known.until(', or when ')}"

    def reason(self, managed: ManagedPod) -> str | None:
        """Why no move of this pod's workload is begun now, and until when; None: no refusal is known."""
        known = self._known.get(managed.workload.uid)
        if known is None or self.clock.now() >= known.until_seconds:
            return None  # kept: the next failure in a row waits longer
        if self._surroundings(managed, known.refused).differ_from(known.surroundings):
            with self._lock:
                self._known.pop(managed.workload.uid, None)
            return None
        # The moment first: `kubectl get growth` shows 160 characters.
        return f"until {known.until(' or ')}: {known.refused.detail}"

    def _pause_seconds(self, before: _Backoff | None, refused: Refused) -> float:
        if refused.cause != "trouble":
            return MAX_BACKOFF_SECONDS
        in_a_row = (
            before is not None
            and before.refused.cause == "trouble"
            and self.clock.now() - before.until_seconds < before.pause_seconds + MAX_BACKOFF_SECONDS
        )
        return min(MAX_BACKOFF_SECONDS, 2 * before.pause_seconds) if before and in_a_row else FIRST_BACKOFF_SECONDS

    def _surroundings(self, managed: ManagedPod, refused: Refused, *, fresh: bool = False) -> _Surroundings:
        pod = managed.pod
        namespace = None if self.namespaces is None else self.namespaces.get("", pod.namespace)
        owner = pod.owner
        job = self.jobs.get(pod.namespace, owner.name) if owner is not None and owner.kind == "Job" else None
        return _Surroundings(
            pod_labels=pod.labels,
            namespace_labels=namespace.labels if namespace else {},
            job_generation=job.generation if job else 0,
            budgets=self._budgets_of(pod.namespace, fresh=fresh) if refused.cause == "budget" else None,
        )

    def _budgets_of(self, namespace: str, *, fresh: bool) -> Budgets | None:
        read = partial(self._read_budgets, namespace)
        return self._budgets.put(namespace, read()) if fresh else self._budgets.get(namespace, read)

    def _read_budgets(self, namespace: str) -> Budgets | None:
        try:
            found = self.api.get(path_of("policy/v1", "poddisruptionbudgets", namespace))
        except ApiError:
            return None
        return {each["metadata"]["name"]: _what_decides(each) for each in found["items"]}


def _what_decides(budget: Json) -> tuple[object, ...]:
    meta, status = budget["metadata"], budget.get("status") or {}
    return meta.get("uid"), meta.get("generation"), status.get("observedGeneration"), status.get("disruptionsAllowed")
