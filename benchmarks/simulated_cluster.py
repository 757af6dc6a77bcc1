"""A cluster of simulated trainings in a process of its own: the tests' small API server, and a simulated Prometheus.

For `bench_pass.py`, which measures the controller and not what it talks to.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.api_server import ApiServer
from support.fake_prometheus import FakePrometheus
from support.simulated_trainings import SimulatedTrainings, node_object, pod_object

NAMESPACES = 20
_BEGUN_SECONDS = 3600.0
"""How long ago every training began."""
_READY_SECONDS = 120.0


class SimulatedCluster(NamedTuple):
    """Where it is."""

    kubeconfig: str
    prometheus_url: str


@contextmanager
def simulated_cluster(nodes: int, pods: int) -> Iterator[SimulatedCluster]:
    """That many nodes, and pods that train, from entry to exit."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(nodes, pods, there), daemon=True)
    process.start()
    try:
        if not here.poll(_READY_SECONDS):
            raise RuntimeError(f"no simulated cluster within {_READY_SECONDS:g} s")
        yield SimulatedCluster(*here.recv())
        here.send("end")
        process.join(10.0)
    finally:
        process.kill()
        process.join()


def _serve(nodes: int, pods: int, pipe: Connection) -> None:
    begun_at = time.time() - _BEGUN_SECONDS
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun_at))
    trainings = SimulatedTrainings()
    with ApiServer() as server:
        for number in range(nodes):
            server.put("/api/v1/nodes", node_object(f"node-{number}"))
        for number in range(NAMESPACES):
            server.put("/api/v1/namespaces", {"metadata": {"name": f"team-{number}"}})
        for number in range(pods):
            namespace, name, node = f"team-{number % NAMESPACES}", f"train-{number}", f"node-{number % nodes}"
            server.put(f"/api/v1/namespaces/{namespace}/pods", pod_object(name, node, begun))
            trainings.add(namespace, name, node, begun_at)
        server.objects.kubelets_follow = True
        server.objects.forget()
        prometheus = FakePrometheus()
        prometheus.respond = trainings.respond
        pipe.send((server.kubeconfig, prometheus.url))
        pipe.recv()
        prometheus.close()
