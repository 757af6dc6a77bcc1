"""Beginning to move a Job by suspending it: what is asked before, and the one patch that begins it.

Before it: a `Migrate` that every guard let through, for a Job that `mobility.py` says can go this way. After it:
`following.py`, which takes the Job on from step to step (`job_steps.py`). What the pass knew is up to a minute old, so
the Job and its pods are read again here, and whatever cannot be undone is asked for again: a Job that is suspended
although its controller resumes it, or that cannot come back, must not be touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from controller.adapters.kube import budgets
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.coming_back import foreign_manager, why_failed_when_ended
from controller.adapters.kube.contracts import MERGE_PATCH, Api, Json, MayWrite, Store
from controller.adapters.kube.eligibility import KUEUE_LABEL
from controller.adapters.kube.evicting import COMPONENT, OnRefused, Refused, as_it_is
from controller.adapters.kube.job_moves import MOST_JOBS, JobMove, move_of, move_on, under_way
from controller.adapters.kube.job_steps import begun, is_finished, is_suspended, owners_node_affinity
from controller.adapters.kube.mobility import SUSPENDS_FROM
from controller.adapters.kube.node_fit import Needs, NodeFit
from controller.adapters.kube.parsing import controlling_owner, parse_pod
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import (
    FIELD_MANAGER,
    MANAGED_LABEL,
    ManagedPod,
    NodeRecord,
    ObjectRecord,
    PodRecord,
)
from controller.adapters.kube.scheduling import scheduling_facts
from controller.errors import ActuationError
from controller.model import Migrate, MoveOutcome, MoveUnderWay
from controller.ports import Clock

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
"""The label by which a Job's pods are found."""

PARAMS = {"fieldManager": FIELD_MANAGER}

_TRIES = 2
"""A Job's status changes often; a patch that meets such a change is thought over once more."""


def job_path(namespace: str, name: str) -> str:
    """Of one Job."""
    return path_of("batch/v1", "jobs", namespace, name)


def read_live(api: Api, namespace: str, job_uid: str) -> tuple[PodRecord, ...]:
    """The pods of a Job that have not ended, from the API server itself; ApiError, or ValueError for one unreadable."""
    found = api.get(path_of("v1", "pods", namespace), {"labelSelector": f"{CONTROLLER_UID}={job_uid}"})
    pods = (parse_pod(each) for each in found["items"])
    return tuple(pod for pod in pods if pod.owner is not None and pod.owner.uid == job_uid and not pod.ended)


def target_trouble(job: Json, node: str, nodes: Store[NodeRecord] | None) -> str | None:
    """Why the Job's pods cannot start on that node, in words; None: they can, as far as can be known."""
    if nodes is None or not nodes.synced:
        return None
    record = nodes.get("", node)
    if record is None:
        return "there is no such node"
    template = job["spec"]["template"]
    affinity = owners_node_affinity(job)
    own = {**template["spec"], "affinity": None if affinity is None else {"nodeAffinity": affinity}}
    facts = scheduling_facts(template.get("metadata") or {}, own)
    needs = Needs(facts.node_selector, facts.tolerations, facts.affinity_json)
    return NodeFit([record]).refused(needs, 0).get(node)


