"""What a refusal means: the words are Kubernetes 1.36.3's own, as `tests/cluster/test_actuator.py` hears them."""

from __future__ import annotations

import math

import pytest

from controller.adapters.kube.api_error import ApiError, Cause
from controller.adapters.kube.refusals import meaning

FORBIDDEN = 'pods "p" is forbidden: '
INVALID = 'Pod "p" is invalid: '


@pytest.mark.parametrize(
    ("status", "message", "result", "remedy", "in_vain"),
    [
        (
            403,
            FORBIDDEN + 'User "system:serviceaccount:n:a" cannot patch resource "pods/resize" in API group ""',
            "failed",
            "grant it patch on pods/resize",
            0,
        ),
        (
            403,
            FORBIDDEN + "exceeded quota: q, requested: limits.cpu=2500m, used: limits.cpu=1, limited: limits.cpu=2",
            "deferred",
            "raise the quota, or wait until other pods have ended",
            300,
        ),
        (
            403,
            FORBIDDEN + "maximum cpu usage per Container is 600m, but limit is 700m",
            "infeasible",
            "change the range",
            300,
        ),
        (
            403,
            FORBIDDEN + "minimum cpu usage per Pod is 20m, but request is 10m",
            "infeasible",
            "change the range",
            300,
        ),
        (
            403,
            FORBIDDEN + "cpu max limit to request ratio per Container is 2, but provided ratio is 4.0",
            "infeasible",
            "change the range",
            300,
        ),
        (
            403,
            FORBIDDEN + "node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 1000",
            "infeasible",
            "run it on a larger node",
            math.inf,
        ),
        (403, FORBIDDEN + "not yet ready to handle request", "failed", "tried again in the next pass", 0),
        (
            422,
            FORBIDDEN + "ValidatingAdmissionPolicy 'cpu' with binding 'cpu' denied request: CPU only",
            "infeasible",
            "allow it there for our account",
            300,
        ),
        (400, 'admission webhook "w" denied the request: no', "infeasible", "allow it there for our account", 300),
        (
            422,
            INVALID + "spec: Forbidden: Pod running on node without support for resize",
            "infeasible",
            "kubelet",
            math.inf,
        ),
        (
            422,
            INVALID + 'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
            "infeasible",
            "when the target changes",
            math.inf,
        ),
        (404, 'pods "p" not found', "failed", "its pod is gone", 0),
        (404, "the server could not find the requested resource", "infeasible", "Kubernetes 1.33 or later", 300),
        (401, "Unauthorized", "failed", "renew its token", 0),
        (500, "etcdserver: request timed out", "failed", "tried again in the next pass", 0),
        (0, "connection refused", "failed", "tried again in the next pass", 0),
    ],
)
def test_each_refusal_has_its_outcome_and_the_next_step(
    status: int, message: str, result: str, remedy: str, in_vain: float
) -> None:
    refusal = meaning(ApiError(status, "", message))
    assert (refusal.result, refusal.in_vain_seconds) == (result, in_vain)
    assert remedy in refusal.detail


def test_a_node_that_is_too_small_is_known_by_its_cause_whatever_the_words() -> None:
    error = ApiError(403, "Forbidden", "no", causes=(Cause("NodeCapacity", "", ""),))
    assert meaning(error).detail.startswith("its node is too small; lower ")


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    cause = Cause("FieldValueInvalid", 'Invalid value: "u": field is immutable', "metadata.uid")
    error = ApiError(422, "Invalid", INVALID + 'metadata.uid: Invalid value: "u"', causes=(cause,))
    assert meaning(error).detail == "its pod was replaced; the new one is decided on in the next pass"


@pytest.mark.parametrize(("asked_for", "seconds"), [(7.0, 7.0), (None, 0.0)])
def test_a_server_that_is_busy_says_when_to_come_back(asked_for: float | None, seconds: float) -> None:
    refusal = meaning(ApiError(429, "TooManyRequests", "too many", retry_after_seconds=asked_for))
    assert (refusal.result, refusal.in_vain_seconds) == ("deferred", seconds)
