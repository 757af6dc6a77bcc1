"""Advances moves of suspended Jobs step by step, and frees Jobs whose pin has no room or no node.

`suspend/state_machine.py` defines the steps. The leader's `MoveController` calls `tick` twice a second, and when a pod
changes. Stores decide whether a check is due; what is written is decided on fresh reads of the API server: a store may
miss a new pod, and resuming beside a running pod would make two writers of one checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from slopewise.adapters.kube.cache.records import NodeRecord, ObjectRecord, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import NotLeadingError
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json, Store, path_of
from slopewise.adapters.kube.client.retry import get_or_none
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, moves
from slopewise.adapters.kube.moves.suspend.begin import job_path, read_live, target_trouble
from slopewise.adapters.kube.moves.suspend.state_machine import (
    ARRIVAL_SECONDS,
    UNSCHEDULABLE_SECONDS,
    Change,
    Facts,
    MoveEnd,
    has_arrived,
    next_change,
    resume_unchanged,
)
from slopewise.ports import Clock
from slopewise.tracking import FirstSeen, OncePerChange

PODS_ENDED_SECONDS = 40.0
"""After so long pods of a deleted node count as ended: Kubernetes' pod garbage collector waits as long before it
deletes them. Pods of a node that only does not answer may still write, and never count as ended."""

NODE_GONE_SECONDS = 5.0
"""A node that is missing for a moment is being registered again."""

NODES_SILENT_SECONDS = 60.0
"""A store that is silent for longer does not show which nodes are deleted."""

REFUSED_SECONDS = 10.0
"""A template that is refused for so long is given up: the Job controller unfreezes it within a second."""

SOON_SECONDS = 0.25
"""Between two checks of a Job whose next step is due."""

PAUSE_SECONDS = 2.0
"""Between two checks while others delay the step: pods that are not ending or not created, an API server in trouble."""

MAX_PAUSE_SECONDS = 10.0
"""Between two checks while pods end. A Job stays suspended until then, so a stale store must not delay it for
longer."""

_DELETED = "it was deleted while it was being moved to {}"


class ReportStep(Protocol):
    """Reports a step of a move."""

    def __call__(self, move: JobMove, message: str, ended: MoveEnd | None, /, *, warning: bool) -> None:
        """`ended` is what the Job's history keeps."""


