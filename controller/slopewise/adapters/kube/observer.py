"""The Observer port of a cluster: joins watched objects and Prometheus into one snapshot for one policy.

A pass makes no call to the API server: watches fill the stores (`cache/reflector.py`), and only an owner that was never
seen is read, once. `owners.py` finds the workload of a pod, `workloads/job_facts.py` reads the pod's own object,
`prometheus/reader.py` the measurements, and `snapshot.py` joins them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from slopewise.adapters.kube.cache.records import (
    MANAGED_LABEL,
    MOVE,
    STOPPED,
    NodeRecord,
    ObjectRecord,
    OtherPod,
    PodRecord,
)
from slopewise.adapters.kube.capacity import Capacity, Others, reserved_cores
from slopewise.adapters.kube.client.protocol import Store
from slopewise.adapters.kube.moves.absences import Absences, arrivals
from slopewise.adapters.kube.moves.movability_inputs import MovabilityInputs, Moving
from slopewise.adapters.kube.resize.progress import WaitedSeconds
from slopewise.adapters.kube.snapshot import REMEDIES, Reader, explained, jobs, with_cpu
from slopewise.adapters.kube.workloads.autoscalers import AutoscalerRecord, Autoscalers, ScaledBy, Target, scaled_by
from slopewise.adapters.kube.workloads.eligibility import other_resizer
from slopewise.adapters.kube.workloads.job_facts import JobFacts, facts_of
from slopewise.adapters.kube.workloads.owners import Identity, Owners, Resolution, WatchedJobIndex
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.missing_evaluations import MissingEvaluations
from slopewise.adapters.prometheus.reader import PrometheusReading, Scope
from slopewise.config.training_policy import Selection, TrainingPolicySpec
from slopewise.errors import ObservationError
from slopewise.model import (
    NO_FREEZES,
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    Freezes,
    Job,
    MemoryAllocation,
    Movability,
    MoveUnderWay,
    Node,
    Observation,
)
from slopewise.ports import Clock
from slopewise.tracking import FirstSeen

MAX_SILENCE_SECONDS = 120.0
"""A watch ends every 30 s, and is given up 10 s later: after three such periods the API server does not answer."""

SHOWN_AFTER_END_SECONDS = 600.0
"""How long an ended job stays in the snapshot. Its pod may stay in the API server for weeks."""

CLOCKS_DIFFER_SECONDS = 120.0
"""A move whose start is later than this from now is ignored. A tenant may write such a time on a Job, and its age and
budget would never run out."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The watched objects. None: a controller without cluster rights may not read them."""

    pods: Store[PodRecord]
    nodes: Store[NodeRecord] | None
    """Without it Prometheus provides the sizes of nodes."""
    namespaces: Store[ObjectRecord] | None
    """Without it a namespace has no labels to select by."""
    autoscalers: Store[AutoscalerRecord] | None = None
    """Without it pods are resized also where an autoscaler scales their owner by CPU or by memory."""
    other_pods: Store[OtherPod] | None = None
    """Without it all CPU of a node counts as available, less what containers of others are seen to use."""

    def selects(self, selection: Selection, pod: PodRecord) -> bool:
        """Whether the selection picks this pod, its namespace and, once it has one, its node."""
        if pod.labels.get(MANAGED_LABEL) != "true" or not selection.pods.matches(pod.labels):
            return False
        namespace = None if self.namespaces is None else self.namespaces.get("", pod.namespace)
        if not selection.namespaces.matches(namespace.labels if namespace else {}):
            return False
        return pod.node is None or selection.nodes.matches(self.node_labels(pod.node))

    def node_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a node; none for an unknown node."""
        node = None if self.nodes is None else self.nodes.get("", name)
        return node.labels if node else {}


@dataclass(frozen=True, slots=True)
class KubeNotes:
    """What an observation has besides its snapshot, for the status of the policy."""

    behind: Sequence[str] = ()
    """The node of each job whose kubelet does not carry out accepted resizes."""
    given_up: frozenset[str] = frozenset()
    """Jobs, by uid, whose originals are restored although they are selected (`JobFacts.is_given_up`)."""
    resized_by_others: Mapping[str, str] = field(default_factory=dict)
    """Pods, as `namespace/name`, that others resize too, and who."""
    capacities: Mapping[str, Capacity] = field(default_factory=dict)
    """What each node has left for jobs, by name."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Pods, as `namespace/name`, that the snapshot leaves out for lack of facts, and the reason."""


