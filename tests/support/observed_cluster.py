"""An observer of a cluster whose stores and Prometheus a test fills, and what it sees there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from support.cluster_records import FakeOwnersApi, FakeStore, a_node_record, an_object
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.records import NodeRecord, ObjectRecord, OtherPod, PodRecord
from slopewise.adapters.kube.moves.movability_inputs import Moving
from slopewise.adapters.kube.observer import KubeNotes, KubeObserver, Stores
from slopewise.adapters.kube.workloads.autoscalers import AutoscalerRecord
from slopewise.adapters.kube.workloads.job_facts import trainer_under
from slopewise.adapters.kube.workloads.owners import Owners, WatchedJobIndex
from slopewise.adapters.prometheus.client import Target
from slopewise.adapters.prometheus.container_usage import ContainerKey, ContainerUse, Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading, Scope
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.errors import ObservationError
from slopewise.model import ClusterSnapshot, CpuAllocation, Job, MemoryAllocation


@dataclass
class FakeReader:
    """What Prometheus would say of pods of the namespace `team`, by name, and what it was asked."""

    jobs: dict[str, JobSeries] = field(default_factory=dict)
    uses: dict[str, ContainerUse] = field(default_factory=dict)
    sizes: dict[str, Machine] = field(default_factory=dict)
    scrape_interval_seconds: float = 5.0
    asked: list[Scope] = field(default_factory=list)
    others: dict[str, float] | ObservationError = field(default_factory=dict)
    asked_others: list[tuple[frozenset[str], Container[JobKey]]] = field(default_factory=list)
    left_out: dict[JobKey, int] = field(default_factory=dict)

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading:
        self.asked.append(scope)
        jobs = {JobKey("team", pod): series for pod, series in self.jobs.items()}
        uses = {ContainerKey("team", pod, "trainer"): use for pod, use in self.uses.items()}
        return PrometheusReading(jobs, 4, uses, self.left_out)

    def targets(self) -> list[Target]:
        return [Target({"instance": "10.0.0.1:9464"}, "down", "connect: connection refused")]

    def metric_names(self, instances: Mapping[JobKey, Collection[str]], at_seconds: float) -> dict[JobKey, set[str]]:
        return {key: {"my_val_loss"} for key in instances}

    def use_of_others(
        self, at_seconds: float, namespaces: Collection[str], ours: Container[JobKey]
    ) -> Mapping[str, float]:
        self.asked_others.append((frozenset(namespaces), ours))
        if isinstance(self.others, ObservationError):
            raise self.others
        return self.others

    def machines(self, at_seconds: float) -> Mapping[str, Machine]:
        return self.sizes


@dataclass
class World:
    """A cluster whose parts a test changes between two observations."""

    pods: FakeStore[PodRecord]
    nodes: FakeStore[NodeRecord] | None
    jobs: FakeStore[ObjectRecord]
    reader: FakeReader
    clock: FakeClock
    observer: KubeObserver
    index: WatchedJobIndex
    notes: KubeNotes = field(default_factory=KubeNotes)
    """Of the last observation."""

    def observe(self) -> ClusterSnapshot:
        seen = self.observer.observe()
        assert isinstance(seen.notes, KubeNotes)
        self.notes = seen.notes
        return seen.snapshot

    def job(self) -> Job:
        (job,) = self.observe().jobs
        return job


def world(
    *pods: PodRecord,
    nodes: tuple[NodeRecord, ...] | None = (a_node_record(),),
    spec: Mapping[str, Any] | None = None,
    select: Callable[[PodRecord], bool] = lambda _: True,
    original: Callable[[str], CpuAllocation | None] = lambda _: None,
    original_memory: Callable[[str], MemoryAllocation | None] = lambda _: None,
    api: FakeOwnersApi | None = None,
    waited: Callable[[str], float | None] = lambda _: None,
    autoscalers: FakeStore[AutoscalerRecord] | None = None,
    others: FakeStore[OtherPod] | None = None,
    namespaces: FakeStore[ObjectRecord] | None = None,
    moving: Moving | None = None,
    **series: JobSeries,
) -> World:
    """These pods on these nodes (None: they may not be read), and what Prometheus knows of each pod."""
    store, machines = FakeStore(tuple(pods)), None if nodes is None else FakeStore(nodes)
    reader, clock = FakeReader(series), FakeClock()
    jobs = FakeStore((an_object("train", "job-1"),))
    owners = Owners(jobs, api or FakeOwnersApi())  # type: ignore[arg-type]
    policy = TrainingPolicySpec.model_validate({"resources": {"control": "limits"}, **(spec or {})})
    stores = Stores(store, machines, namespaces, autoscalers, others)
    index = WatchedJobIndex(store, owners, trainer_under(policy))
    observer = KubeObserver(
        stores, owners, index, reader, select, policy, clock, original,
        waited_seconds=waited, original_memory=original_memory, moving=moving,
    )  # fmt: skip
    return World(store, machines, jobs, reader, clock, observer, index)
