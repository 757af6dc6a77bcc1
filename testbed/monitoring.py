"""Starts a Prometheus that discovers pods and kubelets through the API server, like one inside the cluster.

It is reachable on this machine at the test-bed's own address, and in pods through the Service `prometheus` in
`monitoring`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import requests

from testbed import identities
from testbed.control_plane import Programs
from testbed.identities import Identities
from testbed.processes import Program
from testbed.settings import API_ADDRESS, PROMETHEUS_PORT, PROMETHEUS_SERVICE_ADDRESS, Settings

PROMETHEUS = "prometheus"
NAMESPACE = "monitoring"
METRICS_PORT_NAME = "metrics"
_ROLE = "slopewise-testbed-prometheus"


def prometheus(settings: Settings, programs: Programs) -> Program:
    """It listens on an address of our own, so that pods reach it and the machine's networks do not."""
    return Program(
        PROMETHEUS,
        (
            str(programs.prometheus / PROMETHEUS), f"--config.file={_configuration_path(settings)}",
            f"--web.listen-address={API_ADDRESS}:{PROMETHEUS_PORT}",
            f"--storage.tsdb.path={settings.run_folder / 'prometheus'}", "--storage.tsdb.retention.time=6h",
            "--log.level=warn",
        ),
    )  # fmt: skip


def write_configuration(settings: Settings) -> None:
    """The configuration; JSON is YAML too."""
    _configuration_path(settings).write_text(json.dumps(_configuration(settings), indent=1), encoding="utf-8")


def is_ready(settings: Settings) -> bool:
    """True when it answers queries."""
    with requests.Session() as session, suppress(requests.RequestException):
        session.trust_env = False  # HTTP_PROXY is not for this machine
        return session.get(f"{settings.prometheus_url}/-/ready", timeout=1).ok
    return False


def objects() -> list[Mapping[str, object]]:
    """What the API server must know: what Prometheus may read, and the Service through which pods reach it."""
    service = {"kubernetes.io/service-name": PROMETHEUS}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": PROMETHEUS, "namespace": NAMESPACE},
            "spec": {"clusterIP": PROMETHEUS_SERVICE_ADDRESS, "ports": [{"name": "http", "port": PROMETHEUS_PORT}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": PROMETHEUS, "namespace": NAMESPACE, "labels": service},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [API_ADDRESS]}],
            "ports": [{"name": "http", "port": PROMETHEUS_PORT}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _ROLE},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _ROLE},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": _ROLE},
            "subjects": [{"apiGroup": group, "kind": "User", "name": identities.PROMETHEUS}],
        },
    ]


def _configuration_path(settings: Settings) -> Path:
    return settings.run_folder / "prometheus.json"


def _configuration(settings: Settings) -> Mapping[str, object]:
    interval = f"{round(settings.scrape_interval_seconds * 1000)}ms"
    jobs = [_pods(settings), *(_kubelets(settings, path) for path in ("/metrics/cadvisor", "/metrics/resource"))]
    return {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": jobs}


def _pods(settings: Settings) -> Mapping[str, object]:
    """Each port named `metrics`, and whatever bears `prometheus.io/scrape: "true"`, of pods that have not ended."""
    pod = "__meta_kubernetes_pod"
    return {
        "job_name": "pods",
        "honor_labels": False,
        "kubernetes_sd_configs": [_discovery(settings, "pod")],
        "relabel_configs": [
            {
                "source_labels": [f"{pod}_container_port_name", f"{pod}_annotation_prometheus_io_scrape"],
                "regex": f"{METRICS_PORT_NAME};.*|.*;true",
                "action": "keep",
            },
            {"source_labels": [f"{pod}_phase"], "regex": "Succeeded|Failed", "action": "drop"},
            *_copy(
                {
                    "namespace": "namespace",
                    "pod_name": "pod",
                    "pod_container_name": "container",
                    "pod_node_name": "node",
                }
            ),
        ],
    }


def _kubelets(settings: Settings, path: str) -> Mapping[str, object]:
    """A kubelet's certificate is its own, so it is not checked; its address comes from the API server."""
    return {
        "job_name": f"kubelet{path.replace('/', '-')}",
        "honor_labels": False,
        "scheme": "https",
        "metrics_path": path,
        "tls_config": {"insecure_skip_verify": True},
        "authorization": {"credentials_file": str(_token(settings))},
        "kubernetes_sd_configs": [_discovery(settings, "node")],
        "relabel_configs": [
            {
                "source_labels": ["__meta_kubernetes_node_label_slopewise_dev_simulated"],
                "regex": "true",
                "action": "drop",
            },
            *_copy({"node_name": "node"}),
        ],
    }


def _discovery(settings: Settings, role: str) -> Mapping[str, object]:
    return {
        "role": role,
        "api_server": settings.api_url,
        "authorization": {"credentials_file": str(_token(settings))},
        "tls_config": {"ca_file": str(Identities(settings).authority)},
    }


def _token(settings: Settings) -> Path:
    return Identities(settings).token_file(identities.PROMETHEUS)


def _copy(labels: Mapping[str, str]) -> Sequence[Mapping[str, object]]:
    return [
        {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target} for source, target in labels.items()
    ]
