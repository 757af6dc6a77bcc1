"""Collects the inputs of `moves/movability.py` for all migratable jobs of a policy, once a pass.

Jobs that are not migratable cost nothing; for the others everything comes from stores, except what
`moves/owner_cache.py` reads. A namespace consents to moves by a label of its administrator's, which the admission
policies of manifests/components/moves check too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slopewise.adapters.kube.cache.records import (
    MOVES_ALLOWED,
    MOVES_LABEL,
    ManagedPod,
    NodeRecord,
    ObjectRecord,
    PodRecord,
    SchedulingFacts,
)
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Store
from slopewise.adapters.kube.moves.movability import MoveCase, movability, needs_of
from slopewise.adapters.kube.moves.node_predicates import NodeFit
from slopewise.adapters.kube.moves.owner_cache import Disk, OwnerReading, OwnerTemplate
from slopewise.adapters.kube.moves.suspend.annotation import move_of
from slopewise.adapters.kube.moves.suspend.begin import SUSPENDS_FROM
from slopewise.adapters.kube.moves.suspend.state_machine import pin_in
from slopewise.adapters.kube.state.job_memory import Remembered
from slopewise.adapters.kube.workloads.job_facts import JobFacts
from slopewise.model import Movability, MoveUnderWay

_BARE = OwnerTemplate()


@dataclass(frozen=True, slots=True)
class Moving:
    """The facts about moves that an observer needs beside pods and nodes."""

    api: Api
    under_way: Callable[[], Sequence[MoveUnderWay]]
    """All of the cluster."""
    is_ours: Callable[[str], bool]
    """Whether this policy has memory of a job of that uid: between two pods nothing else shows it."""
    made: Callable[[str], int]
    """How often a job has been moved so far."""
    remembered: Callable[[], Iterable[Remembered]] = tuple
    """All jobs of this policy, also those without a pod."""
    backoff: Callable[[ManagedPod], str | None] = lambda _: None
    """Why no move of a job is begun now: its last one was refused (`moves/backoff.py`)."""


class MovabilityInputs:
    """Caches reads from pass to pass. One for each policy; used by the thread of its passes."""

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
        """`nodes`: None where they may not be read; `pods`: all known pods, with their requests."""
        self._reading.begin_pass(now_seconds)
        self._nodes, self._pods, self._rooms_known = nodes, pods, False

    def of(self, job_facts: Iterable[JobFacts]) -> dict[str, Movability]:
        """By job uid, of those that may be moved."""
        job_facts = [each for each in job_facts if not each.managed.pod.ended]
        movable = [each for each in job_facts if each.requested.migratable and each.managed.pod.scheduling is not None]
        if not movable:
            return {}
        can_suspend = self._can_suspend()
        workloads: dict[str, list[ManagedPod]] = defaultdict(list)
        for each in job_facts:
            workloads[each.managed.workload.uid].append(each.managed)
        fit = self._node_fit()
        found = {}
        for each in movable:
            how = movability(self._case(each, workloads, can_suspend=can_suspend), fit)
            backoff = self._moving.backoff(each.managed) if how.blocked_reason is None else None
            found[each.managed.job_uid] = how if backoff is None else replace(how, backoff_reason=backoff)
        return found

    def refused_nodes(self, pod: PodRecord) -> Mapping[str, str]:
        """The nodes that would refuse a gated pod, by name, with the reason."""
        facts, fit = pod.scheduling, self._node_fit()
        if facts is None or fit is None:
            return {}
        needs = needs_of(facts, facts.affinity_json, self._disks(pod.namespace, facts))
        return fit.refused(needs, sum(each.desired.request_millicores for each in pod.containers))

    def _node_fit(self) -> NodeFit | None:
        """The same object as in the last pass while no node has changed: then the store returns a new list."""
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
        self, facts: JobFacts, workloads: Mapping[str, Sequence[ManagedPod]], *, can_suspend: bool | None
    ) -> MoveCase:
        managed, pod = facts.managed, facts.managed.pod
        record = self._job_of(pod)
        scheduling = pod.scheduling or SchedulingFacts()
        template = _BARE
        if pod.owner is not None:
            template = self._reading.template(pod.namespace, pod.owner, record.generation if record else 0)
        return MoveCase(
            managed=managed,
            original=facts.original or managed.container.desired,
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
        """The pod's own Job; not another one of the same name."""
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
            reserved[pod.node] += sum(each.desired.request_millicores for each in pod.containers)
    return reserved


def _owners_affinity(record: ObjectRecord | None, template: OwnerTemplate) -> str:
    """The owner's affinity: a moved Job keeps our pin in its template, and the owner's affinity beside it.

    Without that pin the template is the owner's own: the owner of a copied Job, which carries the annotation, may have
    edited it.
    """
    move = None if record is None else move_of(record)
    affinity = json.loads(template.affinity_json or "{}")
    if move is None or pin_in(affinity, move) is None:
        return template.affinity_json
    affinity |= {"nodeAffinity": move.node_affinity}
    return json.dumps({key: value for key, value in affinity.items() if value}, sort_keys=True)


def allows_moves(namespaces: Store[ObjectRecord] | None, name: str) -> bool:
    """Whether this namespace opts in; True where namespaces may not be read: the API server decides then."""
    if namespaces is None:
        return True
    namespace = namespaces.get("", name)
    return namespace is not None and namespace.labels.get(MOVES_LABEL) == MOVES_ALLOWED
