"""The cluster options of `slopewise run` and `slopewise restore`."""

from __future__ import annotations

import os
import re
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from slopewise.adapters.grafana.annotations import GrafanaAccess
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.kube.leader_election import Terms
from slopewise.decision_record.recorder import RecordOptions
from slopewise.errors import UsageError

DEFAULT_NAMESPACE = "slopewise-system"
"""The controller's namespace, with its Lease."""

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


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


@dataclass(frozen=True, slots=True)
class Rates:
    """How many pods may be resized a minute, which bounds the effect of an error; each a token bucket."""

    per_node_per_minute: int = 30
    per_namespace_per_minute: int = 120
    per_cluster_per_minute: int = 600


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The command line of `slopewise run`, in a cluster."""

    connection: Connection
    prometheus_url: str
    policy_file: Path | None = None
    scrape_interval_seconds: float = 15.0
    dry_run: bool = False
    once: bool = False
    host: str = "127.0.0.1"
    port: int = 8080
    json_logs: bool = False
    lease_namespace: str = DEFAULT_NAMESPACE
    identity: str = field(default_factory=own_identity)
    lease: Terms = field(default_factory=Terms)
    rates: Rates = Rates()
    restore_deadline_seconds: float = 60.0
    """A policy that is deleted waits for its pods' originals no longer than this."""
    prometheus_config: Path | None = None
    """The `http_config` for Prometheus."""

    record: RecordOptions | None = None
    """Where the passes of each policy are recorded; None: nowhere."""
    alert_token_file: Path | None = None
    """The token by which Alertmanager may call the webhook; None: there is no webhook."""
    annotated: GrafanaAccess | None = None
    """The Grafana in which decisions are annotated; None: none."""

    @property
    def prometheus(self) -> Endpoint:
        """The Prometheus that scrapes the trainers."""
        return Endpoint(self.prometheus_url, self.prometheus_config)
