"""The mobility of all jobs of a policy that may be moved: gathers what `mobility.py` weighs, once a pass.

Before it: `observer.py`, with the standings of the pass. After it: `Job.mobility`. Jobs that are not migratable cost
nothing; for the others everything is looked up in stores, but for what `owner_reading.py` has to ask.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.adapters.kube.absences import Remembered
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api, Store
from controller.adapters.kube.job_moves import move_of
from controller.adapters.kube.job_steps import pin_in
from controller.adapters.kube.mobility import SUSPENDS_FROM, MoveCase, mobility, needs_of
from controller.adapters.kube.move_consent import allows_moves
from controller.adapters.kube.node_fit import NodeFit
from controller.adapters.kube.owner_reading import Disk, OwnerReading, OwnerTemplate
from controller.adapters.kube.records import ManagedPod, NodeRecord, ObjectRecord, PodRecord, SchedulingFacts
from controller.adapters.kube.standing import Standing
from controller.model import Mobility, MoveUnderWay

_BARE = OwnerTemplate()


@dataclass(frozen=True, slots=True)
class Moving:
    """What an observer has to know of moves beside pods and nodes."""

    api: Api
    under_way: Callable[[], Sequence[MoveUnderWay]]
    """All of the cluster."""
    is_ours: Callable[[str], bool]
    """Whether this policy remembers a job of that uid: between two pods nothing else tells."""
    made: Callable[[str], int]
    """How often a job has been moved so far."""
    remembered: Callable[[], Iterable[Remembered]] = tuple
    """All jobs of this policy, also those without a pod."""
    backoff: Callable[[ManagedPod], str | None] = lambda _: None
    """Why no move of a job is begun just now: the last one could not be (`move_backoff.py`)."""


class Mobilities:
    """Keeps what was read from pass to pass. One for each policy; used by the thread of its passes."""

    def __init__(
        self, moving: Moving, jobs: Store[ObjectRecord], namespaces: Store[ObjectRecord] | None = None
    ) -> None:
        """`namespaces`: None where they may not be read."""
        self._moving = moving
        self._jobs = jobs
        self._namespaces = namespaces
        self._reading = OwnerReading(moving.api)
        self._nodes: Sequence[NodeRecord] | None = None
        self._pods: Iterable[PodRecord] = ()
        self._fit: NodeFit | None = None
        self._rooms_known = False

    def under_way(self, selected: Callable[[str], bool]) -> tuple[MoveUnderWay, ...]:
        """The moves of this policy's jobs; `selected`: whether it manages the pod that a job has now."""
        return tuple(
            each for each in self._moving.under_way() if selected(each.job_uid) or self._moving.is_ours(each.job_uid)
        )

    def begin_pass(self, nodes: Sequence[NodeRecord] | None, pods: Iterable[PodRecord], now_seconds: float) -> None:
        """`nodes`: None where nobody may know; `pods`: all that are known, with what they reserve."""
        self._reading.begin_pass(now_seconds)
        self._nodes, self._pods, self._rooms_known = nodes, pods, False

    def of(self, standings: Iterable[Standing]) -> dict[str, Mobility]:
        """By job uid, of those that may be moved."""
        standings = [each for each in standings if not each.managed.pod.ended]
        movable = [each for each in standings if each.asked.migratable and each.managed.pod.scheduling is not None]
        if not movable:
            return {}
        can_suspend = self._can_suspend()
        workloads: dict[str, list[ManagedPod]] = defaultdict(list)
        for each in standings:
            workloads[each.managed.workload.uid].append(each.managed)
        fit = self._node_fit()
        return {each.managed.job_uid: self._mobility(each, workloads, can_suspend, fit) for each in movable}

    def _mobility(
        self,
        standing: Standing,
        workloads: Mapping[str, Sequence[ManagedPod]],
        can_suspend: bool | None,
        fit: NodeFit | None,
    ) -> Mobility:
        found = mobility(self._case(standing, workloads, can_suspend), fit)
        backoff = self._moving.backoff(standing.managed) if found.stays_because is None else None
        return found if backoff is None else replace(found, backoff_reason=backoff)

    def refused_nodes(self, pod: PodRecord) -> Mapping[str, str]:
        """The nodes that would not take a pod that waits for us, by name, and why."""
        facts, fit = pod.scheduling, self._node_fit()
        if facts is None or fit is None:
            return {}
        needs = needs_of(facts, facts.affinity_json, self._disks(pod.namespace, facts))
        return fit.refused(needs, sum(each.wished.request_millicores for each in pod.containers))

    def _node_fit(self) -> NodeFit | None:
        """The same as in the pass before while no node has changed: a store hands out a new list when one has."""
        if self._nodes is None:
            return None
        if self._fit is None or self._fit.nodes is not self._nodes:
            self._fit, self._rooms_known = NodeFit(self._nodes), False
        if not self._rooms_known:
            self._fit.set_requests(_requests(self._pods))
            self._rooms_known = True
        return self._fit

    def _can_suspend(self) -> bool | None:
        try:
            return self._moving.api.server_version() >= SUSPENDS_FROM
        except ApiError:
            return None

    def _case(
        self, standing: Standing, workloads: Mapping[str, Sequence[ManagedPod]], can_suspend: bool | None
    ) -> MoveCase:
        managed, pod = standing.managed, standing.managed.pod
        record = self._job_of(pod)
        scheduling = pod.scheduling or SchedulingFacts()
        template = _BARE
        if pod.owner is not None:
            template = self._reading.template(pod.namespace, pod.owner, record.generation if record else 0)
        return MoveCase(
            managed=managed,
            original=standing.original or managed.container.wished,
            scheduling=scheduling,
            owner_record=record,
            owner_affinity_json=_owners_affinity(record, template),
            template=template,
            disks=self._disks(pod.namespace, scheduling),
            members=tuple(sorted(workloads[managed.workload.uid], key=lambda each: each.job_uid)),
            can_suspend=can_suspend,
            moves_made=self._moving.made(managed.job_uid),
            moves_allowed=allows_moves(self._namespaces, pod.namespace),
        )

    def _job_of(self, pod: PodRecord) -> ObjectRecord | None:
        """The pod's own Job; one of the same name that is another one is not it."""
        if pod.owner is None or pod.owner.kind != "Job":
            return None
        record = self._jobs.get(pod.namespace, pod.owner.name)
        return record if record is not None and record.uid == pod.owner.uid else None

    def _disks(self, namespace: str, scheduling: SchedulingFacts) -> dict[str, Disk]:
        claims = {volume.claim for volume in scheduling.volumes if volume.claim}
        return {claim: self._reading.disk(namespace, claim) for claim in sorted(claims)}


def _requests(pods: Iterable[PodRecord]) -> dict[str, int]:
    """Millicores that are reserved on each node."""
    reserved: dict[str, int] = defaultdict(int)
    for pod in pods:
        if pod.node is not None and not pod.ended:
            reserved[pod.node] += sum(each.wished.request_millicores for each in pod.containers)
    return reserved


def _owners_affinity(record: ObjectRecord | None, template: OwnerTemplate) -> str:
    """What its owner wrote: a Job that we have moved keeps our pin in its template, and the owner's wish beside it.

    Without that pin the template is the owner's own: of a copy, which comes with the annotation, he may have edited it.
    """
    move = None if record is None else move_of(record)
    affinity = json.loads(template.affinity_json or "{}")
    if move is None or pin_in(affinity, move) is None:
        return template.affinity_json
    affinity |= {"nodeAffinity": move.node_affinity}
    return json.dumps({key: value for key, value in affinity.items() if value}, sort_keys=True)
