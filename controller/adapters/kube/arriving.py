"""Pods that wait behind our gate, as the arrivals of a snapshot: jobs that a policy may place. Pure.

Before it: `observer.py`, which knows whose they are. After it: a policy's `Place`, which `gates.py` carries out; an
arrival that nobody places is released by it, and the default scheduler finds a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controller.adapters.kube.annotations import read_annotations
from controller.adapters.kube.records import PLACE_GATE, PodRecord
from controller.model import Arrival

RefusedNodes = Callable[[PodRecord], Mapping[str, str]]


def arrivals(
    pods: Mapping[str, PodRecord], max_weight: float, now_seconds: float, refused_nodes: RefusedNodes
) -> tuple[Arrival, ...]:
    """Of pods by job uid, in the order of their arrival. One that also waits for somebody else has not arrived yet."""
    found = [
        _arrival(uid, pod, max_weight, now_seconds, refused_nodes(pod))
        for uid, pod in pods.items()
        if pod.gates == (PLACE_GATE,)
    ]
    return tuple(sorted(found, key=lambda each: (each.arrived_at_seconds, each.uid)))


def _arrival(
    uid: str, pod: PodRecord, max_weight: float, now_seconds: float, refused_nodes: Mapping[str, str]
) -> Arrival:
    asked = read_annotations(pod.annotations, pod.created_at_seconds, max_weight)
    memory = [each.memory_request_bytes for each in pod.containers if each.memory_request_bytes is not None]
    return Arrival(
        uid=uid,
        name=pod.name,
        namespace=pod.namespace,
        arrived_at_seconds=min(pod.created_at_seconds, now_seconds),
        request_millicores=sum(each.wished.request_millicores for each in pod.containers),
        memory_request_bytes=float(sum(memory)) if memory else None,
        useful_parallelism_cores=asked.useful_parallelism_cores,
        promises=asked.promises,
        refused_nodes=refused_nodes,
    )
