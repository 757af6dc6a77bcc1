"""What a refusal means: the words are Kubernetes 1.36.3's own, as `tests/cluster/test_actuator.py` receives them."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from support.managed_pods import a_managed_pod
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.records import Resources
from slopewise.adapters.kube.client.errors import ApiError, Cause
from slopewise.adapters.kube.client.meanings import Refused, Verb, explain
from slopewise.adapters.kube.resize.api_refusals import RefusalCache
from slopewise.model import CpuAllocation, MemoryAllocation

FORBIDDEN = 'pods "p" is forbidden: '
INVALID = 'Pod "p" is invalid: '


NO_RIGHT = 'User "system:serviceaccount:n:a" cannot patch resource "pods/resize" in API group ""'
NO_QUOTA = "exceeded quota: q, requested: limits.cpu=2500m, used: limits.cpu=1, limited: limits.cpu=2"
NO_ROOM = "node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 1000"
BY_POLICY = "ValidatingAdmissionPolicy 'cpu' with binding 'cpu' denied request: CPU only"
RATIO = "cpu max limit to request ratio per Container is 2, but provided ratio is 4.0"
NOT_DECLARED = 'pod update requires features GuaranteedQoSPodCPUResize which are not available on node "n"'
QOS = 'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'


@pytest.mark.parametrize(
    ("status", "message", "result", "remedy", "in_vain"),
    [
        (403, FORBIDDEN + NO_RIGHT, "failed", "grant it patch on pods/resize", 0),
        (403, FORBIDDEN + NO_QUOTA, "deferred", "raise the quota, or wait until other pods have ended", 300),
        (403, FORBIDDEN + "maximum cpu usage per Container is 600m", "infeasible", "change the range", 300),
        (403, FORBIDDEN + RATIO, "infeasible", "change the range", 300),
        (403, FORBIDDEN + NO_ROOM, "infeasible", "run it on a larger node", math.inf),
        (403, FORBIDDEN + "not yet ready to handle request", "failed", "tried again in the next pass", 0),
        (403, FORBIDDEN + NOT_DECLARED, "infeasible", "make the limit of a Guaranteed one larger", 300),
        (422, FORBIDDEN + BY_POLICY, "infeasible", "allow it there for our account", 300),
        (400, 'admission webhook "w" denied the request: no', "infeasible", "an admission webhook denies it", 300),
        (422, INVALID + QOS, "infeasible", "when the target changes", math.inf),
        (404, 'pods "p" not found', "failed", "its pod is gone", 0),
        (401, "Unauthorized", "failed", "renew its token", 0),
        (0, "connection refused", "failed", "tried again in the next pass", 0),
    ],
)
def test_each_refusal_has_an_outcome(status: int, message: str, result: str, remedy: str, in_vain: float) -> None:
    refusal = explain(ApiError(status, "", message), "resize")
    assert (refusal.result, refusal.refused_for_seconds) == (result, in_vain)
    assert remedy in refusal.detail


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ApiError(403, "Forbidden", "no", causes=(Cause("NodeCapacity", "", ""),)), "its node is too small; lower "),
        (
            ApiError(422, "Invalid", INVALID, causes=(Cause("FieldValueInvalid", "immutable", "metadata.uid"),)),
            "its pod was replaced; the new one is decided on in the next pass",
        ),
    ],
)
def test_a_node_that_is_too_small_and_another_pod_are_known_by_the_cause(error: ApiError, expected: str) -> None:
    assert explain(error, "resize").detail.startswith(expected)


POD = a_managed_pod()
WANTED = Resources(CpuAllocation(3000, 500), POD.container.memory)
QUOTA = ApiError(403, "Forbidden", FORBIDDEN + "exceeded quota: q")
WEBHOOK = ApiError(400, "BadRequest", 'admission webhook "w" denied the request: no')


class Refusing:
    """A namespace that refuses."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_767_268_800.0)  # 12:00:00 UTC
        self.in_vain = RefusalCache(self.clock)

    def refuse(self, error: ApiError) -> Refused:
        return self.in_vain.remember(POD, WANTED, explain(error, "resize"))

    def is_known(self) -> bool:
        return self.in_vain.find(POD, WANTED) is not None


@pytest.mark.parametrize(("asked_for", "seconds"), [(7.0, 7.0), (None, 0.0)])
def test_a_server_that_is_busy_is_left_alone_for_as_long_as_it_asks(asked_for: float | None, seconds: float) -> None:
    at = Refusing()
    refused = at.refuse(ApiError(429, "TooManyRequests", "too many", retry_after_seconds=asked_for))
    assert (refused.result, at.is_known()) == ("deferred", seconds > 0)
    at.clock.seconds += seconds
    assert not at.is_known()


@pytest.mark.parametrize("error", [WEBHOOK, QUOTA], ids=["webhook", "quota"])
def test_what_a_person_changes_is_asked_again_soon_and_then_less_and_less_often(error: ApiError) -> None:
    at = Refusing()
    waits: list[float] = []
    for _ in range(6):
        began, detail = at.clock.seconds, at.refuse(error).detail
        assert len(waits) > 0 or "; tried again at 12:00:30 UTC (" in detail
        while at.is_known():
            at.clock.seconds += 5
        waits.append(at.clock.seconds - began)
    assert waits == [30, 60, 120, 240, 300, 300]


def test_a_refusal_of_memory_does_not_make_one_of_cpu_be_asked_again_in_each_pass() -> None:
    at = Refusing()
    at.refuse(QUOTA)
    memory = Resources(POD.container.desired, MemoryAllocation(2**20, 2**21))
    at.in_vain.remember(POD, memory, explain(QUOTA, "resize"))
    assert at.is_known()
    assert at.in_vain.find(POD, memory) is not None


def test_what_waits_for_another_target_says_so_and_no_time() -> None:
    at = Refusing()
    refusal = at.refuse(ApiError(422, "Invalid", INVALID + "spec: no"))
    assert "tried again when the target changes (" in refusal.detail
    assert "UTC" not in refusal.detail
    at.clock.seconds += 1e6
    assert at.is_known()


@pytest.mark.parametrize("verb", get_args(Verb))
def test_an_answer_that_is_not_known_is_a_failure_whatever_was_asked(verb: Verb) -> None:
    refused = explain(ApiError(418, "", "short and stout"), verb)
    assert refused.result == "failed"
    assert "short and stout" in refused.detail
