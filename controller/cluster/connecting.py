"""How a command reaches a cluster: the API server that its options name, and the election of the one that may write.

Before it: `options.py`. After it: `process.py` (the controller) and `restore.py`, which take part in the same election.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.adapters.kube.api import KubeApi, OnRequest
from controller.adapters.kube.election import Elector, Terms
from controller.cluster.options import Connection

LEASE_NAME = "slopewise-controller"


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
