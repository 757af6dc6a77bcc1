"""Connects a command to a cluster: a client of its API server, and a candidate for the controllers' Lease.

`manager/replica.py` and `restore_all.py` take part in the same election.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from slopewise.adapters.kube.client.client import KubeApi, OnRequest
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Json
from slopewise.adapters.kube.leader_election import Elector, Terms
from slopewise.manager.options import Connection

LEASE_NAME = "slopewise-controller"
CLOCKS_DIFFER_SECONDS = 60.0
"""Between this machine and the one that renews a lease; a lease renewed longer ago than that is abandoned."""


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
    kind: type[Elector] = Elector,
    on_started_leading: Callable[[], None] = lambda: None,
    on_lost: Callable[[str], None] = lambda reason: None,
) -> Elector:
    """A candidate for the controllers' Lease in `namespace`, not started."""
    # A renewal that hangs must end while there is time for another one.
    fail_fast = api.with_timeout(min(connection.timeout_seconds, terms.renew_deadline_seconds / 3))
    return kind(
        fail_fast,
        namespace,
        LEASE_NAME,
        identity,
        terms=terms,
        on_started_leading=on_started_leading,
        on_lost=on_lost,
    )


def other_leaders(api: KubeApi, own_namespace: str | None = None) -> dict[str, str]:
    """The leaders of other installations in this cluster, by the lease's namespace; none where leases may not be read.

    A controller with rights in the whole cluster takes the JobGrowths of every other one for those of a deleted policy,
    and restores the original resources.
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
