"""Command lines and files of a node: a containerd, its network and a kubelet.

They are separate from those of the other nodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from string import Template

from testbed import cgroups
from testbed.control_plane import Programs
from testbed.identities import Identities
from testbed.images import PAUSE_IMAGE
from testbed.processes import Program
from testbed.settings import KUBELET_PORT, Node, Settings

# `restrict_oom_score_adj`: inside many sandboxes root may not lower it, and pods would fail with "can't get final
# child's PID". `netns_mounts_under_state_dir` keeps network namespaces below our own folder. The plugins that are
# switched off insist on folders of the whole machine, or need a kernel module.
_CONTAINERD = Template("""\
version = 3
root = "$folder/containerd"
state = "$folder/containerd-state"
disabled_plugins = [
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.differ.v1.erofs", "io.containerd.internal.v1.tracing",
]

[grpc]
address = "$socket"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "$snapshotter"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "$pause"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "$folder/cni"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "$runc"
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"
stream_server_port = "0"
""")


def containerd_name(node: Node) -> str:
    """The component's name, e.g. `node-a.containerd`."""
    return f"{node.name}.containerd"


def kubelet_name(node: Node) -> str:
    """The component's name, e.g. `node-a.kubelet`."""
    return f"{node.name}.kubelet"


def write_files(settings: Settings, node: Node, programs: Programs) -> None:
    """The configuration of the node's containerd, network and kubelet."""
    folder = settings.node_folder(node)
    (folder / "cni").mkdir(parents=True)
    text = _CONTAINERD.substitute(
        folder=folder,
        socket=settings.containerd_socket(node),
        pause=PAUSE_IMAGE,
        runc=programs.runc / "runc",
        snapshotter="overlayfs" if _can_overlay(folder) else "native",
    )
    (folder / "containerd.toml").write_text(text)
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(_network(settings, node), indent=1))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet_configuration(settings, node), indent=1))


def containerd(settings: Settings, node: Node, programs: Programs) -> Program:
    """The container runtime. It finds its shim on the PATH."""
    return Program(
        containerd_name(node),
        (str(programs.containerd / "containerd"), "--config", str(settings.node_folder(node) / "containerd.toml")),
        {"PATH": f"{programs.containerd}:{os.environ.get('PATH', os.defpath)}"},
    )


def kubelet(settings: Settings, node: Node, programs: Programs) -> Program:
    """The kubelet. Without `--containerd` the series of cAdvisor lack the labels container and pod."""
    folder = settings.node_folder(node)
    return Program(
        kubelet_name(node),
        (
            str(programs.kubernetes / "kubelet"),
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={Identities(settings).kubeconfig(f'system:node:{node.name}')}",
            f"--hostname-override={node.name}", f"--node-ip={node.address}",
            f"--root-dir={folder / 'kubelet'}", f"--cert-dir={folder / 'kubelet-certificates'}",
            f"--containerd={settings.containerd_socket(node)}",
            "--housekeeping-interval=2s", f"--node-labels=slopewise.dev/testbed-cpus={node.cpus}",
        ),
    )  # fmt: skip


def _network(settings: Settings, node: Node) -> Mapping[str, object]:
    """A pair of interfaces for each pod, which go with its namespace: no bridge stays behind after a crash.

    All traffic is routed by the machine, so a pod that reaches another one through a Service is translated back.
    """
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(settings.node_folder(node) / "cni-addresses"),
    }
    plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": f"slopewise-{node.name}", "plugins": [plugin]}


def _kubelet_configuration(settings: Settings, node: Node) -> Mapping[str, object]:
    """Images are never collected: there is no registry to bring them back from."""
    folder = settings.node_folder(node)
    reserved = (os.cpu_count() or 1) - node.cpus
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": KUBELET_PORT,
        "readOnlyPort": 0,
        "healthzBindAddress": node.address,
        "healthzPort": KUBELET_PORT - 2,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(Identities(settings).authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{settings.containerd_socket(node)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroups.node_cgroup(node),
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "systemReserved": {"cpu": str(max(0, reserved))},
        "enforceNodeAllocatable": ["pods"],
        "nodeStatusUpdateFrequency": "4s",
        "nodeStatusReportFrequency": "20s",
        "nodeLeaseDurationSeconds": 16,
        "syncFrequency": "10s",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "oomScoreAdj": 0,
    }


def _can_overlay(folder: Path) -> bool:
    """False where our folder is on an overlay itself, as in a container: then layers are copied, which is slower."""
    device = folder.stat().st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        major, minor = map(int, fields[2].split(":"))
        if os.makedev(major, minor) == device:
            return fields[fields.index("-") + 1] != "overlay"
    return True
