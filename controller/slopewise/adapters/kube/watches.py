"""All watches of the cluster: a pass reads only from these and sends no request.

They run on a standby replica too, so that a new leader has the cluster's state at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from slopewise.adapters.kube.cache.parsing import parse_node, parse_object, parse_other_pod, parse_pod
from slopewise.adapters.kube.cache.records import MANAGED_LABEL, NodeRecord, ObjectRecord, OtherPod, PodRecord
from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, path_of
from slopewise.adapters.kube.observer import Stores
from slopewise.adapters.kube.resize.progress import ResizeProgress
from slopewise.adapters.kube.state.freezes import FreezeRecord, freeze_path, parse_freeze
from slopewise.adapters.kube.state.job_growth_object import GrowthRecord, growth_path, parse_growth
from slopewise.adapters.kube.state.training_policies import PolicyRecord, parse_policy, policy_path
from slopewise.adapters.kube.workloads.autoscalers import AutoscalerRecord, parse_autoscaler
from slopewise.errors import ObservationError
from slopewise.signals import StoppedError, StopSignal

SILENT_SECONDS = 60.0
"""An idle watch ends and restarts every 30 s; a broken one is resumed within seconds, and is no trouble."""

SYNC_SECONDS = 30.0
_POLL_SECONDS = 0.05
_OURS = ("jobgrowths", "trainingpolicies", "freezes")

OTHER_PODS: Mapping[str, str] = {
    "labelSelector": f"!{MANAGED_LABEL}",
    "fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
}
"""The pods that take CPU of nodes and are not watched as jobs."""

OnPod = Callable[[PodRecord | None, PodRecord | None], None]
OnFreeze = Callable[[FreezeRecord | None, FreezeRecord | None], None]


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches of one process. None: this variant may not read it."""

    pods: Reflector[PodRecord]
    resizes: ResizeProgress
    """Which pods' kubelets have not carried out accepted resizes."""
    jobs: Reflector[ObjectRecord]
    growths: Reflector[GrowthRecord]
    nodes: Reflector[NodeRecord] | None = None
    namespaces: Reflector[ObjectRecord] | None = None
    policies: Reflector[PolicyRecord] | None = None
    named: Mapping[str, Reflector[Any]] = field(default_factory=dict)
    """All required watches, by resource."""
    autoscalers: Reflector[AutoscalerRecord] | None = None
    other_pods: Reflector[OtherPod] | None = None
    """The requests of pods that are not managed."""
    extra: Mapping[str, Reflector[Any]] = field(default_factory=dict)
    """Optional watches, which nothing waits for."""
    freezes: Reflector[FreezeRecord] | None = None

    @property
    def stores(self) -> Stores:
        """The stores of an observer."""
        return Stores(self.pods, self.nodes, self.namespaces, self.autoscalers, self.other_pods)

    def without_freezes(self) -> Watches:
        """The same without the watch of Freezes, which hold back nothing that a person restores."""
        return replace(self, freezes=None, named={name: each for name, each in self.named.items() if name != "freezes"})

    def start(self) -> None:
        """Start to list and watch."""
        for store in self._all.values():
            store.start()

    def stop(self) -> None:
        """End all watches, at the same time: each may take two seconds."""
        with ThreadPoolExecutor(len(self._all)) as pool:
            list(pool.map(lambda store: store.stop(), self._all.values()))

    @property
    def _all(self) -> Mapping[str, Reflector[Any]]:
        return {**self.named, **self.extra}

    def catch_up(self) -> None:
        """Read the JobGrowths as they are now: a new leader's first action.

        The watch may be behind the former leader's last write, while that of the pods is not: CPU that a pod was just
        given would be taken for the original. ApiError when they cannot be read.
        """
        self.growths.read_now()

    def waits_for(self) -> str | None:
        """The watches that have not been read yet, and why; None once all have."""
        missing = {name: store for name, store in self.named.items() if not store.synced}
        # Of the others the first answer, also a refusal: before it their objects are unknown.
        missing |= {name: store for name, store in self.extra.items() if not store.synced and store.failure is None}
        return _with_reasons("waiting for", missing)

    def trouble(self) -> str | None:
        """The watches that have been silent for a while, and why; None: none has."""
        silent = {name: store for name, store in self.named.items() if store.silent_seconds() > SILENT_SECONDS}
        return _with_reasons("the API server sends nothing about", silent)

    def watches(self) -> dict[str, tuple[float, int]]:
        """Seconds since each one's last answer (infinite: never), and how often it broke; for the metrics."""
        return {name: (store.silent_seconds(), store.restarts) for name, store in self._all.items()}


