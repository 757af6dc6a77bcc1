"""Simulates nodes and pods with kwok beside the real ones, for benchmarks of 5,000 pods on 200 nodes.

The pods are assigned to their nodes at creation, 25 each by default, so that the scheduler is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slopewise.errors import UsageError
from testbed import cluster
from testbed.api import Api, wait_until
from testbed.builds import bring, kwok_build
from testbed.processes import Processes, Program
from testbed.progress import Progress
from testbed.settings import API_ADDRESS, SIMULATED_POD_RANGE, Settings

KWOK = "kwok"
NAMESPACE = "slopewise-simulated"
CONTAINER = "trainer"
SIMULATED = {"slopewise.dev/simulated": "true"}
MANAGED = {"slopewise.dev/managed": "true"}
MAX_NODES, MAX_PODS = 1000, 20_000
_STAGES = Path(__file__).with_name("kwok.yaml")
_SELECTOR = "slopewise.dev/simulated=true"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NODES = f"/api/v1/nodes?labelSelector={_SELECTOR}"
_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"
_PARALLEL = 16
_LEASE_SECONDS = 16
_READY_SECONDS = 300.0


def bring_up(settings: Settings, nodes: int, pods: int, progress: Progress) -> None:
    """Have that many nodes and pods run; those that are there already are kept.

    UsageError for numbers out of range or when no test-bed is up, SlopewiseError when the pods do not come to run.
    """
    _check(nodes, pods)
    cluster.running(settings)
    program = bring(kwok_build(), settings.cache_folder, progress) / KWOK
    api = Api(settings.kubeconfig)
    with cluster.one_at_a_time(settings):
        processes = cluster.running(settings)
        if KWOK not in processes.state.components or processes.state.components[KWOK].life() == "dead":
            processes.start(_kwok(settings, program))
    with progress.step(f"simulating {nodes} nodes and {pods} pods"):
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {**MANAGED, **SIMULATED}}})
        account = f"{_NAMESPACE}/serviceaccounts/default"
        wait_until(lambda: api.get(account) is not None, "the namespace's account", _READY_SECONDS)
        _create_all(api, "/api/v1/nodes", _node, nodes)
        _create_all(api, _PODS, lambda index: _pod(index, index % nodes), pods)
        wait_until(lambda: _all_run(api), "simulated pods", _READY_SECONDS, lambda: processes.tail(KWOK))


def take_down(settings: Settings) -> None:
    """Remove the simulated nodes and pods and end kwok. Doing it twice does no harm."""
    cluster.running(settings)
    api = Api(settings.kubeconfig)
    nodes = api.metadata(_NODES)
    for what in (f"{_PODS}?gracePeriodSeconds=0", _NODES, _NAMESPACE):
        api.delete(what)
    with cluster.one_at_a_time(settings):
        _forget(cluster.running(settings))
    for node in nodes:  # after kwok, which would write them again
        api.delete(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node['name']}")
    wait_until(lambda: not api.exists(_NAMESPACE), "the simulated namespace to go", _READY_SECONDS)


def _check(nodes: int, pods: int) -> None:
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"--nodes: {nodes} is out of range; give 1 to {MAX_NODES}.")
    if not 0 <= pods <= MAX_PODS:
        raise UsageError(f"--pods: {pods} is out of range; give 0 to {MAX_PODS}.")


def _kwok(settings: Settings, program: Path) -> Program:
    return Program(
        KWOK,
        (
            str(program), f"--kubeconfig={settings.kubeconfig}", f"--config={_STAGES}",
            f"--manage-nodes-with-label-selector={_SELECTOR}", f"--cidr={SIMULATED_POD_RANGE}",
            "--v=WARN", f"--node-ip={API_ADDRESS}", f"--node-lease-duration-seconds={_LEASE_SECONDS}",
        ),
    )  # fmt: skip


def _create_all(api: Api, path: str, make: Callable[[int], Mapping[str, object]], count: int) -> None:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for created in [pool.submit(api.create, path, make(index)) for index in range(count)]:
            created.result()


def _node(index: int) -> Mapping[str, object]:
    """Tainted, so that no real pod is put on it."""
    taint = {"key": "slopewise.dev/simulated", "value": "true", "effect": "NoSchedule"}
    name = _node_name(index)
    metadata = {"name": name, "labels": {**SIMULATED, "kubernetes.io/hostname": name}}
    return {"metadata": metadata, "spec": {"taints": [taint]}}


def _pod(index: int, node: int) -> Mapping[str, object]:
    resources = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}
    return {
        "metadata": {"name": f"simulated-{index:05d}", "labels": {**MANAGED, **SIMULATED}},
        "spec": {
            "nodeName": _node_name(node),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": CONTAINER, "image": "simulated", "resources": resources}],
        },
    }


def _node_name(index: int) -> str:
    return f"simulated-{index:04d}"


def _all_run(api: Api) -> bool:
    """True when no simulated pod waits any more: a list that is short when it matters, unlike that of all pods."""
    return not api.metadata(f"{_PODS}?fieldSelector=status.phase%21%3DRunning")


def _forget(processes: Processes) -> None:
    if KWOK in processes.state.components:
        processes.end([KWOK], at_once=True)
        del processes.state.components[KWOK]
        processes.save()
