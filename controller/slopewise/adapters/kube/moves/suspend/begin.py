"""Begins to move a Job by suspending it: repeats all checks on fresh reads, then sends one patch.

`suspend/controller.py` continues the move from step to step (`suspend/state_machine.py`). The pass's facts are up to a
minute old, so the Job and its pods are read again: a Job that its controller would resume, or that would not start
again, must not be suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from slopewise.adapters.kube.cache.parsing import controlling_owner, parse_pod
from slopewise.adapters.kube.cache.records import MANAGED_LABEL, ManagedPod, NodeRecord, ObjectRecord, PodRecord
from slopewise.adapters.kube.cache.scheduling_facts import scheduling_facts
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused, explain
from slopewise.adapters.kube.client.protocol import Api, Json, Store, path_of
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.moves.eviction import OnRefused, as_it_is, disruption_refusal
from slopewise.adapters.kube.moves.node_predicates import refusal_by
from slopewise.adapters.kube.moves.recreation import failed_when_ended_reason, foreign_manager, is_finished
from slopewise.adapters.kube.moves.suspend.annotation import MAX_JOBS, JobMove, move_of, move_on, patch_once, under_way
from slopewise.adapters.kube.moves.suspend.state_machine import begun, is_suspended, owners_node_affinity
from slopewise.adapters.kube.workloads.eligibility import KUEUE_LABEL
from slopewise.model import Migrate, Move, MoveUnderWay, Outcome
from slopewise.ports import Clock

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
"""The label that selects a Job's pods."""


def job_path(namespace: str, name: str) -> str:
    """Of one Job."""
    return path_of("batch/v1", "jobs", namespace, name)


def read_live(api: Api, namespace: str, job_uid: str) -> tuple[PodRecord, ...]:
    """The pods of a Job that have not ended, from the API server; ApiError, or ValueError for an unreadable one."""
    found = api.get(path_of("v1", "pods", namespace), {"labelSelector": f"{CONTROLLER_UID}={job_uid}"})
    pods = (parse_pod(each) for each in found["items"])
    return tuple(pod for pod in pods if pod.owner is not None and pod.owner.uid == job_uid and not pod.ended)


def target_trouble(job: Json, node: str, nodes: Store[NodeRecord] | None) -> str | None:
    """Why the Job's pods cannot start on that node; None: they can, as far as is known."""
    template = job["spec"]["template"]
    affinity = owners_node_affinity(job)
    own = {**template["spec"], "affinity": None if affinity is None else {"nodeAffinity": affinity}}
    return refusal_by(nodes, node, scheduling_facts(template.get("metadata") or {}, own))


