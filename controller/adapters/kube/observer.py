"""The Observer port of a cluster: what the watches and Prometheus know, as one snapshot for one policy.

`watching.py` keeps the stores, `owners.py` says whose pods they are, `standing.py` what each pod's own object says, and
`prometheus.py` what is measured; `joining.py` puts them together, and `reconcile.py` gets the result. This is also the
Roster: whoever carries a decision out asks it who a job's uid is. A pass makes no call to the API server: everything is
in the stores, except that an owner which was never seen before is read once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from controller.adapters.kube.absences import Absences
from controller.adapters.kube.arriving import arrivals
from controller.adapters.kube.autoscalers import AutoscalerRecord, Autoscalers, Target, autoscaler_of
from controller.adapters.kube.contracts import Store
from controller.adapters.kube.eligibility import other_resizer
from controller.adapters.kube.joining import FirstSights, jobs, with_cpu
from controller.adapters.kube.mobilities import Mobilities, Moving
from controller.adapters.kube.owners import Identity, Owners, Resolution
from controller.adapters.kube.records import MANAGED_LABEL, MOVE, ManagedPod, NodeRecord, ObjectRecord, PodRecord
from controller.adapters.kube.resize_progress import WaitedSeconds, nothing_awaited
from controller.adapters.kube.standing import Standing, standing
from controller.adapters.kube.unreported import REMEDIES, explained
from controller.adapters.missing_evaluations import MissingEvaluations
from controller.adapters.prometheus import PrometheusReading, Scope
from controller.adapters.prometheus_http import Target as ScrapeTarget
from controller.adapters.prometheus_resources import Machine
from controller.adapters.prometheus_series import JobKey
from controller.errors import ObservationError
from controller.model import Absence, Arrival, ClusterSnapshot, CpuAllocation, Job, Mobility, MoveUnderWay, Node
from controller.ports import Clock
from controller.settings import Selection, TrainingPolicySpec

MAX_SILENCE_SECONDS = 120.0
"""A watch ends, and says so, every 30 s, and is given up 10 s later: after three of those nobody is there."""

SHOWN_AFTER_END_SECONDS = 600.0
"""How long a job that has ended stays in the snapshot. Its pod may lie in the API server for weeks."""

CLOCKS_DIFFER_SECONDS = 120.0
"""A move that is said to have begun later than so from now was begun by nobody. A tenant may write that on a Job, and
it would never be over: neither its age nor its budget would ever pass."""

_FEW_NAMES = 3


class Reader(Protocol):
    """What is asked of Prometheus (`prometheus.PrometheusReader`)."""

    scrape_interval_seconds: float

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading: ...

    def machines(self, at_seconds: float) -> Mapping[str, Machine]: ...

    def targets(self) -> Sequence[ScrapeTarget]: ...

    def metric_names(
        self, instances: Mapping[JobKey, Collection[str]], at_seconds: float
    ) -> Mapping[JobKey, Collection[str]]: ...


@dataclass(frozen=True, slots=True)
class Stores:
    """The watched objects. None: a controller without cluster rights may not read them."""

    pods: Store[PodRecord]
    nodes: Store[NodeRecord] | None
    """Without it Prometheus tells how large nodes are."""
    namespaces: Store[ObjectRecord] | None
    """Without it a namespace has no labels to be selected by."""
    autoscalers: Store[AutoscalerRecord] | None = None
    """Without it pods are resized also where somebody scales their owner by CPU."""

    def selects(self, selection: Selection, pod: PodRecord) -> bool:
        """Whether the selection picks this pod, its namespace and, once it has one, its node."""
        if pod.labels.get(MANAGED_LABEL) != "true" or not selection.pods.matches(pod.labels):
            return False
        namespace = None if self.namespaces is None else self.namespaces.get("", pod.namespace)
        if not selection.namespaces.matches(namespace.labels if namespace else {}):
            return False
        return pod.node is None or selection.nodes.matches(self.node_labels(pod.node))

    def node_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a node; none where it is not known."""
        node = None if self.nodes is None else self.nodes.get("", name)
        return node.labels if node else {}