class KubeObserver:
    """One policy's view of the cluster. Shape: `ports.Observer`."""

    def __init__(
        self,
        stores: Stores,
        owners: Owners,
        index: WatchedJobIndex,
        reader: Reader,
        select: Callable[[PodRecord], bool],
        spec: TrainingPolicySpec,
        clock: Clock,
        original: Callable[[str], CpuAllocation | None] = lambda _: None,
        moving: Moving | None = None,
        waited_seconds: WaitedSeconds = lambda _: None,
        original_memory: Callable[[str], MemoryAllocation | None] = lambda _: None,
        freezes: Callable[[], Freezes] = lambda: NO_FREEZES,
    ) -> None:
        """`select`: whether this policy manages a pod. `original`: what a job had before its first resize, by uid.

        `moving`: None where moves are impossible. `waited_seconds`: since when what was accepted for a pod is not in
        effect (`ResizeProgress`). `freezes`: those of this policy's jobs now.
        """
        self._stores = stores
        self._owners = owners
        self._index = index
        self._reader = reader
        self._select = select
        self._spec = spec
        self._clock = clock
        self._original = original
        self._original_memory = original_memory
        self._waited_seconds = waited_seconds
        self._freezes = freezes
        self._autoscalers = Autoscalers(stores.autoscalers)
        self._resolution = Resolution({}, {})
        self._job_facts: dict[str, JobFacts] = {}
        self._first_seen = FirstSeen[Hashable]()
        """By this process's clock: with a node's clock, five minutes behind, a resize would be rolled back as soon as
        it waits."""
        self._missing = MissingEvaluations(reader, [spec.evaluation], reader.scrape_interval_seconds, REMEDIES)
        self._movers = None if moving is None else MovabilityInputs(moving, owners.jobs, stores.namespaces)
        self._absences = None if moving is None else Absences(moving.api, owners.jobs, moving.remembered)
        self._movability_inputs: Mapping[str, Movability] = {}
        self._others = Others(stores.other_pods, stores.pods, reader.use_of_others)

    def observe(self) -> Observation:
        """All jobs of this policy; ObservationError when the API server or Prometheus does not answer."""
        self._check_freshness()
        now = self._clock.now()
        self._resolution = self._index.refresh()
        records = {} if self._stores.nodes is None else {node.name: node for node in self._stores.nodes.items()}
        scaled = self._autoscalers.by_target()
        self._job_facts = {
            uid: self._facts_of(uid, identity, pod, records.get(pod.node), scaled)
            for uid, (identity, pod) in self._resolution.pods.items()
            if pod.node is not None and self._select(pod)
        }
        self._index.keep({uid: each.managed for uid, each in self._job_facts.items()})
        moving = self._under_way(now)
        replaced = {each.job_uid for each in moving} | self._resolution.gated.keys()
        shown = [each for each in self._job_facts.values() if self._is_shown(each, replaced, now)]
        self._movability_inputs = self._movability_inputs_of(shown, now)
        reading = self._reader.read(now, _scope(shown))
        policy, waited = self._spec.policy.name, self._waited_seconds
        found = list(jobs(shown, reading, now, self._first_seen, self._movability_inputs, waited, policy))
        found = explained(found, shown, reading, self._missing, now)
        self._first_seen.forget_before(now)
        behind = [job.node for job in found if job.unconfirmed is not None and job.unconfirmed.late]
        sizes = self._sizes_of_machines(now) if self._stores.nodes is None else _sizes_of(records)
        left_out = self._left_out(found, sizes, reading)
        found = [job for job in found if job.node in sizes]
        cores = {name: size for name, (size, _) in sizes.items()}
        reserved = reserved_cores(found, self._original)
        capacities = self._others.leave(cores, reserved, {JobKey(job.namespace, job.name) for job in found}, now)
        nodes = self._nodes(sizes, records, found, capacities)
        waiting = self._waiting({job.uid for job in found} | {each.job_uid for each in moving}, now)
        # A shown pod counts as present, also where the snapshot leaves its job out.
        here = {each.managed.job_uid for each in shown}
        absent = () if self._absences is None else self._absences.of(here, self._resolution.pods, moving, now)
        scrape_seconds = self._reader.scrape_interval_seconds
        snapshot = ClusterSnapshot(
            now, nodes, tuple(found), scrape_seconds, waiting, moving=moving, absent=absent, freezes=self._freezes()
        )
        given_up = frozenset(each.managed.job_uid for each in shown if each.is_given_up)
        return Observation(snapshot, KubeNotes(behind, given_up, _resized_by_others(shown), capacities, left_out))

    def movability(self, job_uid: str) -> Movability | None:
        """How a job of the last snapshot could be moved; None: not in it, or not migratable."""
        return self._movability_inputs.get(job_uid)

    def workloads_of(self, pod_uids: Collection[str]) -> set[str]:
        """The uids of the workloads of these pods, as far as they are jobs of the last snapshot."""
        known = (facts.managed for facts in list(self._job_facts.values()))
        return {managed.workload.uid for managed in known if managed.pod.uid in pod_uids}

    def with_cpu(self, job: Job) -> Job | None:
        """A job of the last snapshot with its pod's current CPU; None: the pod was replaced or deleted."""
        known = self._job_facts.get(job.uid)
        pod = None if known is None else self._stores.pods.get(job.namespace, job.name)
        if known is None or pod is None or pod.uid != known.managed.pod.uid:
            return None
        managed = known.managed
        container = next((each for each in pod.containers if each.name == managed.container.name), managed.container)
        return with_cpu(
            job, replace(known, managed=structs.replace(managed, pod=pod, container=container)), self._waited_seconds
        )

    def _check_freshness(self) -> None:
        """ObservationError when a store is not read yet, or has been silent for too long."""
        stores: Mapping[str, Store[object] | None] = {
            "pods": self._stores.pods,
            "nodes": self._stores.nodes,
            "namespaces": self._stores.namespaces,
            "jobs": self._owners.jobs,
        }
        for what, store in stores.items():
            if store is not None and not store.synced:
                raise ObservationError(f"The {what} of the cluster are not read yet; nothing is changed meanwhile.")
            silent = 0.0 if store is None else store.silent_seconds()
            if silent > MAX_SILENCE_SECONDS:
                raise ObservationError(
                    f"The API server has sent nothing about {what} for {silent:.0f} s, "
                    f"bound {MAX_SILENCE_SECONDS:.0f} s; see whether it runs and can be reached; "
                    "nothing is changed meanwhile."
                )

    def _facts_of(
        self, uid: str, identity: Identity, pod: PodRecord, node: NodeRecord | None, scaled: Mapping[Target, ScaledBy]
    ) -> JobFacts:
        original, original_memory = self._original(uid), self._original_memory(uid)
        by = scaled_by(scaled, pod.namespace, identity.workload, pod.owner)
        known = self._job_facts.get(uid)
        if known is not None and known.still_holds(pod, node, (original, original_memory), by):
            return known
        return facts_of(identity, pod, node, original, self._spec, by, original_memory, self._index.changed(identity))

    def _under_way(self, now_seconds: float) -> tuple[MoveUnderWay, ...]:
        """The moves of this policy's jobs, by their current pods or by their stored records."""
        found = () if self._movers is None else self._movers.under_way(self._selects)
        return tuple(each for each in found if each.since_seconds <= now_seconds + CLOCKS_DIFFER_SECONDS)

    def _selects(self, job_uid: str) -> bool:
        found = self._resolution.pods.get(job_uid)
        return found is not None and self._select(found[1])

    def _movability_inputs_of(self, shown: Iterable[JobFacts], now_seconds: float) -> Mapping[str, Movability]:
        if self._movers is None:
            return {}
        nodes = None if self._stores.nodes is None else self._stores.nodes.items()
        self._movers.begin_pass(nodes, [pod for _, pod in self._resolution.pods.values()], now_seconds)
        return self._movers.of(shown)

    def _waiting(self, elsewhere: Collection[str], now_seconds: float) -> tuple[Arrival, ...]:
        """Gated pods that this policy may place. Pods of a job that is being moved are not among them."""
        mine = {
            uid: (identity, pod)
            for uid, (identity, pod) in self._resolution.gated.items()
            if uid not in elsewhere and self._select(pod) and not self._job_carries(MOVE, pod)
        }
        refused = (lambda _: {}) if self._movers is None else self._movers.refused_nodes
        return arrivals(mine, self._spec, now_seconds, refused)

    def _job_carries(self, annotation: str, pod: PodRecord) -> bool:
        """Whether its Job has the note of a move (it is suspended, or pinned to a node), or that of a stop."""
        job = self._owners.jobs.get(pod.namespace, pod.owner.name) if pod.owner is not None else None
        return job is not None and annotation in job.annotations

    def _is_shown(self, facts: JobFacts, replaced: Collection[str], now_seconds: float) -> bool:
        """Whether a pod stands for its job: not one that a move or a stop ended, or that has a successor."""
        pod = facts.managed.pod
        if not pod.ended:
            return True
        if facts.managed.job_uid in replaced and not self._is_done(pod):
            return False
        if pod.deleting and self._job_carries(STOPPED, pod):
            return False
        return now_seconds - self._first_seen.at((pod.uid, "ended"), now_seconds) < SHOWN_AFTER_END_SECONDS

    def _is_done(self, pod: PodRecord) -> bool:
        """Whether it ended with success, and its owner counts that.

        A Job counts a pod that was evicted, but none that it ends because it is suspended (such a pod is seen for a
        second, or by no pass at all); a StatefulSet counts none.
        """
        of_job = pod.owner is not None and pod.owner.kind == "Job"
        return pod.phase == "Succeeded" and of_job and not self._job_carries(MOVE, pod)

    def _sizes_of_machines(self, now_seconds: float) -> dict[str, tuple[float, int]]:
        machines = self._reader.machines(now_seconds)
        return {name: (machine.cpu_cores, machine.memory_bytes) for name, machine in machines.items()}

    def _left_out(
        self, found: Iterable[Job], sizes: Mapping[str, tuple[float, int]], reading: PrometheusReading
    ) -> Mapping[str, str]:
        """Pods with too many series, and jobs on nodes of unknown size, with the reason.

        ObservationError when no node's size is known.
        """
        homeless = {f"{job.namespace}/{job.name}": job.node for job in found if job.node not in sizes}
        if homeless and not sizes:
            names = ", ".join(sorted(set(homeless.values()))[:3])
            raise ObservationError(
                f"The size of no node is known ({names} …): nodes may not be read, and Prometheus has no "
                "machine_cpu_cores of them; let it scrape the kubelets' /metrics/cadvisor, or grant the right to read "
                "nodes; nothing is changed meanwhile."
            )
        unknown = {pod: f"the size of its node {node} is not known" for pod, node in homeless.items()}
        crowded = {
            f"{key.namespace}/{key.pod}": f"it exports {count} series" for key, count in reading.left_out.items()
        }
        return {**self._resolution.left_out, **unknown, **crowded}

    def _nodes(
        self,
        sizes: Mapping[str, tuple[float, int]],
        records: Mapping[str, NodeRecord],
        found: Sequence[Job],
        capacities: Mapping[str, Capacity],
    ) -> tuple[Node, ...]:
        """Every node with jobs, and every other selected node that could take some."""
        jobs_on: dict[str, list[Job]] = defaultdict(list)
        for job in found:
            jobs_on[job.node].append(job)
        return tuple(
            Node(
                name,
                cores,
                memory,
                self._requests_max(jobs_on[name]),
                capacities[name].available_cores,
                memory_pressure=(record := records.get(name)) is not None and record.memory_pressure,
            )
            for name, (cores, memory) in sorted(sizes.items())
            if name in jobs_on or self._could_take_jobs(records.get(name))
        )

    def _could_take_jobs(self, node: NodeRecord | None) -> bool:
        if node is None:
            return False
        return node.ready and not node.unschedulable and self._spec.selector.nodes.matches(node.labels)

    def _requests_max(self, jobs_here: Sequence[Job]) -> int | None:
        """What requests may add up to where requests are resized: their sum before the first resize.

        More would take room that the scheduler may have given away. Half a millicore a job is added, because each share
        is rounded: three thirds of 1000m are 333m, and of 1001m 334m.
        """
        if self._spec.resources.control != "requests":
            return None
        originals = sum((self._original(job.uid) or job.allocation).request_millicores for job in jobs_here)
        return originals + math.ceil(len(jobs_here) / 2)


def _resized_by_others(shown: Iterable[JobFacts]) -> Mapping[str, str]:
    return {
        f"{each.managed.pod.namespace}/{each.managed.pod.name}": who
        for each in shown
        if not each.managed.pod.ended and (who := other_resizer(each.managed.pod)) is not None
    }


def _scope(job_facts: Iterable[JobFacts]) -> Scope:
    """The namespaces and container names of the jobs, so that Prometheus skips all other pods.

    Without jobs Prometheus is queried for pods without a namespace, so that its outage is noticed.
    """
    managed = [facts.managed for facts in job_facts]
    return Scope(
        namespaces=tuple(sorted({each.pod.namespace for each in managed})) or ("",),
        containers=tuple(sorted({each.container.name for each in managed})),
    )


def _sizes_of(records: Mapping[str, NodeRecord]) -> dict[str, tuple[float, int]]:
    """Allocatable cores and bytes of each node."""
    return {name: (node.allocatable_millicores / 1000, node.allocatable_memory_bytes) for name, node in records.items()}