class JobMover:
    """Begins moves of Jobs. Safe from any thread: what two passes want of one Job is settled by its version."""

    def __init__(
        self,
        api: Api,
        jobs: Store[ObjectRecord],
        nodes: Store[NodeRecord] | None,
        may_write: MayWrite,
        take_turn: Callable[[str, str], str | None],
        clock: Clock,
        on_written: Callable[[Json], None] = lambda _: None,
        on_refused: OnRefused = as_it_is,
    ) -> None:
        """`take_turn(node, namespace)`: None, or when there is another turn; `on_written` gets what was written."""
        self._api = api
        self._jobs = jobs
        self._nodes = nodes
        self._may_write = may_write
        self._take_turn = take_turn
        self._clock = clock
        self._on_written = on_written
        self._on_refused = on_refused

    def under_way(self) -> tuple[MoveUnderWay, ...]:
        """All moves by this way that are not over, also those that another leader has begun."""
        return tuple(each for move in under_way(self._jobs) for each in move.as_under_way())

    def begin(self, move: Migrate, managed: ManagedPod, policy: str, members: Sequence[str]) -> MoveOutcome:
        """Suspend the Job, so that all of its pods save and end; ActuationError when we do not lead.

        `members` are the jobs that move with it. The first call moves them all, and the others are told so.
        """
        self._check_leading()
        if self._moves_already(move, managed, policy):
            return MoveOutcome(move, "applied", f"moves to {move.node} with the other pods of its Job")
        begun = self._begin(move, managed, policy, (move.job_uid, *(uid for uid in members if uid != move.job_uid)))
        if isinstance(begun, Refused):
            why = self._on_refused(managed, begun)
            return MoveOutcome(move, begun.result, why, maybe_begun=begun.maybe_done)
        how = f"its Job is suspended; once its pods have ended it starts on {move.node}"
        return MoveOutcome(move, "applied", how, begun_at_seconds=begun.since_seconds)

    def _moves_already(self, move: Migrate, managed: ManagedPod, policy: str) -> bool:
        record = self._jobs.get(managed.pod.namespace, managed.workload.name)
        known = None if record is None else move_of(record)
        return (
            known is not None
            and (known.step, known.policy, known.to_node) == ("leaving", policy, move.node)
            and move.job_uid in known.job_uids[1:]
        )

    def _begin(self, move: Migrate, managed: ManagedPod, policy: str, job_uids: tuple[str, ...]) -> Refused | JobMove:
        if len(job_uids) > MOST_JOBS:
            why = f"its Job has {len(job_uids)} pods, and at most {MOST_JOBS} are moved together"
            return Refused("infeasible", why, "rule")
        for _ in range(_TRIES):
            job = self._read(managed)
            if isinstance(job, Refused):
                return job
            refused = self._objection(job, move, managed)
            if refused is not None:
                return refused
            try:
                return self._suspend(job, self._intent(job, move, managed, policy, job_uids))
            except ApiError as error:
                if not error.is_conflict:
                    return _meaning(error)
        return Refused("deferred", "its Job changes faster than it can be read; tried in the next pass")

    def _read(self, managed: ManagedPod) -> Json | Refused:
        try:
            job = self._api.get(job_path(managed.pod.namespace, managed.workload.name))
        except ApiError as error:
            return _meaning(error)
        return job if job["metadata"]["uid"] == managed.workload.uid else _GONE

    def _objection(self, job: Json, move: Migrate, managed: ManagedPod) -> Refused | None:
        """Whatever is against it, from what never changes to what may change in a moment."""
        against = _not_now(job) or next(_never(job, managed), None) or self._too_old()
        if against is not None:
            return against
        trouble = target_trouble(job, move.node, self._nodes)
        if trouble is not None:
            return Refused("infeasible", f"{move.node} would not take it: {trouble}")
        return self._pods_object(job, managed)

    def _too_old(self) -> Refused | None:
        try:
            version = self._api.server_version()
        except ApiError as error:
            return _meaning(error)
        if version >= SUSPENDS_FROM:
            return None
        why = f"Jobs are moved from Kubernetes 1.36 on, and this is {version[0]}.{version[1]}"
        return Refused("infeasible", why, "rule")

    def _pods_object(self, job: Json, managed: ManagedPod) -> Refused | None:
        meta = job["metadata"]
        try:
            live = read_live(self._api, meta["namespace"], meta["uid"])
        except ApiError as error:
            return _meaning(error)
        except ValueError as error:
            return Refused("failed", str(error))
        if not any(pod.uid == managed.pod.uid for pod in live):
            return Refused("failed", "its pod is gone, or has ended")
        if any(pod.deleting for pod in live):
            return Refused("deferred", "a pod of its Job is ending; tried in the next pass")
        refused = budgets.refusal(self._api, live)
        if refused is not None:
            return replace(refused, maybe_done=False)
        waits = self._take_turn(managed.pod.node or "", managed.pod.namespace)
        return None if waits is None else Refused("deferred", waits)

    def _intent(self, job: Json, move: Migrate, managed: ManagedPod, policy: str, job_uids: tuple[str, ...]) -> JobMove:
        now = self._clock.now()
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

    def _suspend(self, job: Json, intent: JobMove) -> Refused | JobMove:
        """One patch; one whose answer was lost is looked for. Raises ApiError where nothing was done."""
        self._check_leading()
        try:
            answer = self._api.patch(job_path(intent.namespace, intent.name), begun(job, intent), MERGE_PATCH, PARAMS)
        except ApiError as error:
            if not error.maybe_done:
                raise
            return self._find_out(intent, error)
        self._on_written(answer)
        return intent

    def _find_out(self, intent: JobMove, error: ApiError) -> Refused | JobMove:
        """A patch without an answer may have been carried out: only the Job itself knows."""
        try:
            found = self._api.get(job_path(intent.namespace, intent.name))
        except ApiError:
            why = f"not known whether it was done ({error.message}); the next pass will see"
            return Refused("failed", why, "trouble", maybe_done=True)
        if move_on(found) != intent:
            return Refused("failed", f"it was not done ({error.message})", "trouble")
        self._on_written(found)
        return intent

    def _check_leading(self) -> None:
        if not self._may_write():
            raise ActuationError("this replica does not lead any more; nothing was sent")


_GONE = Refused("failed", "its Job is gone", gone=True)


def _not_now(job: Json) -> Refused | None:
    """What will look different in a while."""
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


def _never(job: Json, managed: ManagedPod) -> Iterator[Refused]:
    """What its owner would have to change."""
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
    if (why := why_failed_when_ended(spec)) is not None:
        yield Refused("infeasible", why, "rule")
    if template["spec"].get("nodeName"):
        yield Refused("infeasible", f"its template names a node: nodeName {template['spec']['nodeName']}", "rule")


def _meaning(error: ApiError) -> Refused:
    """What the API server means when it does not read or patch a Job."""
    said = error.message
    if error.is_gone:
        return _GONE
    if error.is_throttled:
        return Refused("deferred", f"the API server has too much to do ({said})", "trouble")
    if error.is_denied:
        return Refused("infeasible", error.denial, "rule")
    if error.is_forbidden:
        return Refused("infeasible", f"our account may not suspend Jobs; {COMPONENT} ({said})", "rule")
    if error.is_invalid or error.status == 400:
        return Refused("infeasible", f"Kubernetes does not take it ({said})", "rule")
    return Refused("failed", f"the API server did not carry it out ({said})", "trouble")
