"""What the API server means when it does not carry a resize out: an outcome, and a sentence with the next step.

Before it: an `ApiError` of `api.py`. After it: `actuator.py`, which makes an Outcome of it and remembers how long it
would be in vain to ask again. One status has many meanings (403 has six), so words and causes decide; they are those of
Kubernetes 1.36.3, and `tests/cluster/test_actuator.py` asks a real API server for each that can be had.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import get_args

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.namespace_limits import ChangesOf, LimitKind, unknown_changes
from controller.adapters.kube.records import ManagedPod
from controller.model import CpuAllocation, OutcomeResult
from controller.ports import Clock

NEXT_PASS = 0.0
UNTIL_THE_TARGET_CHANGES = math.inf
A_WHILE_SECONDS = 300.0
"""Quotas, ranges and policies change when somebody changes them; asking in every pass would only fill their logs."""

FIRST_AGAIN_SECONDS = 30.0
"""What is not watched, such as a webhook, is asked again after so long, twice that, … up to `A_WHILE_SECONDS`."""

_KINDS: Mapping[LimitKind, str] = {"limitranges": "LimitRange", "resourcequotas": "ResourceQuota"}
Changes = Mapping[LimitKind, int | None]

KEPT_REFUSALS = 10_000
"""Refusals that are remembered; jobs come and go, and nobody says goodbye."""

POD_GONE = "its pod is gone; there is nothing to resize"
POD_REPLACED = "its pod was replaced; the new one is decided on in the next pass"

_LIMIT_RANGE = re.compile(r"(maximum|minimum) cpu usage per |cpu max limit to request ratio per ")
_WEBHOOK = re.compile(r"admission webhook \S+ denied the request")
_DENIED = re.compile(r"denied (the )?request")
_QUOTA = re.compile(r"(exceeded|failed) quota")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What became of a resize that was not carried out."""

    result: OutcomeResult
    what: str
    """In words, with the next step."""
    in_vain_seconds: float = NEXT_PASS
    """For how long the same resize of the same pod need not be asked for again."""
    gone: bool = False
    """The pod is no more, or another has its name."""
    refused_by: LimitKind | None = None
    """What of its namespace has to change before the answer can be another."""
    said: str = ""
    """The API server's own words."""
    again: str = ""
    """When it is asked again, in words; empty: `what` says so, or the next pass does."""

    @property
    def detail(self) -> str:
        """All of it, what matters most first: a column of `kubectl get growth` shows 160 characters."""
        return "; ".join(each for each in (self.what, self.again) if each) + (f" ({self.said})" if self.said else "")


@dataclass(frozen=True, slots=True)
class _Refused:
    """Which resize of which pod was refused, how often, and until when asking for it again is in vain."""

    same: tuple[str, CpuAllocation, CpuAllocation]
    """The pod's uid, what it had, what was wanted."""
    until_seconds: float
    refusal: Refusal
    namespace: str
    changes: int | None
    """Of what refused it, just before it was asked for."""
    times: int = 1


class InVain:
    """The last refusal of each job, as long as the very same resize would be refused again."""

    def __init__(self, clock: Clock, changes_of: ChangesOf = unknown_changes) -> None:
        """`changes_of`: how often the LimitRanges or ResourceQuotas of a namespace have changed."""
        self._clock = clock
        self._changes_of = changes_of
        self._refused: dict[str, _Refused] = {}

    def changes(self, namespace: str) -> Changes:
        """To be taken just before a resize is asked for: what changes while it is under way may have let it through."""
        return {kind: self._changes_of(kind, namespace) for kind in get_args(LimitKind)}

    def remember(self, managed: ManagedPod, wanted: CpuAllocation, refusal: Refusal, before: Changes) -> Refusal:
        """The API server's answer to a resize, with the time at which it is asked for again.

        One that is worth another try at once is not kept.
        """
        if refusal.in_vain_seconds <= 0:
            return refusal
        same, former = _same(managed, wanted), self._refused.pop(managed.job_uid, None)
        times = former.times + 1 if former is not None and former.same == same else 1
        changes = before.get(refusal.refused_by) if refusal.refused_by is not None else None
        seconds = refusal.in_vain_seconds
        if changes is None and seconds == A_WHILE_SECONDS:
            seconds = min(FIRST_AGAIN_SECONDS * 2.0 ** (times - 1), A_WHILE_SECONDS)
        kept = replace(refusal, again=self._again(managed, refusal, seconds, watched=changes is not None))
        if len(self._refused) >= KEPT_REFUSALS:
            del self._refused[next(iter(self._refused))]
        until = self._clock.monotonic() + seconds
        self._refused[managed.job_uid] = _Refused(same, until, kept, managed.pod.namespace, changes, times)
        return kept

    def find(self, managed: ManagedPod, wanted: CpuAllocation) -> Refusal | None:
        """What was said of the very same resize of the very same pod, as long as it holds."""
        known = self._refused.get(managed.job_uid)
        if known is None or known.same != _same(managed, wanted):
            return None
        holds = self._clock.monotonic() < known.until_seconds and not self._has_changed(known)
        return known.refusal if holds else None

    def waits_for(self, kind: LimitKind, namespace: str) -> bool:
        """Whether something that these have refused is to be asked for again."""
        known = list(self._refused.values())
        return any(each.namespace == namespace and each.refusal.refused_by == kind for each in known)

    def _has_changed(self, known: _Refused) -> bool:
        if known.refusal.refused_by is None or known.changes is None:
            return False
        return self._changes_of(known.refusal.refused_by, known.namespace) != known.changes

    def _again(self, managed: ManagedPod, refusal: Refusal, seconds: float, *, watched: bool) -> str:
        """At a time and not in so many seconds: the text stands in a status that is written once."""
        if not math.isfinite(seconds):
            return ""
        at = datetime.fromtimestamp(self._clock.now() + seconds, UTC).strftime("%H:%M:%S UTC")
        if refusal.refused_by is None or not watched:
            return f"asked again at {at}"
        return f"asked again at {at}, or when a {_KINDS[refusal.refused_by]} of {managed.pod.namespace} changes"


