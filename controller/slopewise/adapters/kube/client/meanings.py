"""Explains refusals of the API server: an outcome, and a message with the next step.

One ordered table covers all requests. One status has many meanings (403 has six for a resize alone), so messages and
causes decide too. They are those of Kubernetes 1.36.3; `tests/cluster/test_actuator.py` provokes them on a real API
server where it can.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import COMPONENT
from slopewise.adapters.pauses import MAX_BACKOFF_SECONDS
from slopewise.model import OutcomeResult

Verb = Literal["resize", "evict", "suspend", "release", "list budgets", "read owner"]
"""The request: `release` removes a scheduling gate, `suspend` includes the read of the Job."""

Cause = Literal["moment", "budget", "rule", "trouble"]
"""What has to change before the same request may succeed: `moment`, nothing that outlasts a pass; `budget`, a
disruption budget; `rule`, a right, an admission policy or the Job itself; `trouble`, an error of the API server."""

NEXT_PASS = 0.0
UNTIL_THE_TARGET_CHANGES = math.inf
A_WHILE_SECONDS = MAX_BACKOFF_SECONDS
"""Quotas, ranges and policies change when a person changes them; a retry in every pass would only fill their logs."""

POD_GONE = "its pod is gone; there is nothing to resize"
POD_REPLACED = "its pod was replaced; the new one is decided on in the next pass"

_NOT_RESIZED = "the API server did not carry it out ({}); tried again in the next pass"
_NOT_RELEASED = "not known whether its gate is off ({}); checked again soon"


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that was not carried out, not granted, or whose result is unknown."""

    result: OutcomeResult
    what: str
    """A message with the next step."""
    cause: Cause = "moment"
    maybe_done: bool = False
    gone: bool = False
    """The object is deleted or replaced: the purpose of an eviction is fulfilled."""
    refused_for_seconds: float = NEXT_PASS
    """For how long the same resize of the same pod is not requested again."""
    answer: str = ""
    """The API server's message."""
    retry: str = ""
    """When it is retried; empty: `what` says so, or the next pass retries."""

    @property
    def detail(self) -> str:
        """The whole message, most important first: a column of `kubectl get growth` shows 160 characters."""
        return "; ".join(each for each in (self.what, self.retry) if each) + (
            f" ({self.answer})" if self.answer else ""
        )


def explain(error: ApiError, verb: Verb) -> Refused:
    """The meaning of an error for `verb`; a conflict arrives here only after `retry.update` has given up.

    The caller checks before whether a write that may have been carried out was.
    """
    return next(meaning(error) for verbs, applies, meaning in _MEANINGS if verb in verbs and applies(error))


def _plain(result: OutcomeResult, what: str, **more: Any) -> Callable[[ApiError], Refused]:
    return lambda error: Refused(result, what, **more)


def _quoted(result: OutcomeResult, what: str, **more: Any) -> Callable[[ApiError], Refused]:
    """With the API server's message appended."""
    return lambda error: Refused(result, what, answer=error.message, **more)


def _has_cause(error: ApiError, reason: str, field: str = "") -> bool:
    return any(cause.reason == reason and (not field or cause.field == field) for cause in error.causes)


def _anything(error: ApiError) -> bool:
    return True


def _malformed(error: ApiError) -> bool:
    return error.is_invalid or error.status == 400


def _forbidden_by(pattern: str) -> Callable[[ApiError], bool]:
    """`pattern`: a regular expression that the message contains."""
    return lambda error: error.is_forbidden and re.search(pattern, error.message) is not None


def _replaced(error: ApiError) -> bool:
    """Without a newer resourceVersion, the API server reports another uid as an immutable field."""
    return error.is_invalid and _has_cause(error, "FieldValueInvalid", "metadata.uid")


def _resize_throttled(error: ApiError) -> Refused:
    seconds = error.retry_after_seconds or 0.0
    what = f"the API server has too much to do; tried again after {seconds:.0f} s"
    return Refused("deferred", what, refused_for_seconds=seconds)


def _over_budget(error: ApiError) -> Refused:
    budget = next(cause.message for cause in error.causes if cause.reason == "DisruptionBudget")
    return Refused("deferred", f"a disruption budget says no: {budget}", "budget")


def _denied(error: ApiError) -> Refused:
    what, answer = error.denial_and_answer
    return Refused("infeasible", what, "rule", refused_for_seconds=A_WHILE_SECONDS, answer=answer)


def _eviction_in_doubt(error: ApiError) -> Refused:
    what = "the eviction was not answered well"
    return Refused("failed", what, "trouble", maybe_done=error.maybe_done, answer=error.message)


_GONE, _CONFLICT, _THROTTLED, _DENIED, _FORBIDDEN = (
    attrgetter(name) for name in ("is_not_found", "is_conflict", "is_throttled", "is_denied", "is_forbidden")
)
_TOO_SMALL = _quoted(
    "infeasible",
    "its node is too small; lower resources.cpu.max, or run it on a larger node",
    refused_for_seconds=UNTIL_THE_TARGET_CHANGES,
)

