"""Everything of the cluster that is watched, in one place: what a pass reads, it reads from here and asks nobody.

`process.py` starts these before anything is decided, also on the replica that waits for the lease: a new leader then
knows the cluster at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.adapters.kube.contracts import Api
from controller.adapters.kube.growth_objects import GrowthRecord, parse_growth
from controller.adapters.kube.observer import Stores
from controller.adapters.kube.parsing import parse_node, parse_object, parse_pod
from controller.adapters.kube.policies import PolicyRecord, parse_policy
from controller.adapters.kube.records import API_VERSION, MANAGED_LABEL, NodeRecord, ObjectRecord, PodRecord
from controller.adapters.kube.watching import Reflector

OnPod = Callable[[PodRecord | None, PodRecord | None], None]


def path_of(api_version: str, plural: str, namespace: str | None = None) -> str:
    """Of a collection, e.g. `/apis/batch/v1/namespaces/a/jobs`."""
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    return f"{root}/{plural}" if namespace is None else f"{root}/namespaces/{namespace}/{plural}"


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches of one process. None: this variant may not read it."""

    pods: Reflector[PodRecord]
    jobs: Reflector[ObjectRecord]
    growths: Reflector[GrowthRecord]
    nodes: Reflector[NodeRecord] | None = None
    namespaces: Reflector[ObjectRecord] | None = None
    policies: Reflector[PolicyRecord] | None = None
    named: Mapping[str, Reflector[Any]] = field(default_factory=dict)
    """All of them, by resource."""

    @property
    def stores(self) -> Stores:
        """What an observer reads."""
        return Stores(self.pods, self.nodes, self.namespaces)

    def start(self) -> None:
        """Begin to list and watch."""
        for store in self.named.values():
            store.start()

    def stop(self) -> None:
        """End all watches."""
        for store in self.named.values():
            store.stop()

    def waits_for(self) -> str | None:
        """What has not been read yet, and why, in words; None once everything has."""
        missing = [name for name, store in self.named.items() if not store.synced]
        if not missing:
            return None
        reasons = sorted({store.failure for name, store in self.named.items() if name in missing and store.failure})
        return f"waiting for {', '.join(missing)}" + (f" ({'; '.join(reasons)})" if reasons else "")

    def failures(self) -> Iterator[tuple[str, str]]:
        """What cannot be heard just now, and why."""
        for name, store in self.named.items():
            if store.failure is not None:
                yield name, store.failure

    def watches(self) -> dict[str, tuple[float, int]]:
        """Seconds since each was heard of, and how often it broke; for the metrics."""
        return {
            name: (store.silent_seconds(), store.restarts) for name, store in self.named.items() if store.synced
        }  # fmt: skip


def make_watches(api: Api, namespace: str | None, on_pod: OnPod) -> Watches:
    """The watches of a cluster; of one namespace, without anything that belongs to the cluster, when it is named.

    `on_pod(old, new)` is called for each change of a managed pod.
    """
    pods = Reflector(
        api, path_of("v1", "pods", namespace), parse_pod, on_change=on_pod,
        params={"labelSelector": MANAGED_LABEL},
    )  # fmt: skip
    jobs = Reflector(api, path_of("batch/v1", "jobs", namespace), parse_object, metadata_only=True)
    growths = Reflector(api, path_of(API_VERSION, "jobgrowths", namespace), parse_growth)
    if namespace is not None:
        return Watches(pods, jobs, growths, named={"pods": pods, "jobs": jobs, "jobgrowths": growths})
    nodes = Reflector(api, path_of("v1", "nodes"), parse_node)
    namespaces = Reflector(api, path_of("v1", "namespaces"), parse_object, metadata_only=True)
    policies = Reflector(api, path_of(API_VERSION, "trainingpolicies"), parse_policy)
    named: dict[str, Reflector[Any]] = {
        "pods": pods, "jobs": jobs, "jobgrowths": growths,
        "nodes": nodes, "namespaces": namespaces, "trainingpolicies": policies,
    }  # fmt: skip
    return Watches(pods, jobs, growths, nodes, namespaces, policies, named)
