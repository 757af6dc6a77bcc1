"""A command's connection to a cluster: a client of its API server, and a candidate for the controllers' Lease."""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from slopewise.adapters.kube.client.client import KubeApi, OnRequest
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Json
from slopewise.adapters.kube.leader_election import Elector, Terms
from slopewise.errors import SlopewiseError, UsageError
from slopewise.signals import StoppedError, StopSignal

DEFAULT_NAMESPACE = "slopewise-system"
"""The controller's namespace, with its Lease."""

LEASE_NAME = "slopewise-controller"
CLOCKS_DIFFER_SECONDS = 60.0
"""Between this machine and the one that renews a lease; a lease renewed longer ago than that is abandoned."""

_POLL_SECONDS = 0.05
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Connection:
    """Which API server, and which part of its cluster."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    """Only this namespace, with no right beyond it; None: the whole cluster."""
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise UsageError(
                f"--namespace {self.namespace!r}: cannot be the name of a namespace; write small letters, digits and -."
            )


def own_identity() -> str:
    """The pod's or host's name and a random part: a restarted container does not hold its predecessor's lease."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def lease_namespace_of(connection: Connection, named: str | None = None) -> str:
    """The namespace of the controllers' Lease: the named one, else the only managed one, else the default."""
    return named or connection.namespace or DEFAULT_NAMESPACE


def lease_namespaces_of(connection: Connection, named: str | None = None) -> tuple[str, ...]:
    """Where the Lease of the controller that manages this part of the cluster can be.

    One namespace may have a controller of its own, else the controller of the cluster manages it too.
    """
    own = lease_namespace_of(connection, named)
    return (own,) if named or own == DEFAULT_NAMESPACE else (own, DEFAULT_NAMESPACE)


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
        fail_fast, namespace, LEASE_NAME, identity, terms=terms, on_started_leading=on_started_leading, on_lost=on_lost
    )


def take_lease(elector: Elector, namespace: str, stop: StopSignal) -> None:
    """Acquire the lease, since one controller changes a cluster at a time; SlopewiseError when another one holds it."""
    elector.start()
    deadline = time.monotonic() + 2 * elector.terms.lease_seconds
    while not elector.is_leader:
        if time.monotonic() > deadline:
            raise SlopewiseError(_not_ours(elector, namespace))
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(stop)


def _not_ours(elector: Elector, namespace: str) -> str:
    lease = f"the lease {namespace}/{LEASE_NAME}"
    if elector.failure is not None:
        return f"{lease} cannot be had ({elector.failure}); see to that, or name its namespace with --lease-namespace."
    return (
        f"{elector.holder or 'somebody else'} holds {lease}; stop that controller first (scale its Deployment to 0 "
        "replicas), or use a dry run (slopewise run --once --dry-run)."
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