class KubeObserver:
    """One policy's view of the cluster. Shapes: `ports.Observer` and `contracts.Roster`."""

    def __init__(
        self,
        stores: Stores,
        owners: Owners,
        reader: Reader,
        select: Callable[[PodRecord], bool],
        spec: TrainingPolicySpec,
        clock: Clock,
        original: Callable[[str], CpuAllocation | None] = lambda _: None,
        moving: Moving | None = None,
        waited_seconds: WaitedSeconds = nothing_awaited,
    ) -> None:
        """`select`: whether this policy manages a pod. `original`: what a job had before our first change, by uid.

        `moving`: None where nothing can be moved, and nobody asks what could. `waited_seconds`: since when what was
        accepted for a pod is not in effect (`ResizeProgress`).
        """
        self._stores = stores
        self._owners = owners
        self._reader = reader
        self._select = select
        self._spec = spec
        self._clock = clock
        self._original = original
        self._waited_seconds = waited_seconds
        self._autoscalers = Autoscalers(stores.autoscalers)
        self._resolution = Resolution({}, {})
        self._standings: dict[str, Standing] = {}
        self._sights = FirstSights()
        self._missing = MissingEvaluations(reader, [spec.evaluation], reader.scrape_interval_seconds, REMEDIES)
        self._movers = None if moving is None else Mobilities(moving, owners.jobs, stores.namespaces)
        self._absences = None if moving is None else Absences(moving.api, owners.jobs, moving.remembered)
        self._mobilities: Mapping[str, Mobility] = {}
        self.behind: Sequence[str] = ()
        """The node of each job of the last snapshot whose kubelet does not carry out what was accepted."""
        self.autoscaled: frozenset[str] = frozenset()
        """Jobs of the last snapshot, by uid, whose owner somebody scales by CPU."""
        self.resized_by_others: Mapping[str, str] = {}
        """Pods of the last snapshot, as `namespace/name`, that somebody else resizes too, and who."""
        self.left_out: Mapping[str, str] = {}
        """Pods, as `namespace/name`, that are not in the last snapshot because too little is known of them, and why."""

    def observe(self) -> ClusterSnapshot:
        """All jobs of this policy; ObservationError when the API server or Prometheus cannot be heard."""
        self._check_heard()
        now = self._clock.now()
        self._resolution = self._owners.resolve(self._stores.pods.items())
        records = {} if self._stores.nodes is None else {node.name: node for node in self._stores.nodes.items()}
        scaled = self._autoscalers.by_target()
        self._standings = {
            uid: self._standing(uid, identity, pod, records.get(pod.node), scaled)
            for uid, (identity, pod) in self._resolution.pods.items()
            if pod.node is not None and self._select(pod)
        }
        moving = self._under_way(now)
        replaced = {each.job_uid for each in moving} | self._resolution.gated.keys()
        shown = [each for each in self._standings.values() if self._is_shown(each, replaced, now)]
        self._mobilities = self._mobilities_of(shown, now)
        reading = self._reader.read(now, _scope(shown))
        found = list(jobs(shown, reading, now, self._sights, self._mobilities, self._waited_seconds))
        found = explained(found, shown, reading, self._missing, now)
        self._sights.end_pass()
        self.autoscaled = frozenset(each.managed.job_uid for each in shown if each.autoscaler is not None)
        self.resized_by_others = {
            f"{each.managed.pod.namespace}/{each.managed.pod.name}": who
            for each in shown
            if not each.managed.pod.ended and (who := other_resizer(each.managed.pod)) is not None
        }
        self.behind = [job.node for job in found if job.unconfirmed is not None and job.unconfirmed.late]
        sizes = _sizes_of_records(records) if self._stores.nodes is not None else self._sizes_of_machines(now)
        self._note_left_out(found, sizes)
        found = [job for job in found if job.node in sizes]
        nodes = self._nodes(sizes, records, found)
        waiting = self._waiting({job.uid for job in found} | {each.job_uid for each in moving}, now)
        scrape_seconds, absent = self._reader.scrape_interval_seconds, self._absent(shown, moving, now)
        return ClusterSnapshot(now, nodes, tuple(found), scrape_seconds, waiting, moving=moving, absent=absent)

    def mobility(self, job_uid: str) -> Mobility | None:
        """How a job of the last snapshot could be moved; None: it is not among them, or not migratable."""
        return self._mobilities.get(job_uid)

    def find(self, job_uid: str) -> ManagedPod | None:
        """The newest that is known of a job's pod, also of one that this policy selects no more; None: it is gone."""
        found = self._resolution.pods.get(job_uid)
        fresh = self._fresh(found)
        if fresh is None:
            self._resolution = self._owners.resolve(self._stores.pods.items())
            found = self._resolution.pods.get(job_uid)
            fresh = self._fresh(found)
        if found is None or fresh is None:
            return None
        known = self._standings.get(job_uid)
        if known is not None and known.managed.pod is fresh:
            return known.managed
        return standing(found[0], fresh, None, None, self._spec).managed

    def workloads_of(self, pod_uids: Collection[str]) -> set[str]:
        """The uids of the workloads that these pods are of, as far as they are jobs of the last snapshot."""
        known = (standing.managed for standing in list(self._standings.values()))
        return {managed.workload.uid for managed in known if managed.pod.uid in pod_uids}

    def with_cpu(self, job: Job) -> Job | None:
        """A job of the last snapshot with the CPU that its pod has by now; None: its pod is another, or gone."""
        known = self._standings.get(job.uid)
        pod = None if known is None else self._stores.pods.get(job.namespace, job.name)
        if known is None or pod is None or pod.uid != known.managed.pod.uid:
            return None
        managed = known.managed
        container = next((each for each in pod.containers if each.name == managed.container.name), managed.container)
        return with_cpu(
            job, replace(known, managed=replace(managed, pod=pod, container=container)), self._waited_seconds
        )

    def _fresh(self, found: tuple[Identity, PodRecord] | None) -> PodRecord | None:
        """The pod as the store has it now; another pod of the same name is not it."""
        if found is None:
            return None
        fresh = self._stores.pods.get(found[1].namespace, found[1].name)
        return fresh if fresh is not None and fresh.uid == found[1].uid else None

    def _check_heard(self) -> None:
        """What was last heard of long ago may be wrong by now: then nothing is known."""
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
                    f"The API server has told nothing of {what} for {silent:.0f} s, bound {MAX_SILENCE_SECONDS:.0f} s; "
                    "see whether it runs and can be reached; nothing is changed meanwhile."
                )

    def _standing(
        self, uid: str, identity: Identity, pod: PodRecord, node: NodeRecord | None, scaled: Mapping[Target, str]
    ) -> Standing:
        original = self._original(uid)
        autoscaler = autoscaler_of(scaled, pod.namespace, identity.workload, pod.owner)
        known = self._standings.get(uid)
        if known is not None and known.still_holds(pod, node, original, autoscaler):
            return known
        return standing(identity, pod, node, original, self._spec, autoscaler)

    def _under_way(self, now_seconds: float) -> tuple[MoveUnderWay, ...]:
        """The moves of this policy's jobs, by the pods that they have now or by what is remembered of them."""
        found = () if self._movers is None else self._movers.under_way(self._selects)
        return tuple(each for each in found if each.since_seconds <= now_seconds + CLOCKS_DIFFER_SECONDS)

    def _selects(self, job_uid: str) -> bool:
        found = self._resolution.pods.get(job_uid)
        return found is not None and self._select(found[1])

    def _mobilities_of(self, shown: Iterable[Standing], now_seconds: float) -> Mapping[str, Mobility]:
        if self._movers is None:
            return {}
        nodes = None if self._stores.nodes is None else self._stores.nodes.items()
        self._movers.begin_pass(nodes, [pod for _, pod in self._resolution.pods.values()], now_seconds)
        return self._movers.of(shown)

    def _waiting(self, elsewhere: Collection[str], now_seconds: float) -> tuple[Arrival, ...]:
        """Pods behind our gate that this policy may place. One whose job is being moved is placed by that."""
        mine = {
            uid: pod
            for uid, (_, pod) in self._resolution.gated.items()
            if uid not in elsewhere and self._select(pod) and not self._job_carries_move(pod)
        }
        refused = (lambda _: {}) if self._movers is None else self._movers.refused_nodes
        return arrivals(mine, self._spec.tenancy.max_weight, now_seconds, refused)

    def _absent(
        self, shown: Iterable[Standing], moving: Iterable[MoveUnderWay], now_seconds: float
    ) -> tuple[Absence, ...]:
        """A pod that is shown speaks for its job, also where too little is known of it to be in the snapshot."""
        if self._absences is None:
            return ()
        here = {each.managed.job_uid for each in shown}
        return self._absences.of(here, self._resolution.pods, moving, now_seconds)

    def _job_carries_move(self, pod: PodRecord) -> bool:
        """Whether its Job is suspended by a move, or its template names a node already because we have moved it."""
        job = self._owners.jobs.get(pod.namespace, pod.owner.name) if pod.owner is not None else None
        return job is not None and MOVE in job.annotations

    def _is_shown(self, standing: Standing, replaced: Collection[str], now_seconds: float) -> bool:
        """A pod that ended by being moved, or has a successor already, says nothing about its job any more."""
        pod = standing.managed.pod
        if not pod.ended:
            return True
        if standing.managed.job_uid in replaced and not self._is_done(pod):
            return False
        return now_seconds - self._sights.at((pod.uid, "ended"), now_seconds) < SHOWN_AFTER_END_SECONDS

    def _is_done(self, pod: PodRecord) -> bool:
        """Whether it ended with success, and its owner counts that. A Job counts a pod that was evicted, but none that
        it ends because it is suspended (such a pod is seen for a second, or by no pass at all); a StatefulSet none.
        """
        of_job = pod.owner is not None and pod.owner.kind == "Job"
        return pod.phase == "Succeeded" and of_job and not self._job_carries_move(pod)

    def _sizes_of_machines(self, now_seconds: float) -> dict[str, tuple[float, int]]:
        machines = self._reader.machines(now_seconds)
        return {name: (machine.cpu_cores, machine.memory_bytes) for name, machine in machines.items()}

    def _note_left_out(self, found: Iterable[Job], sizes: Mapping[str, tuple[float, int]]) -> None:
        """Jobs on nodes of unknown size; when that is all of them, something is set up wrongly and nothing is seen."""
        homeless = {f"{job.namespace}/{job.name}": job.node for job in found if job.node not in sizes}
        if homeless and not sizes:
            names = ", ".join(sorted(set(homeless.values()))[:_FEW_NAMES])
            raise ObservationError(
                f"The size of no node is known ({names} …): nodes may not be read, and Prometheus has no "
                "machine_cpu_cores of them; let it scrape the kubelets' /metrics/cadvisor, or grant the right to read "
                "nodes; nothing is changed meanwhile."
            )
        unknown = {pod: f"the size of its node {node} is not known" for pod, node in homeless.items()}
        self.left_out = {**self._resolution.left_out, **unknown}

    def _nodes(
        self, sizes: Mapping[str, tuple[float, int]], records: Mapping[str, NodeRecord], found: Sequence[Job]
    ) -> tuple[Node, ...]:
        """Every node that jobs are on, and every other one that is selected and could take some."""
        jobs_on: dict[str, list[Job]] = defaultdict(list)
        for job in found:
            jobs_on[job.node].append(job)
        return tuple(
            Node(name, cores, memory, self._requests_max(jobs_on[name]))
            for name, (cores, memory) in sorted(sizes.items())
            if name in jobs_on or self._could_take_jobs(records.get(name))
        )

    def _could_take_jobs(self, node: NodeRecord | None) -> bool:
        if node is None:
            return False
        return node.ready and not node.unschedulable and self._spec.selector.nodes.matches(node.labels)

    def _requests_max(self, jobs_here: Sequence[Job]) -> int | None:
        """What requests may add up to where requests are what is changed: what they were before we came.

        More would take room that the scheduler may have given away. Half a millicore a job on top, because each share
        is rounded: three thirds of 1000m are 333m, and of 1001m 334m.
        """
        if self._spec.resources.control != "requests":
            return None
        originals = sum((self._original(job.uid) or job.allocation).request_millicores for job in jobs_here)
        return originals + math.ceil(len(jobs_here) / 2)


def _scope(standings: Iterable[Standing]) -> Scope:
    """Where the jobs are and what their containers are called: it spares the rows of everybody else's pods.

    Without jobs Prometheus is asked all the same, so that its outage is noticed; of pods without a namespace.
    """
    managed = [standing.managed for standing in standings]
    return Scope(
        namespaces=tuple(sorted({each.pod.namespace for each in managed})) or ("",),
        containers=tuple(sorted({each.container.name for each in managed})),
    )


def _sizes_of_records(records: Mapping[str, NodeRecord]) -> dict[str, tuple[float, int]]:
    """Cores and bytes that a node has to give to pods."""
    return {name: (node.allocatable_millicores / 1000, node.allocatable_memory_bytes) for name, node in records.items()}
