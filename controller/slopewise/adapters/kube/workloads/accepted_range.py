"""The range of targets of a resize that Kubernetes accepts. Pure.

Two rules of Kubernetes shape it: a limit is never below its request, and a resize never changes the QoS class. Worked
example: request 500m, limit 2, memory 1Gi for both, `lowerRequests: false`: the limit may go down to 501m, because at
500m the pod would become Guaranteed.
"""

from __future__ import annotations

from slopewise.adapters.kube.workloads.eligibility import Case
from slopewise.model import AcceptedRange


def accepted_range(case: Case) -> AcceptedRange:
    """The targets that the API server accepts, in the controlled dimension."""
    if case.guaranteed:
        return _guaranteed_range(case)
    return _limits_range(case) if case.by_limits else _requests_range(case)


def _guaranteed_range(case: Case) -> AcceptedRange:
    """Request and limit move together: below the original and back, never above the reserved amount.

    A job with accelerators may reserve more, as far as its node has room (`node_capacity`), unless Kueue admitted it.
    """
    if case.by_accelerators and not case.queued:
        return AcceptedRange(1)
    most = case.original.request_millicores
    return AcceptedRange(1, most, f"it is Guaranteed and reserved {most}m")


def _limits_range(case: Case) -> AcceptedRange:
    """A limit may rise freely, and fall to its request, or lower where the request may follow."""
    request = case.container.desired.request_millicores
    apart = case.must_stay_burstable
    if case.settings.lower_requests:
        # At a limit of 1m the request would have to be 0 to stay apart, and a request cannot be taken away.
        return AcceptedRange(2 if apart else 1, None, "its QoS class must stay Burstable" if apart else "")
    remedy = "spec.resources.lowerRequests: true allows less"
    if apart:
        return AcceptedRange(request + 1, None, f"request {request}m, and it must stay Burstable; {remedy}")
    return AcceptedRange(max(1, request), None, f"request {request}m; {remedy}")


def _requests_range(case: Case) -> AcceptedRange:
    """A request may rise to its limit. Kueue does not account for resizes, so its admitted amount is the bound."""
    limit = case.container.desired.limit_millicores
    bounds: list[tuple[int, str]] = []
    if limit is not None:
        apart = case.must_stay_burstable
        reason = f"limit {limit}m, and it must stay Burstable" if apart else f"limit {limit}m"
        bounds.append((limit - apart, reason))
    if case.queued:
        admitted = case.original.request_millicores
        bounds.append((admitted, f"Kueue admitted it with {admitted}m"))
    most, reason = min(bounds, default=(None, ""))
    least = max(1, case.init_millicores)
    if least > 1:
        reason = "; ".join(filter(None, (reason, f"its init containers request {case.pod.start_millicores}m")))
    return AcceptedRange(least, most, reason)