def _with_reasons(message: str, stores: Mapping[str, Reflector[Any]]) -> str | None:
    """The message, the names of these stores and why each of them fails; None: there is none."""
    reasons = sorted({_reason_of(name, store) for name, store in stores.items() if store.failure})
    text = f"{message} {', '.join(stores)}" + (f" ({'; '.join(reasons)})" if reasons else "")
    return text if stores else None


def _reason_of(name: str, store: Reflector[Any]) -> str:
    is_not_served = name in _OURS and isinstance(store.failure, ApiError) and store.failure.is_not_found
    hint = "; are the CustomResourceDefinitions of manifests/crds applied?" if is_not_served else ""
    return f"{store.failure}{hint}"


def make_watches(
    api: Api,
    namespace: str | None,
    on_pod: OnPod,
    on_freeze: OnFreeze = lambda old, new: None,
) -> Watches:
    """The watches of a cluster; of one namespace, without anything that belongs to the cluster, when it is named.

    `on_pod(old, new)` is called for each change of a managed pod, `on_freeze(old, new)` for each of a Freeze.
    """
    resizes = ResizeProgress()

    def changed(old: PodRecord | None, new: PodRecord | None) -> None:
        resizes.note(old, new)
        on_pod(old, new)

    pods = Reflector(
        api, path_of("v1", "pods", namespace), parse_pod, on_change=changed,
        params={"labelSelector": MANAGED_LABEL},
    )  # fmt: skip
    jobs = Reflector(api, path_of("batch/v1", "jobs", namespace), parse_object, metadata_only=True)
    growths = Reflector(api, growth_path(namespace), parse_growth)
    autoscalers = Reflector(api, path_of("autoscaling/v2", "horizontalpodautoscalers", namespace), parse_autoscaler)
    extra: dict[str, Reflector[Any]] = {"horizontalpodautoscalers": autoscalers}
    named: dict[str, Reflector[Any]] = {"pods": pods, "jobs": jobs, "jobgrowths": growths}
    if namespace is not None:
        return Watches(pods, resizes, jobs, growths, named=named, autoscalers=autoscalers, extra=extra)
    nodes = Reflector(api, path_of("v1", "nodes"), parse_node)
    namespaces = Reflector(api, path_of("v1", "namespaces"), parse_object, metadata_only=True)
    policies = Reflector(api, policy_path(), parse_policy)
    freezes = Reflector(api, freeze_path(), parse_freeze, on_change=on_freeze)
    named |= {"nodes": nodes, "namespaces": namespaces, "trainingpolicies": policies, "freezes": freezes}
    other_pods = Reflector(api, path_of("v1", "pods"), parse_other_pod, params=OTHER_PODS)
    extra["otherpods"] = other_pods
    return Watches(
        pods,
        resizes,
        jobs,
        growths,
        nodes,
        namespaces,
        policies,
        named,
        autoscalers,
        other_pods,
        extra,
        freezes,
    )


def wait_for_watches(watches: Watches, stop: StopSignal) -> None:
    """Wait until every watch has been read once; ObservationError after a timeout."""
    deadline = time.monotonic() + SYNC_SECONDS
    while (waits_for := watches.waits_for()) is not None:
        if time.monotonic() > deadline:
            raise ObservationError(f"The cluster cannot be read: {waits_for}; nothing was changed.")
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(stop)