_MEANINGS: tuple[tuple[Container[Verb], Callable[[ApiError], bool], Callable[[ApiError], Refused]], ...] = (
    (("resize",), _THROTTLED, _resize_throttled),
    (("resize",), lambda e: e.is_not_found and "not found" in e.message, _plain("failed", POD_GONE, gone=True)),
    (("resize",), _replaced, _plain("failed", POD_REPLACED, gone=True)),
    (
        ("evict",),
        lambda e: e.is_not_found or e.is_conflict,
        _plain("failed", "its pod is gone, or another one has its name", gone=True),
    ),
    (("suspend",), _GONE, _plain("failed", "its Job is gone", gone=True)),
    (("release",), _GONE, _plain("failed", "its pod is gone", gone=True)),
    (("read owner",), _GONE, _plain("failed", "is not there")),
    (
        ("resize",),
        _CONFLICT,
        _plain("failed", "its pod changes faster than it can be read; tried again in the next pass"),
    ),
    (("suspend",), _CONFLICT, _plain("deferred", "its Job changes faster than it can be read; tried in the next pass")),
    (("release",), _CONFLICT, _plain("failed", "it changes faster than it can be read; tried again soon")),
    (("evict",), lambda e: e.is_throttled and _has_cause(e, "DisruptionBudget"), _over_budget),
    (("evict",), _THROTTLED, _quoted("deferred", "the API server does not evict it now", cause="trouble")),
    (("suspend",), _THROTTLED, _quoted("deferred", "the API server has too much to do", cause="trouble")),
    (
        ("evict",),
        lambda e: "more than one PodDisruptionBudget" in e.message,
        _plain(
            "infeasible",
            "several PodDisruptionBudgets select its pod, and Kubernetes asks only one; leave one",
            cause="budget",
        ),
    ),
    (("resize", "evict", "suspend", "release"), _DENIED, _denied),
    (("resize",), lambda e: e.is_forbidden and _has_cause(e, "NodeCapacity"), _TOO_SMALL),
    (("resize",), _forbidden_by("have enough allocatable resources"), _TOO_SMALL),
    (
        ("resize",),
        _forbidden_by("(exceeded|failed) quota"),
        _quoted(
            "deferred",
            "the ResourceQuota of its namespace has no room; raise the quota, or wait until other pods have ended",
            refused_for_seconds=A_WHILE_SECONDS,
        ),
    ),
    (
        ("resize",),
        _forbidden_by("(maximum|minimum) cpu usage per |cpu max limit to request ratio per "),
        _quoted(
            "infeasible",
            "the LimitRange of its namespace does not allow it; "
            "bring resources.cpu within its range, or change the range",
            refused_for_seconds=A_WHILE_SECONDS,
        ),
    ),
    (
        ("resize",),
        _forbidden_by("requires features .* not available on node"),
        _quoted(
            "infeasible",
            "its kubelet does not declare that it resizes such pods; "
            "make the limit of a Guaranteed one larger than its request, or update its kubelet",
            refused_for_seconds=A_WHILE_SECONDS,
        ),
    ),
    (
        ("resize",),
        _forbidden_by("not yet ready to handle request"),
        _quoted("failed", "the API server is still starting; tried again in the next pass"),
    ),
    (("resize",), _FORBIDDEN, _quoted("failed", "our account may not resize it; grant it patch on pods/resize")),
    (("evict",), _FORBIDDEN, _quoted("infeasible", f"our account may not evict its pod; {COMPONENT}", cause="rule")),
    (("suspend",), _FORBIDDEN, _quoted("infeasible", f"our account may not suspend Jobs; {COMPONENT}", cause="rule")),
    (("release",), _FORBIDDEN, _quoted("infeasible", f"our account may not open its gate; {COMPONENT}", cause="rule")),
    (
        ("list budgets",),
        _FORBIDDEN,
        _plain("infeasible", f"our account may not read PodDisruptionBudgets; {COMPONENT}", cause="rule"),
    ),
    (("read owner",), _FORBIDDEN, _plain("infeasible", f"may not be read; {COMPONENT}", cause="rule")),
    (
        ("resize",),
        lambda e: e.status == 401,
        _quoted("failed", "the API server does not know our account; renew its token"),
    ),
    (
        ("resize",),
        _malformed,
        _quoted(
            "infeasible",
            "Kubernetes does not take this target; tried again when the target changes",
            refused_for_seconds=UNTIL_THE_TARGET_CHANGES,
        ),
    ),
    (("evict",), _malformed, _quoted("infeasible", "Kubernetes does not take the eviction", cause="rule")),
    (("suspend", "release"), _malformed, _quoted("infeasible", "Kubernetes does not take it", cause="rule")),
    (("release",), _THROTTLED, _quoted("deferred", "the API server has too much to do", cause="trouble")),
    (("resize",), _anything, lambda e: Refused("failed", _NOT_RESIZED.format(e.message))),
    (("evict",), _anything, _eviction_in_doubt),
    (("suspend",), _anything, _quoted("failed", "the API server did not carry it out", cause="trouble")),
    (("release",), _anything, lambda e: Refused("failed", _NOT_RELEASED.format(e.message), "trouble")),
    (("list budgets",), _anything, _quoted("failed", "its PodDisruptionBudgets cannot be read", cause="trouble")),
    (("read owner",), _anything, lambda e: Refused("failed", f"could not be read: {e}", "trouble")),
)
"""The first entry that applies to the verb and the error counts."""
