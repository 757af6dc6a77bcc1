"""Command lines of the control plane: etcd, the API server, the controller manager, the scheduler, kube-proxy.

Times that are minutes in a real cluster are seconds here, so that tests of lost nodes need not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed import audit, identities
from testbed.identities import Identities
from testbed.processes import Program
from testbed.settings import (
    API_ADDRESS,
    API_PORT,
    ETCD_CLIENT_PORT,
    ETCD_PEER_PORT,
    NODES,
    POD_RANGE,
    SERVICE_RANGE,
    Settings,
)

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
PROXY = "kube-proxy"

NODE_LOST_SECONDS = 20
"""Silence after which a node is NotReady; kubelets report every 4 s. Upstream: 50 s and 10 s."""
EVICTION_SECONDS = 10
"""How long pods stay on a node that is not ready. Upstream: 300 s."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The folders of the built programs."""

    kubernetes: Path
    etcd: Path
    containerd: Path
    runc: Path
    prometheus: Path
    pause: Path


def etcd(settings: Settings, programs: Programs) -> Program:
    """The store. Nothing of a test cluster is worth waiting for the disk: `--unsafe-no-fsync`."""
    client, peer = f"http://127.0.0.1:{ETCD_CLIENT_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    return Program(
        ETCD,
        (
            str(programs.etcd / "etcd"), "--unsafe-no-fsync", "--log-level=warn",
            f"--data-dir={settings.run_folder / 'etcd'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        ),
    )  # fmt: skip


def api_server(settings: Settings, programs: Programs) -> Program:
    """It listens on one address of our own, which pods reach through the `kubernetes` Service."""
    files = Identities(settings)
    return Program(
        API_SERVER,
        (
            str(programs.kubernetes / API_SERVER),
            f"--etcd-servers=http://127.0.0.1:{ETCD_CLIENT_PORT}",
            f"--bind-address={API_ADDRESS}", f"--advertise-address={API_ADDRESS}", f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--client-ca-file={files.authority}", f"--token-auth-file={files.tokens}",
            f"--tls-cert-file={files.server_certificate}", f"--tls-private-key-file={files.server_key}",
            f"--kubelet-client-certificate={files.kubelet_client_certificate}",
            f"--kubelet-client-key={files.kubelet_client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={files.accounts_key}",
            f"--service-account-key-file={files.accounts_public_key}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            f"--default-not-ready-toleration-seconds={EVICTION_SECONDS}",
            f"--default-unreachable-toleration-seconds={EVICTION_SECONDS}",
            *audit.arguments(settings),
        ),
    )  # fmt: skip


def controller_manager(settings: Settings, programs: Programs) -> Program:
    """One, so it elects no leader. Its client may be fast: kwok brings thousands of pods at once."""
    files = Identities(settings)
    return Program(
        CONTROLLER_MANAGER,
        (
            str(programs.kubernetes / CONTROLLER_MANAGER),
            f"--kubeconfig={files.kubeconfig(identities.CONTROLLER_MANAGER)}",
            "--leader-elect=false", "--bind-address=127.0.0.1", "--use-service-account-credentials",
            f"--service-account-private-key-file={files.accounts_key}", f"--root-ca-file={files.authority}",
            "--node-monitor-period=2s", f"--node-monitor-grace-period={NODE_LOST_SECONDS}s",
            "--kube-api-qps=500", "--kube-api-burst=1000", "--concurrent-job-syncs=20",
        ),
    )  # fmt: skip


def scheduler(settings: Settings, programs: Programs) -> Program:
    """The standard scheduler."""
    kubeconfig = Identities(settings).kubeconfig(identities.SCHEDULER)
    return Program(
        SCHEDULER,
        (
            str(programs.kubernetes / SCHEDULER), f"--kubeconfig={kubeconfig}",
            "--leader-elect=false", "--bind-address=127.0.0.1", "--kube-api-qps=500", "--kube-api-burst=1000",
        ),
    )  # fmt: skip


def proxy(settings: Settings, programs: Programs) -> Program:
    """One for the whole machine: both nodes share its network. It changes no setting of connection tracking."""
    return Program(
        PROXY,
        (
            str(programs.kubernetes / PROXY),
            f"--kubeconfig={Identities(settings).kubeconfig(identities.PROXY)}",
            "--proxy-mode=iptables", f"--cluster-cidr={POD_RANGE}", f"--hostname-override={NODES[0].name}",
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s", "--iptables-localhost-nodeports=false",
            f"--healthz-bind-address={API_ADDRESS}:10256", "--metrics-bind-address=127.0.0.1:10249",
            "--oom-score-adj=0",
        ),
    )  # fmt: skip
