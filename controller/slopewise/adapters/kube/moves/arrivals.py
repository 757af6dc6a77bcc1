"""Converts gated pods to the arrivals of a snapshot: jobs that a policy may place. Pure.

`moves/gated_pods.py` carries out a policy's `Place`, and releases arrivals that no policy places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slopewise.adapters.kube.cache.records import PLACE_GATE, PodRecord
from slopewise.adapters.kube.workloads.job_facts import JobFacts, facts_of
from slopewise.adapters.kube.workloads.owners import Identity
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.model import Arrival

RefusedNodes = Callable[[PodRecord], Mapping[str, str]]


def arrivals(
    pods: Mapping[str, tuple[Identity, PodRecord]],
    spec: TrainingPolicySpec,
    now_seconds: float,
    refused_nodes: RefusedNodes,
) -> tuple[Arrival, ...]:
    """From pods by job uid, in the order of their arrival. A pod with another gate has not arrived yet."""
    found = [
        _arrival(facts_of(identity, pod, None, None, spec), now_seconds, refused_nodes(pod))
        for identity, pod in pods.values()
        if pod.gates == (PLACE_GATE,)
    ]
    return tuple(sorted(found, key=lambda each: (each.arrived_at_seconds, each.uid)))


def _arrival(facts: JobFacts, now_seconds: float, refused_nodes: Mapping[str, str]) -> Arrival:
    pod, requested = facts.managed.pod, facts.requested
    return Arrival(
        uid=facts.managed.job_uid,
        name=pod.name,
        namespace=pod.namespace,
        arrived_at_seconds=min(pod.created_at_seconds, now_seconds),
        request_millicores=sum(each.desired.request_millicores for each in pod.containers),
        memory_request_bytes=facts.memory_request_bytes,
        useful_parallelism_cores=requested.useful_parallelism_cores,
        objectives=requested.objectives,
        workload_class=facts.workload_class,
        refused_nodes=refused_nodes,
    )
