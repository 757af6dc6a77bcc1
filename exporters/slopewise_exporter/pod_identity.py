"""Which pod this process runs in: what a scrape knows of its target, and a push must say itself.

A pod's name comes from OpenTelemetry's resource attributes, else from `POD_NAME` (the downward API), else from the
host name, except in an indexed Job: the host name of its pod is `train-0` where the pod's name is `train-0-x7k2p`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class PodIdentity:
    """Empty texts: not known, or no pod."""

    namespace: str
    name: str
    in_cluster: bool

    @property
    def labels(self) -> dict[str, str]:
        """Those that Prometheus puts on what it scrapes."""
        named = {"namespace": self.namespace, "pod": self.name}
        return {label: value for label, value in named.items() if value}

    @property
    def attributes(self) -> dict[str, str]:
        """OpenTelemetry's names for the same, and the process's own: a restarted container continues its series."""
        named = {
            "k8s.namespace.name": self.namespace,
            "k8s.pod.name": self.name,
            "service.instance.id": self.name or f"{socket.gethostname()}:{os.getpid()}",
        }
        return {name: value for name, value in named.items() if value}


def pod_identity(
    environ: Mapping[str, str], attributes: Mapping[str, object], namespace_file: Path = NAMESPACE_FILE
) -> PodIdentity:
    """`attributes` are those of the OpenTelemetry resource, which win."""
    in_cluster = "KUBERNETES_SERVICE_HOST" in environ
    namespace = _given(attributes, "k8s.namespace.name") or environ.get("POD_NAMESPACE", "")
    name = _given(attributes, "k8s.pod.name") or environ.get("POD_NAME", "")
    if in_cluster and not namespace:
        with suppress(OSError, ValueError):  # a pod without a token of its service account
            namespace = namespace_file.read_text(encoding="utf-8").strip()
    if in_cluster and not name and "JOB_COMPLETION_INDEX" not in environ:
        name = socket.gethostname()
    return PodIdentity(namespace, name, in_cluster)


def _given(attributes: Mapping[str, object], name: str) -> str:
    return str(attributes.get(name) or "")
