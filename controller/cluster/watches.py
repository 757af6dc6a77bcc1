"""Everything of the cluster that is watched, in one place: what a pass reads, it reads from here and asks nobody.

`process.py` starts these before anything is decided, also on the replica that waits for the lease: a new leader then
knows the cluster at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from controller.adapters.kube.autoscalers import AutoscalerRecord, parse_autoscaler
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.growth_objects import GrowthRecord, growth_path, parse_growth
from controller.adapters.kube.namespace_limits import (
    LimitKind,
    LimitRecord,
    NamespaceLimits,
    parse_limit_range,
    parse_quota,
)
from controller.adapters.kube.observer import Stores
from controller.adapters.kube.parsing import parse_node, parse_object, parse_pod
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.policies import PolicyRecord, parse_policy, policy_path
from controller.adapters.kube.records import MANAGED_LABEL, NodeRecord, ObjectRecord, PodRecord
from controller.adapters.kube.resize_progress import ResizeProgress
from controller.adapters.kube.watching import Reflector

SILENT_SECONDS = 60.0
"""An idle watch is heard of every 30 s; one that broke is taken up again within seconds, and is no trouble."""

_OURS = ("jobgrowths", "trainingpolicies")

OnPod = Callable[[PodRecord | None, PodRecord | None], None]


@dataclass(frozen=True, slots=True)
class Watches:
    """The watches of one process. None: this variant may not read it."""

    pods: Reflector[PodRecord]
    resizes: ResizeProgress
    """Which pods' kubelets have not carried out yet what was accepted."""
    jobs: Reflector[ObjectRecord]
    growths: Reflector[GrowthRecord]
    nodes: Reflector[NodeRecord] | None = None
    namespaces: Reflector[ObjectRecord] | None = None
    policies: Reflector[PolicyRecord] | None = None
    named: Mapping[str, Reflector[Any]] = field(default_factory=dict)
    """All of them that nothing goes on without, by resource."""
    limits: NamespaceLimits = field(default_factory=lambda: NamespaceLimits(lambda _: False))
    """Changes of what may refuse a resize in a namespace."""
    autoscalers: Reflector[AutoscalerRecord] | None = None
    extra: Mapping[str, Reflector[Any]] = field(default_factory=dict)
    """Those that are not waited for: it is known what goes on without them, and what does not."""

    @property
    def stores(self) -> Stores:
        """What an observer reads."""
        return Stores(self.pods, self.nodes, self.namespaces, self.autoscalers)

    def start(self) -> None:
        """Begin to list and watch."""
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
        """Read the JobGrowths as they are at this moment: what a new leader does before anything else.

        The watch may be behind what the former leader wrote last, while the one of the pods is not: the CPU that a pod
        was just given would be taken for what it came with. ApiError when they cannot be read.
        """
        self.growths.read_now()

    def waits_for(self) -> str | None:
        """What has not been read yet, and why, in words; None once everything has."""
        missing = {name: store for name, store in self.named.items() if not store.synced}
        # Of the others the first answer, also one that says no: before it their objects are not known.
        missing |= {name: store for name, store in self.extra.items() if not store.synced and store.failure is None}
        if not missing:
            return None
        reasons = sorted({_why(name, store) for name, store in missing.items() if store.failure})
        return f"waiting for {', '.join(missing)}" + (f" ({'; '.join(reasons)})" if reasons else "")

    def trouble(self) -> str | None:
        """What has not been heard of for a while, and why, in words; None: all of it is."""
        silent = {name: store for name, store in self.named.items() if store.silent_seconds() > SILENT_SECONDS}
        if not silent:
            return None
        reasons = sorted({_why(name, store) for name, store in silent.items() if store.failure})
        told = f"the API server tells nothing of {', '.join(silent)}"
        return told + (f" ({'; '.join(reasons)})" if reasons else "")

    def watches(self) -> dict[str, tuple[float, int]]:
        """Seconds since each was heard of (infinite: never), and how often it broke; for the metrics."""
        return {name: (store.silent_seconds(), store.restarts) for name, store in self._all.items()}


def _why(name: str, store: Reflector[Any]) -> str:
    failure = store.failure or ""
    if name in _OURS and "answered 404" in failure:
        return f"{failure}; are the CustomResourceDefinitions of manifests/crds applied?"
    return failure


def make_watches(
    api: Api, namespace: str | None, on_pod: OnPod, on_limit: Callable[[LimitKind, str], None] = lambda *_: None
) -> Watches:
    """The watches of a cluster; of one namespace, without anything that belongs to the cluster, when it is named.

    `on_pod(old, new)` is called for each change of a managed pod, `on_limit(kind, namespace)` for each of a LimitRange
    or ResourceQuota.
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
    limits, watched = _limits(api, namespace, on_limit)
    autoscalers = Reflector(api, path_of("autoscaling/v2", "horizontalpodautoscalers", namespace), parse_autoscaler)
    extra: dict[str, Reflector[Any]] = {**watched, "horizontalpodautoscalers": autoscalers}
    named: dict[str, Reflector[Any]] = {"pods": pods, "jobs": jobs, "jobgrowths": growths}
    if namespace is not None:
        return Watches(pods, resizes, jobs, growths, named=named, limits=limits, autoscalers=autoscalers, extra=extra)
    nodes = Reflector(api, path_of("v1", "nodes"), parse_node)
    namespaces = Reflector(api, path_of("v1", "namespaces"), parse_object, metadata_only=True)
    policies = Reflector(api, policy_path(), parse_policy)
    named |= {"nodes": nodes, "namespaces": namespaces, "trainingpolicies": policies}
    return Watches(pods, resizes, jobs, growths, nodes, namespaces, policies, named, limits, autoscalers, extra)


def _limits(
    api: Api, namespace: str | None, on_limit: Callable[[LimitKind, str], None]
) -> tuple[NamespaceLimits, Mapping[str, Reflector[LimitRecord]]]:
    parsers: Mapping[LimitKind, Callable[[Json], LimitRecord]] = {
        "limitranges": parse_limit_range,
        "resourcequotas": parse_quota,
    }
    watched: dict[str, Reflector[LimitRecord]] = {}
    limits = NamespaceLimits(lambda kind: watched[kind].silent_seconds() <= SILENT_SECONDS)

    def follow(kind: LimitKind) -> Callable[[LimitRecord | None, LimitRecord | None], None]:
        def changed(old: LimitRecord | None, new: LimitRecord | None) -> None:
            if (record := new or old) is not None:
                limits.note(kind, record.namespace)
                on_limit(kind, record.namespace)

        return changed

    for kind, parse in parsers.items():
        watched[kind] = Reflector(api, path_of("v1", kind, namespace), parse, on_change=follow(kind))
    return limits, watched
