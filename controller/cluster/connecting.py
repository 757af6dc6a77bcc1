"""How a command reaches a cluster: the API server that its options name, and the election of the one that may write.

Before it: `options.py`. After it: `process.py` (the controller) and `restore.py`, which take part in the same election.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from controller.adapters.kube.api import KubeApi, OnRequest
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Json
from controller.adapters.kube.election import Elector, Terms
from controller.cluster.options import Connection

LEASE_NAME = "slopewise-controller"
CLOCKS_DIFFER_SECONDS = 60.0
"""Between this machine and the one that renews a lease; one that was renewed longer ago than that has been left."""


def connect(connection: Connection, on_request: OnRequest = lambda *_: None) -> KubeApi:
    """A client of this API server; UsageError where the kubeconfig cannot be used. Nothing is sent yet."""
    return KubeApi.connect(
        kubeconfig=None if connection.kubeconfig is None else str(connection.kubeconfig),
        context=connection.context,
        timeout_seconds=connection.timeout_seconds,
        on_request=on_request,
    )


def make_elector(
    api: KubeApi,
    connection: Connection,
    namespace: str,
    identity: str,
    terms: Terms,
    *,
    on_started_leading: Callable[[], None] = lambda: None,
    on_lost: Callable[[str], None] = lambda reason: None,
) -> Elector:
    """A candidate for the controllers' Lease in `namespace`; it asks for nothing before it is started."""
    # A renewal that hangs must end while there is time for another one.
    impatient = api.with_timeout(min(connection.timeout_seconds, terms.renew_deadline_seconds / 3))
    return Elector(
        impatient,
        namespace,
        LEASE_NAME,
        identity,
        terms=terms,
        on_started_leading=on_started_leading,
        on_lost=on_lost,
    )


def other_leaders(api: KubeApi, own_namespace: str | None = None) -> dict[str, str]:
    """Who leads another installation in this cluster, by the namespace of its lease; none where leases may not be read.

    A controller with rights in the whole cluster takes the JobGrowths of every other one for what a deleted policy has
    left, and gives back what it has changed.
    """
    leases: list[Json] = []
    with suppress(ApiError):
        params = {"fieldSelector": f"metadata.name={LEASE_NAME}"}
        leases = api.get("/apis/coordination.k8s.io/v1/leases", params)["items"]
    held = {lease["metadata"]["namespace"]: lease.get("spec") or {} for lease in leases}
    return {
        namespace: str(spec["holderIdentity"])
        for namespace, spec in held.items()
        if namespace != own_namespace and spec.get("holderIdentity") and _is_renewed(spec)
    }


def _is_renewed(spec: Json) -> bool:
    if not (renewed := spec.get("renewTime")):
        return False
    age_seconds = (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds()
    return age_seconds <= float(spec.get("leaseDurationSeconds") or 0) + CLOCKS_DIFFER_SECONDS