class SuspendedJobController:
    """All Jobs of the cluster that carry our annotation. One thread calls `tick`."""

    def __init__(
        self,
        api: Api,
        jobs: Store[ObjectRecord],
        pods: Store[PodRecord],
        nodes: Store[NodeRecord] | None,
        clock: Clock,
        report: ReportStep,
        on_written: Callable[[Json], None] = lambda _: None,
    ) -> None:
        """`on_written` gets each Job that was written here, so that the store need not wait for the watch."""
        self._api = api
        self._jobs = jobs
        self._nodes = nodes
        self._clock = clock
        self._report = report
        self._on_written = on_written
        self._pods = _PodsOf(pods)
        self._missing = FirstSeen[str]()
        """Deleted nodes."""
        self._stuck = FirstSeen[str]()
        """Pods without room, by uid. Kubernetes' own time is wrong for a pod that had been gated."""
        self._refused = FirstSeen[str]()
        """Jobs whose template is refused, by uid."""
        self._under_way: Sequence[JobMove] = ()
        """As of the last tick."""
        self._checked_at: dict[str, float] = {}
        self._troubles = OncePerChange[str, str]()
        """The last reported trouble of each Job."""

    def tick(self, after_each: Callable[[], None] = lambda: None) -> None:
        """Advance every move as far as possible; an error of one Job stops no other. `after_each` of them."""
        found = moves(self._jobs)
        self._emit_deleted({move.workload_uid for move in found})
        self._under_way = [move for move in found if move.step != "pinned"]
        uids = {move.workload_uid for move in found}
        self._refused.keep(uids.intersection(self._refused), self._clock.monotonic())
        self._troubles.forget_all_but(uids)
        self._checked_at = {uid: at for uid, at in self._checked_at.items() if uid in uids}
        if not found:
            return
        self._check_nodes(found)
        for move in found:
            if not self._waits(move):
                self._follow_safely(move)
                after_each()

    def _emit_deleted(self, uids: set[str]) -> None:
        """Report Jobs that were deleted during their move."""
        for move in self._under_way:
            job = None if move.workload_uid in uids else self._jobs.get(move.namespace, move.name)
            if move.workload_uid not in uids and (job is None or job.uid != move.workload_uid):
                self._emit_once(move, _DELETED.format(move.to_node))

    # --- what the stores say ---------------------------------------------------------------------------------

    def _check_nodes(self, found: Sequence[JobMove]) -> None:
        """Update since when nodes are missing and pods find no room."""
        now = self._clock.monotonic()
        pods = [pod for move in found for pod in self._pods.of(move)]
        self._stuck.keep({pod.uid for pod in pods if pod.unschedulable_since_seconds is not None}, now)
        nodes = self._nodes
        if nodes is None or not nodes.synced or nodes.silent_seconds() > NODES_SILENT_SECONDS:
            self._missing.keep((), now)
            return
        names = {move.to_node for move in found} | {pod.node for pod in pods if pod.node is not None}
        self._missing.keep({name for name in names if nodes.get("", name) is None}, now)

    def _waits(self, move: JobMove) -> bool:
        """Whether no check is due."""
        pause = self._pause_seconds(move)
        checked_at = self._checked_at.get(move.workload_uid, -math.inf)
        return pause == math.inf or self._clock.monotonic() - checked_at < pause

    def _pause_seconds(self, move: JobMove) -> float:
        """Between two checks; infinite where only a change of its pods allows the next step."""
        if move.workload_uid in self._troubles:
            return PAUSE_SECONDS
        live = self._living(self._pods.of(move))
        if move.step in ("leaving", "unpinning"):
            # A pod that is not ending: the Job controller is slow, or another client has resumed the Job.
            if live and all(pod.deleting for pod in live):
                return MAX_PAUSE_SECONDS
            return PAUSE_SECONDS if live else SOON_SECONDS
        if self._is_missing(move.to_node) or self._unschedulable_seconds(live) >= UNSCHEDULABLE_SECONDS:
            return PAUSE_SECONDS
        if move.step == "pinned":
            return math.inf
        if has_arrived(move, live) or self._clock.now() - move.step_since_seconds >= ARRIVAL_SECONDS:
            return SOON_SECONDS
        return math.inf if live else PAUSE_SECONDS

    def _living(self, pods: Sequence[PodRecord]) -> tuple[PodRecord, ...]:
        return tuple(pod for pod in pods if not pod.ended and self._missing_seconds(pod.node) < PODS_ENDED_SECONDS)

    def _really_living(self, pods: Sequence[PodRecord]) -> tuple[PodRecord, ...]:
        """The same, with a read of each missing node: one that cannot be parsed is missing in the store, too."""
        living = self._living(pods)
        lost = {pod.node for pod in pods if pod.node is not None and pod not in living}
        # By lists of one: our account may not get nodes.
        names = {node: {"fieldSelector": f"metadata.name={node}"} for node in lost}
        there = {node for node, name in names.items() if self._api.get(path_of("v1", "nodes"), name)["items"]}
        return tuple(pod for pod in pods if pod in living or pod.node in there)

    def _is_missing(self, node: str) -> bool:
        return self._missing_seconds(node) >= NODE_GONE_SECONDS

    def _missing_seconds(self, node: str | None) -> float:
        return 0.0 if node is None else self._missing.seconds(node, self._clock.monotonic())

    def _unschedulable_seconds(self, pods: Sequence[PodRecord]) -> float:
        now = self._clock.monotonic()
        return max((self._stuck.seconds(pod.uid, now) for pod in pods if pod.node is None), default=0.0)

    # --- one Job ---------------------------------------------------------------------------------------------

    def _follow_safely(self, move: JobMove) -> None:
        self._checked_at[move.workload_uid] = self._clock.monotonic()
        try:
            is_over = self._follow(move)
        except NotLeadingError:
            return  # another replica leads, and continues
        except ApiError as error:
            if error.is_conflict:
                return  # its status has just changed
            self._emit_once(move, f"its move waits: {error}")
        except Exception as error:
            # An error about one Job, or of the controller, must not delay the others.
            self._emit_once(move, f"its move waits: an error of the controller: {error!r}")
        else:
            if not is_over:
                self._troubles.forget(move.workload_uid)

    def _emit_once(self, move: JobMove, message: str) -> None:
        if self._troubles.is_new(move.workload_uid, message):
            self._report(move, message, None, warning=True)

    def _follow(self, move: JobMove) -> bool:
        """Check one Job and send its next step; True when it is deleted."""
        job = get_or_none(self._api, job_path(move.namespace, move.name))
        if job is None or job["metadata"]["uid"] != move.workload_uid or job["metadata"].get("deletionTimestamp"):
            if move.step != "pinned":
                self._emit_once(move, _DELETED.format(move.to_node))
            return True
        live = self._really_living(read_live(self._api, move.namespace, move.workload_uid))
        change = next_change(move, self._facts(move, job, live), self._clock.now())
        if change is not None:
            self._carry_out(move, job, change)
        return False

    def _facts(self, move: JobMove, job: Json, live: tuple[PodRecord, ...]) -> Facts:
        return Facts(
            job,
            live,
            unschedulable_seconds=self._unschedulable_seconds(live),
            target_trouble=target_trouble(job, move.to_node, self._nodes) if move.step == "leaving" else None,
            target_gone=self._is_missing(move.to_node),
        )

    def _carry_out(self, move: JobMove, job: Json, change: Change) -> None:
        try:
            self._send(move, change)
            self._refused.forget(move.workload_uid)
        except ApiError as error:
            if not (error.is_invalid or error.is_forbidden):
                raise
            now = self._clock.monotonic()
            refused_at = self._refused.at(move.workload_uid, now)
            last_resort = resume_unchanged(move, job, self._clock.now())
            if last_resort is None or now - refused_at < REFUSED_SECONDS:
                raise
            self._send(move, last_resort)

    def _send(self, move: JobMove, change: Change) -> None:
        self._on_written(self._api.patch(job_path(move.namespace, move.name), change.body, MERGE_PATCH, PARAMS))
        self._checked_at.pop(move.workload_uid, None)
        self._report(move, change.message, change.ended, warning=change.warning)


class _PodsOf:
    """The watched pods of each Job; grouped again only when a pod has changed: 5,000 take 1 ms.

    By namespace, too: a tenant could name another namespace's Job as the owner of a pod that never ends.
    """

    def __init__(self, pods: Store[PodRecord]) -> None:
        self._pods = pods
        self._seen: Sequence[PodRecord] | None = None
        self._by_owner: dict[tuple[str, str], list[PodRecord]] = {}

    def of(self, move: JobMove) -> Sequence[PodRecord]:
        pods = self._pods.items()
        if pods is not self._seen:
            self._seen, self._by_owner = pods, {}
            for pod in pods:
                if pod.owner is not None:
                    self._by_owner.setdefault((pod.namespace, pod.owner.uid), []).append(pod)
        return self._by_owner.get((move.namespace, move.workload_uid), ())
