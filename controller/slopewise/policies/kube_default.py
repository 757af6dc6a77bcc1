"""kube-default: places as Kubernetes' own scheduler does and changes nothing else. A baseline.

Source: kube-scheduler's plugin NodeResourcesFit with its default strategy, LeastAllocated: the node where, with the
new pod, the mean free fraction of CPU and memory *requests* is largest. What the pods really use counts for nothing.

    score = mean over CPU and memory of 100 · (capacity - requested) / capacity

Worked example: 16 cores and 64 GiB, pods of 4 cores and 8 GiB there, a new one of 4 cores and 8 GiB: (50 + 75)/2 =
62.5. A pod without a request counts as 100m and 200 MiB, which is what the scheduler takes it for. With
`requests: none` every pod does, and nodes that are alike are filled by the number of their pods.

What is not the scheduler's, and is our reading:

- Ties end by measured CPU use and then by name, where the scheduler draws lots; nor are scores cut to whole numbers,
  so that a run can be repeated.
- Requests that the nodes only weigh by (`Node.requests_max_millicores` is not given) may exceed a node's cores. Its
  score is then below 0, so that the least crowded node is still found.
- None of its other plugins distinguishes these nodes: no taints, no affinities, no images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from slopewise.model import Arrival, ClusterSnapshot, Decisions, Job, MemoryState, Node
from slopewise.policies import PolicyParameters, Setting, fair, parameter
from slopewise.policies.shared.placement import place_each

PURPOSE = "the baseline on several nodes: as Kubernetes places"
ACTIONS = ("place",)
SIMULATOR_ONLY = "it is a baseline of the simulator, and Kubernetes itself places alike; write fair, and no placement"

DEFAULT_MILLICORES, DEFAULT_MEMORY_BYTES = 100, 200.0 * 2**20
"""What the scheduler's scores take a pod for that requests nothing."""


class Parameters(PolicyParameters):
    """Whether the pods state requests."""

    requests: Literal["pods", "none"] = parameter(
        "pods",
        unit="pods or none",
        source="kube-scheduler",
        description="pods: as each pod states them; none: as if none stated any",
    )


@dataclass(slots=True)
class _Requested:
    """What the pods of one node request together; grows while arrivals are placed."""

    millicores: float = 0.0
    memory_bytes: float = 0.0

    def with_pod(self, millicores: float, memory_bytes: float) -> _Requested:
        return _Requested(self.millicores + millicores, self.memory_bytes + memory_bytes)


class Policy:
    """Least-allocated placement; within a node, fair sharing."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._stated = parameters.requests == "pods"
        self._within_nodes = fair.Policy(fair.Parameters(), setting)

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """No resize; every arriving job on the node with the best score, one after another."""
        scored = self._requested(snapshot)
        # Without defaults: a pod that requests nothing fits everywhere.
        jobs_on = snapshot.jobs_by_node()
        reserved = {name: sum(job.allocation.request_millicores for job in jobs) for name, jobs in jobs_on.items()}

        def cost(arrival: Arrival, node: Node) -> float:
            bound = node.requests_max_millicores
            if bound is not None and reserved[node.name] + arrival.request_millicores > bound:
                return math.inf
            return -_score(scored[node.name].with_pod(*self._request(arrival)), node)

        def placed(arrival: Arrival, node: Node) -> str:
            scored[node.name] = scored[node.name].with_pod(*self._request(arrival))
            reserved[node.name] += arrival.request_millicores
            return f"least allocated: score {_score(scored[node.name], node):.3g} of 100 with it"

        places = place_each(snapshot, memory, cost, placed)
        return replace(self._within_nodes.decide(snapshot, memory), policy="kube-default", moves=places)

    def _requested(self, snapshot: ClusterSnapshot) -> dict[str, _Requested]:
        requested = {}
        for name, jobs in snapshot.jobs_by_node().items():
            pods = [self._request(job) for job in jobs]
            # fsum: the same in any order of the jobs
            requested[name] = _Requested(math.fsum(cpu for cpu, _ in pods), math.fsum(memory for _, memory in pods))
        return requested

    def _request(self, pod: Job | Arrival) -> tuple[float, float]:
        """Millicores and bytes that the pod counts for in a score."""
        if not self._stated:
            return DEFAULT_MILLICORES, DEFAULT_MEMORY_BYTES
        millicores = pod.allocation.request_millicores if isinstance(pod, Job) else pod.request_millicores
        return millicores or DEFAULT_MILLICORES, pod.memory_request_bytes or DEFAULT_MEMORY_BYTES


def _score(requested: _Requested, node: Node) -> float:
    """LeastAllocated over CPU and memory with equal weights: 100 is empty, 0 is full, below 0 is promised twice."""
    capacity = node.requests_max_millicores or 1000 * node.cpu_cores
    cpu_free = 1 - requested.millicores / capacity
    memory_free = 1 - requested.memory_bytes / node.memory_bytes
    return 100 * (cpu_free + memory_free) / 2