def _same(managed: ManagedPod, wanted: CpuAllocation) -> tuple[str, CpuAllocation, CpuAllocation]:
    return managed.pod.uid, managed.container.wished, wanted


def meaning(error: ApiError) -> Refusal:
    """What an ApiError of a resize means. A conflict, and a write that may have been done, are not for here."""
    said = error.message
    for applies, tell in _MEANINGS:
        if applies(error):
            return tell(said, error)
    return Refusal("failed", f"the API server did not carry it out ({said}); tried again in the next pass")


def _because(
    result: OutcomeResult, what: str, remedy: str, in_vain_seconds: float, refused_by: LimitKind | None = None
) -> Callable[..., Refusal]:
    """The remedy before the API server's own words."""
    return lambda said, error: Refusal(result, f"{what}; {remedy}", in_vain_seconds, refused_by=refused_by, said=said)


def _throttled(said: str, error: ApiError) -> Refusal:
    seconds = error.retry_after_seconds or 0.0
    return Refusal("deferred", f"the API server has too much to do; asked again after {seconds:.0f} s", seconds)


def _has_cause(error: ApiError, reason: str, field: str = "") -> bool:
    return any(cause.reason == reason and (not field or cause.field == field) for cause in error.causes)


def _is_replaced(error: ApiError) -> bool:
    """Without a resourceVersion that is newer too, another uid is told as an immutable field."""
    return error.is_invalid and _has_cause(error, "FieldValueInvalid", "metadata.uid")


def _is_node_capacity(error: ApiError) -> bool:
    return _has_cause(error, "NodeCapacity") or "have enough allocatable resources" in error.message


_MEANINGS: tuple[tuple[Callable[[ApiError], bool], Callable[..., Refusal]], ...] = (
    (lambda e: e.is_throttled, _throttled),
    (
        lambda e: e.is_gone and "not found" in e.message,
        lambda said, error: Refusal("failed", POD_GONE, gone=True),
    ),
    (
        lambda e: e.is_gone or e.status == 405,
        _because(
            "infeasible", "this API server cannot resize pods", "update it to Kubernetes 1.33 or later", A_WHILE_SECONDS
        ),
    ),
    (
        _is_replaced,
        lambda said, error: Refusal("failed", POD_REPLACED, gone=True),
    ),
    (
        lambda e: _WEBHOOK.search(e.message) is not None,
        _because("infeasible", "an admission webhook denies it", "allow it there for our account", A_WHILE_SECONDS),
    ),
    (
        lambda e: _DENIED.search(e.message) is not None,
        _because("infeasible", "an admission policy denies it", "allow it there for our account", A_WHILE_SECONDS),
    ),
    (
        lambda e: e.is_forbidden and _is_node_capacity(e),
        _because(
            "infeasible",
            "its node is too small",
            "lower resources.cpu.max, or run it on a larger node",
            UNTIL_THE_TARGET_CHANGES,
        ),
    ),
    (
        lambda e: e.is_forbidden and _QUOTA.search(e.message) is not None,
        _because(
            "deferred",
            "the ResourceQuota of its namespace has no room",
            "raise the quota, or wait until other pods have ended",
            A_WHILE_SECONDS,
            "resourcequotas",
        ),
    ),
    (
        lambda e: e.is_forbidden and _LIMIT_RANGE.search(e.message) is not None,
        _because(
            "infeasible",
            "the LimitRange of its namespace does not allow it",
            "bring resources.cpu within its range, or change the range",
            A_WHILE_SECONDS,
            "limitranges",
        ),
    ),
    (
        lambda e: e.is_forbidden and "not yet ready to handle request" in e.message,
        _because("failed", "the API server is still starting", "tried again in the next pass", NEXT_PASS),
    ),
    (
        lambda e: e.is_forbidden,
        _because("failed", "our account may not resize it", "grant it patch on pods/resize", NEXT_PASS),
    ),
    (
        lambda e: e.status == 401,
        _because("failed", "the API server does not know our account", "renew its token", NEXT_PASS),
    ),
    (
        lambda e: e.is_invalid and "without support for resize" in e.message,
        _because(
            "infeasible",
            "its node does not support resizing",
            "update its kubelet to 1.33 or later, and its runtime to one that tells resources",
            UNTIL_THE_TARGET_CHANGES,
        ),
    ),
    (
        lambda e: e.is_invalid or e.status == 400,
        _because(
            "infeasible",
            "Kubernetes does not take this target",
            "asked again when the target changes",
            UNTIL_THE_TARGET_CHANGES,
        ),
    ),
)
