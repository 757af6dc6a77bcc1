"""The options of `slopewise run` in a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from slopewise.adapters.grafana.annotations import GrafanaAccess
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.kube.connection import DEFAULT_NAMESPACE, Connection, own_identity
from slopewise.adapters.kube.leader_election import Terms
from slopewise.decision_record.recorder import RecordOptions


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