@dataclass(eq=False)
class JobMover:
    """Begins moves of Jobs. Safe from any thread: the Job's version settles a race of two passes."""

    api: Api
    jobs: Store[ObjectRecord]
    nodes: Store[NodeRecord] | None
    take_turn: Callable[[str, str], str | None]
    """Of node and namespace: None, or a message with the next turn."""
    clock: Clock
    on_written: Callable[[Json], None] = lambda _: None
    """Gets what was written."""
    on_refused: OnRefused = as_it_is

    def under_way(self) -> tuple[MoveUnderWay, ...]:
        """All moves by suspension that are not over, also those that another leader began."""
        return tuple(each for move in under_way(self.jobs) for each in move.as_under_way())

    def begin(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str]) -> Outcome[Move]:
        """Suspend the Job, so that all of its pods save and end; NotLeadingError without the lease.

        `members` are the jobs that move with it. The first call moves them all, and the others confirm it.
        """
        if self._moves_already(move, managed, policy):
            return Outcome(move, "applied", f"moves to {move.node} with the other pods of its Job")
        begun = self._begin(move, managed, policy, (move.job_uid, *(uid for uid in members if uid != move.job_uid)))
        if isinstance(begun, Refused):
            reason = self.on_refused(managed, begun)
            return Outcome(move, begun.result, reason, maybe_begun=begun.maybe_done)
        how = f"its Job is suspended; once its pods have ended it starts on {move.node}"
        return Outcome(move, "applied", how, begun_at_seconds=begun.since_seconds)

    def _moves_already(self, move: Migrate, managed: ManagedPod, policy: str) -> bool:
        record = self.jobs.get(managed.pod.namespace, managed.workload.name)
        known = None if record is None else move_of(record)
        return (
            known is not None
            and (known.step, known.policy, known.to_node) == ("leaving", policy, move.node)
            and move.job_uid in known.job_uids[1:]
        )

    def _begin(self, move: Migrate, managed: ManagedPod, policy: str, job_uids: tuple[str, ...]) -> Refused | JobMove:
        if len(job_uids) > MAX_JOBS:
            reason = f"its Job has {len(job_uids)} pods, and at most {MAX_JOBS} are moved together"
            return Refused("infeasible", reason, "rule")

        def suspend(job: Json) -> Refused | JobMove:
            if (refused := self._objection(job, move, managed)) is not None:
                return refused
            intent = self._intent(job, move, managed, policy, job_uids)
            sent = patch_once(self.api, path, begun(job, intent), lambda job: move_on(job) == intent, self.on_written)
            return sent or intent

        path = job_path(managed.pod.namespace, managed.workload.name)
        try:
            return update(suspend, lambda: self.api.get(path))
        except ApiError as error:
            return explain(error, "suspend")

    def _objection(self, job: Json, move: Migrate, managed: ManagedPod) -> Refused | None:
        """The first obstacle, from permanent ones to passing ones."""
        if job["metadata"]["uid"] != managed.workload.uid:
            return GONE
        against = not_now(job) or next(_never(job), None) or self._too_old()
        if against is not None:
            return against
        trouble = target_trouble(job, move.node, self.nodes)
        if trouble is not None:
            return Refused("infeasible", f"{move.node} would not take it: {trouble}")
        return self._pods_object(job, managed)

    def _too_old(self) -> Refused | None:
        try:
            version = self.api.server_version()
        except ApiError as error:
            return explain(error, "suspend")
        if version >= SUSPENDS_FROM:
            return None
        reason = f"Jobs are moved from Kubernetes 1.36 on, and this is {version[0]}.{version[1]}"
        return Refused("infeasible", reason, "rule")

    def _pods_object(self, job: Json, managed: ManagedPod) -> Refused | None:
        meta = job["metadata"]
        try:
            live = read_live(self.api, meta["namespace"], meta["uid"])
        except ApiError as error:
            return explain(error, "suspend")
        except ValueError as error:
            return Refused("failed", str(error))
        if not any(pod.uid == managed.pod.uid for pod in live):
            return Refused("failed", "its pod is gone, or has ended")
        if any(pod.deleting for pod in live):
            return Refused("deferred", "a pod of its Job is ending; tried in the next pass")
        refused = disruption_refusal(self.api, live)
        if refused is not None:
            return replace(refused, maybe_done=False)
        waits = self.take_turn(managed.pod.node or "", managed.pod.namespace)
        return None if waits is None else Refused("deferred", waits)

    def _intent(self, job: Json, move: Migrate, managed: ManagedPod, policy: str, job_uids: tuple[str, ...]) -> JobMove:
        now = self.clock.now()
        return JobMove(
            workload_uid=managed.workload.uid,
            namespace=managed.pod.namespace,
            name=managed.workload.name,
            step="leaving",
            from_node=move.from_node,
            to_node=move.node,
            since_seconds=now,
            step_since_seconds=now,
            policy=policy,
            job_uids=job_uids,
            node_affinity=owners_node_affinity(job),
        )


GONE = Refused("failed", "its Job is gone", gone=True)
"""What was to be suspended was deleted, or replaced by another Job of its name."""


def not_now(job: Json) -> Refused | None:
    """Obstacles that pass."""
    if job["metadata"].get("deletionTimestamp"):
        return Refused("failed", "its Job is being deleted", gone=True)
    if is_finished(job):
        return Refused("failed", "its Job has ended", gone=True)
    known = move_on(job)
    if known is not None and known.step != "pinned":
        return Refused("deferred", f"another move of its Job, to {known.to_node}, is under way")
    if is_suspended(job):
        return Refused("deferred", "somebody has suspended its Job; that is respected")
    return None


def _never(job: Json) -> Iterator[Refused]:
    """Obstacles of a move that its owner would have to remove."""
    yield from suspension_obstacles(job)
    if node := job["spec"]["template"]["spec"].get("nodeName"):
        yield Refused("infeasible", f"its template names a node: nodeName {node}", "rule")


def suspension_obstacles(job: Json) -> Iterator[Refused]:
    """Why a Job must not be suspended at all; its owner would have to remove these."""
    meta, spec = job["metadata"], job["spec"]
    template = spec["template"]
    owner = controlling_owner(meta)
    if owner is not None:
        yield Refused("infeasible", f"its owner {owner.kind} {owner.name} would resume its Job at once", "rule")
    if (manager := foreign_manager(spec)) is not None:
        yield Refused("infeasible", f"its Job is run by {manager}, and not by Kubernetes itself", "rule")
    if KUEUE_LABEL in (meta.get("labels") or {}):
        yield Refused("infeasible", "Kueue decides when and where its Job runs", "rule")
    if ((template.get("metadata") or {}).get("labels") or {}).get(MANAGED_LABEL) != "true":
        unlabelled = f"the label {MANAGED_LABEL}=true is on its pod alone; put it on the Job's pod template too"
        yield Refused("infeasible", unlabelled, "rule")
    if (reason := failed_when_ended_reason(spec)) is not None:
        yield Refused("infeasible", reason, "rule")


SUSPENDS_FROM = (1, 36)
"""From this version on the template of a Job that is suspended after it had run takes another node affinity."""
