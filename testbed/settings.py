"""Settings of the test-bed: versions, addresses, nodes, intervals, folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slopewise.adapters.local.prometheus_install import default_cache_dir
from slopewise.errors import UsageError

DEFAULT_KUBERNETES_VERSION = "1.36.3"
DEFAULT_RUN_FOLDER = Path("/var/lib/slopewise-testbed")

# All addresses are of the range that RFC 2544 sets aside for measuring: no real network uses it, so that nothing on
# the machine's own networks becomes unreachable.
API_ADDRESS = "198.18.0.1"
SERVICE_RANGE = "198.18.64.0/18"
KUBERNETES_SERVICE_ADDRESS = "198.18.64.1"  # the API server takes the first of the range for itself
PROMETHEUS_SERVICE_ADDRESS = "198.18.64.90"
POD_RANGE = "198.19.0.0/17"
SIMULATED_POD_RANGE = "198.19.128.0/17"  # kwok writes such addresses into the status of its pods; no host answers there

API_PORT = 6443
KUBELET_PORT = 10250
PROMETHEUS_PORT = 9090
# etcd listens on the loopback address, where another etcd may be already: not on its usual ports.
ETCD_CLIENT_PORT = 12379
ETCD_PEER_PORT = 12380


@dataclass(frozen=True, slots=True)
class Node:
    """One kubelet with a containerd of its own. `cpus` is what it offers to pods, in whole CPUs."""

    name: str
    cpus: int
    address: str
    pod_range: str


NODES = (
    Node("node-a", 2, "198.18.0.11", "198.19.1.0/24"),
    Node("node-b", 1, "198.18.0.12", "198.19.2.0/24"),
)
HOST_ADDRESSES = (API_ADDRESS, *(node.address for node in NODES))
"""What is put on the loopback device. Each node has an address of its own, so that both kubelets use port 10250."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One test-bed. `run_folder` is gone after `down`; `cache_folder`, outside the clone, keeps what was built."""

    run_folder: Path
    cache_folder: Path
    kubernetes_version: str = DEFAULT_KUBERNETES_VERSION
    scrape_interval_seconds: float = 5.0

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run_folder / "kubeconfig"

    @property
    def kubectl(self) -> Path:
        """The kubectl of this release."""
        return self.run_folder / "bin" / "kubectl"

    @property
    def api_url(self) -> str:
        """Where the API server answers, on this machine and from pods."""
        return f"https://{API_ADDRESS}:{API_PORT}"

    @property
    def prometheus_url(self) -> str:
        """Where Prometheus answers, on this machine and from pods."""
        return f"http://{API_ADDRESS}:{PROMETHEUS_PORT}"

    def node_folder(self, node: Node) -> Path:
        """Where the containerd and the kubelet of a node keep everything."""
        return self.run_folder / node.name

    def containerd_socket(self, node: Node) -> Path:
        """The containerd of a node."""
        return self.node_folder(node) / "containerd.sock"


def read_settings(environment: Mapping[str, str] = os.environ, *, scrape_interval_seconds: float = 5.0) -> Settings:
    """The settings as the environment has them; UsageError for a version or an interval that is none.

    `KUBERNETES_VERSION` chooses the release, `SLOPEWISE_TESTBED_FOLDER` the run folder, `XDG_CACHE_HOME` the cache.
    """
    version = environment.get("KUBERNETES_VERSION", "") or DEFAULT_KUBERNETES_VERSION
    version = version.removeprefix("v")
    if not re.fullmatch(r"1\.\d+\.\d+", version):
        raise UsageError(f"KUBERNETES_VERSION: {version!r} is not a release of Kubernetes; write it as 1.36.3.")
    if not 1 <= scrape_interval_seconds <= 60:
        raise UsageError(
            f"--scrape-interval-seconds: {scrape_interval_seconds:g} is out of range; give 1 to 60 seconds."
        )
    folder = Path(environment.get("SLOPEWISE_TESTBED_FOLDER", "") or DEFAULT_RUN_FOLDER).absolute()
    return Settings(folder, default_cache_dir() / "testbed", version, scrape_interval_seconds)
