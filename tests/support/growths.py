"""Workloads with JobGrowths, for tests of the memory and of what is reported: over a real (small) API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from msgspec import structs
from support.managed_pods import NAMESPACE, a_managed_pod

from slopewise.adapters.kube.cache.records import ManagedPod, OwnerRef
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.state.job_growth_object import GrowthRecord, growth_path, parse_growth
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.job_memory import KubeMemory
from slopewise.adapters.kube.state.status_writer import StatusDocument, StatusSender, StatusWriter

GROWTHS = f"/apis/slopewise.dev/v1alpha1/namespaces/{NAMESPACE}/jobgrowths"
T = TypeVar("T")


def a_workload(name: str, kind: str = "Job", uid: str = "") -> OwnerRef:
    return OwnerRef("batch/v1" if kind == "Job" else "v1", kind, name, uid or f"uid-of-{name}")


@dataclass
class Pods:
    """The job index of a test: pods by job uid."""

    by_job: dict[str, ManagedPod] = field(default_factory=dict)

    def add(self, workload: OwnerRef | str, slot: str = "0", *, pod_uid: str = "", node: str = "n1") -> str:
        """A pod of a workload; returns its job's uid."""
        owner = a_workload(workload) if isinstance(workload, str) else workload
        name = f"{owner.name}-{slot}"
        pod = structs.replace(a_managed_pod(node=node).pod, uid=pod_uid or f"pod-of-{name}", name=name)
        job_uid = f"{owner.uid}:{slot}"
        self.by_job[job_uid] = ManagedPod(job_uid, owner, slot, pod, pod.containers[0])
        return job_uid

    def find(self, job_uid: str) -> ManagedPod | None:
        return self.by_job.get(job_uid)


@dataclass
class Listed(Generic[T]):
    """A store that reads a list whenever it is asked: a watch that is never late."""

    api: Api
    path: str
    parse: Callable[[dict[str, Any]], T]
    synced: bool = True

    def silent_seconds(self) -> float:
        return 0.0

    def observe(self, obj: dict[str, Any]) -> None:
        """It knows that."""

    def items(self) -> list[T]:
        return [self.parse(each) for each in self.api.get(self.path)["items"]]

    def get(self, namespace: str, name: str) -> T | None:
        return next((each for each in self.items() if getattr(each, "name", "") == name), None)


@dataclass
class HeldBack:
    """A writer that keeps what was submitted until it is asked to write."""

    send: Callable[[StatusDocument], bool]
    waiting: dict[str, tuple[StatusDocument, bool]] = field(default_factory=dict)

    def submit(self, document: StatusDocument, *, transition: bool) -> None:
        urgent = transition or self.waiting.get(document.key, (document, False))[1]
        self.waiting[document.key] = (document, urgent)

    def forget(self, document: StatusDocument) -> None:
        self.waiting.pop(document.key, None)

    def write(self) -> None:
        """Everything that waits, in the order in which it came."""
        waiting, self.waiting = self.waiting, {}
        for document, _ in waiting.values():
            self.send(document)

    def urgent(self) -> set[str]:
        """The keys of what may not wait."""
        return {key for key, (_, urgent) in self.waiting.items() if urgent}


class Replica:
    """One controller process, as far as its memory goes: a book, a writer that is held back, and policies' views."""

    def __init__(self, api: KubeApi, pods: Pods, may_write: Callable[[], bool] = lambda: True) -> None:
        self.pods = pods
        sender = StatusSender(FencedApi(api, may_write))
        self.writer = HeldBack(sender.send)
        self.store: Listed[GrowthRecord] = Listed(api, growth_path(), parse_growth)
        self.job_growths = JobGrowthStore(self.store, sender, as_writer(self.writer))

    def memory(self, policy: str = "training", **more: Any) -> KubeMemory:
        """A policy's view."""
        return KubeMemory(policy, self.job_growths, self.pods, **more)


def as_writer(held_back: HeldBack) -> StatusWriter:
    """The same shape, for the type checker."""
    return cast("StatusWriter", held_back)
