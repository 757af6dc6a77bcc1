"""What the API server means when it does not carry a resize out: an outcome, and a sentence with the next step.

Before it: an `ApiError` of `api.py`. After it: `actuator.py`, which makes an Outcome of it and remembers how long it
would be in vain to ask again. One status has many meanings (403 has six), so words and causes decide; they are those of
Kubernetes 1.36.3, and `tests/cluster/test_actuator.py` asks a real API server for each that can be had.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.records import ManagedPod
from controller.model import CpuAllocation, OutcomeResult
from controller.ports import Clock

NEXT_PASS = 0.0
UNTIL_THE_TARGET_CHANGES = math.inf
A_WHILE_SECONDS = 300.0
"""Quotas, ranges and policies change when somebody changes them; asking in every pass would only fill their logs."""

KEPT_REFUSALS = 10_000
"""Refusals that are remembered; jobs come and go, and nobody says goodbye."""

POD_GONE = "its pod is gone; there is nothing to resize"
POD_REPLACED = "its pod was replaced; the new one is decided on in the next pass"

_LIMIT_RANGE = re.compile(r"(maximum|minimum) cpu usage per |cpu max limit to request ratio per ")
_QUOTA = re.compile(r"(exceeded|failed) quota")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What became of a resize that was not carried out."""

    result: OutcomeResult
    detail: str
    in_vain_seconds: float = NEXT_PASS
    """For how long the same resize of the same pod need not be asked for again."""
    gone: bool = False
    """The pod is no more, or another has its name."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """Which resize of which pod was refused, and until when asking for it again is in vain."""

    pod_uid: str
    has: CpuAllocation
    wanted: CpuAllocation
    until_seconds: float
    refusal: Refusal


class InVain:
    """The last refusal of each job, as long as the very same resize would be refused again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[str, _Refused] = {}

    def remember(self, managed: ManagedPod, wanted: CpuAllocation, refusal: Refusal) -> None:
        """The API server's answer to a resize; one that is worth another try at once is not kept."""
        if refusal.in_vain_seconds <= 0:
            return
        if len(self._refused) >= KEPT_REFUSALS:
            del self._refused[next(iter(self._refused))]
        until = self._clock.monotonic() + refusal.in_vain_seconds
        self._refused[managed.job_uid] = _Refused(managed.pod.uid, managed.container.wished, wanted, until, refusal)

    def find(self, managed: ManagedPod, wanted: CpuAllocation) -> Refusal | None:
        """What was said of the very same resize of the very same pod, as long as it holds."""
        known = self._refused.get(managed.job_uid)
        if known is None:
            return None
        same = (known.pod_uid, known.has, known.wanted) == (managed.pod.uid, managed.container.wished, wanted)
        if same and self._clock.monotonic() < known.until_seconds:
            return known.refusal
        del self._refused[managed.job_uid]
        return None


def meaning(error: ApiError) -> Refusal:
    """What an ApiError of a resize means. A conflict, and a write that may have been done, are not for here."""
    said = error.message
    for applies, tell in _MEANINGS:
        if applies(error):
            return tell(said, error)
    return Refusal("failed", f"the API server did not carry it out ({said}); tried again in the next pass")


def _because(result: OutcomeResult, what: str, remedy: str, in_vain_seconds: float) -> Callable[..., Refusal]:
    """The remedy before the API server's own words: a column of `kubectl get growth` shows 160 characters."""
    return lambda said, error: Refusal(result, f"{what}; {remedy} ({said})", in_vain_seconds)


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
        lambda e: e.is_denied,
        lambda said, error: Refusal("infeasible", error.denial, A_WHILE_SECONDS),
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
        ),
    ),
    (
        lambda e: e.is_forbidden and _LIMIT_RANGE.search(e.message) is not None,
        _because(
            "infeasible",
            "the LimitRange of its namespace does not allow it",
            "bring resources.cpu within its range, or change the range",
            A_WHILE_SECONDS,
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
