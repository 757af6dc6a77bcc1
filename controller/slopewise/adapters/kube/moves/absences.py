"""Jobs of a snapshot that are on no node: stored workloads without a pod there, and gated pods that wait for a place.

The reason of an absence (moved, waiting, suspended by others, ended) goes into `ClusterSnapshot.absent`, from which
`reporting/pass_reporter.py` updates JobGrowths and `feedback/move_tracking.py` closes the moves of Jobs that were
suspended meanwhile. What only an owner's spec shows is read once, and again when the spec has changed
(`moves/owner_cache.py`). `moves/gated_pods.py` carries out the placement of arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from slopewise.adapters.kube.cache.records import PLACE_GATE, ObjectRecord, PodRecord
from slopewise.adapters.kube.client.protocol import Api, Store
from slopewise.adapters.kube.moves.owner_cache import OwnerReading
from slopewise.adapters.kube.state.job_memory import Remembered
from slopewise.adapters.kube.workloads.job_facts import JobFacts, facts_of
from slopewise.adapters.kube.workloads.owners import Identity
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.model import Absence, Arrival, JobUid, MoveUnderWay


class Absences:
    """Caches reads from pass to pass. One for each policy; used by the thread of its passes."""

    def __init__(self, api: Api, jobs: Store[ObjectRecord], remembered: Callable[[], Iterable[Remembered]]) -> None:
        self._jobs = jobs
        self._remembered = remembered
        self._reading = OwnerReading(api)

    def of(
        self,
        here: Collection[str],
        pods: Mapping[str, tuple[Identity, PodRecord]],
        moving: Iterable[MoveUnderWay],
        now_seconds: float,
    ) -> tuple[Absence, ...]:
        """Of stored jobs that are not `here` (uids); `pods`: all known pods, by the uid of their job."""
        self._reading.begin_pass(now_seconds)
        under_way = {each.job_uid: each for each in moving}
        return tuple(self._all(frozenset(here), pods, under_way))

    def _all(
        self,
        here: frozenset[str],
        pods: Mapping[str, tuple[Identity, PodRecord]],
        under_way: Mapping[str, MoveUnderWay],
    ) -> Iterator[Absence]:
        for each in self._remembered():
            uid = each.job_uid
            if uid in here:
                continue
            name = f"{each.namespace}/{each.workload.name}"
            if (move := under_way.get(uid)) is not None:
                yield Absence(uid, "moving", f"moves to {move.node or 'another node'}: {move.step}", name)
            elif uid in pods:
                if pods[uid][1].node is None:
                    yield Absence(uid, "waiting", _waits(pods[uid][1]), name)
            else:
                slot, generation = JobUid.of(uid).slot, self._generation(each)
                if (pause := self._reading.pause(each.namespace, each.workload, slot, generation)) is not None:
                    yield Absence(uid, pause.state, pause.reason, name)

    def _generation(self, job: Remembered) -> int:
        """Of a Job's spec, which changes when it is suspended; 0 where it is not watched."""
        record = self._jobs.get(job.namespace, job.workload.name) if job.workload.kind == "Job" else None
        return record.generation if record is not None and record.uid == job.workload.uid else 0


def _waits(pod: PodRecord) -> str:
    if pod.gates:
        return f"its pod {pod.name} waits behind {', '.join(pod.gates)}"
    if pod.unschedulable_since_seconds is not None:
        return f"no node takes its pod {pod.name} just now; `kubectl describe` it to see why"
    return f"its pod {pod.name} waits for a node"


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
        accelerators=pod.accelerators,
        refused_nodes=refused_nodes,
    )
