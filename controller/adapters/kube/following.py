"""Taking Jobs that are being moved from step to step, and freeing those whose pin leads nowhere any more.

Before it: `suspending.py`, or a leader that is no more. After it: nobody; `job_steps.py` says when a move is over. The
leader's `MoveKeeper` calls `tick` twice a second, and when a pod changes. Stores say whether a look is worth it; what
is then written is decided on what the API server itself says: a store may not have heard of a pod yet, and resuming
beside a pod that still runs would be two writers of one checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import MERGE_PATCH, Api, Json, MayWrite, Store
from controller.adapters.kube.job_moves import JobMove, moves
from controller.adapters.kube.job_steps import (
    ARRIVAL_SECONDS,
    UNSCHEDULABLE_SECONDS,
    Change,
    Facts,
    MoveEnd,
    has_arrived,
    next_change,
    resume_unchanged,
)
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import NodeRecord, ObjectRecord, PodRecord
from controller.adapters.kube.suspending import PARAMS, job_path, read_live, target_trouble
from controller.ports import Clock

PODS_ENDED_SECONDS = 40.0
"""From when on pods of a node that was deleted count as ended: Kubernetes' own garbage collector of pods waits as long
before it deletes them. Never for a node that only does not answer: its pods may still write."""

NODE_GONE_SECONDS = 5.0
"""A node that is missing for a moment is being registered anew."""

NODES_SILENT_SECONDS = 60.0
"""What has not been heard of for longer says nothing about which nodes are gone."""

REFUSED_SECONDS = 10.0
"""A template that is not taken for so long is given up: the Job controller thaws it within a second."""

SOON_SECONDS = 0.25
"""Between two looks at a Job for which something is due, and that did not come to it."""

PAUSE_SECONDS = 2.0
"""The same while that depends on others: pods that are not told to end, or not created, or an API server in trouble."""

LONGEST_PAUSE_SECONDS = 10.0
"""And where only the end of its pods can lead on: a Job stays suspended until then, so no store is waited for."""

_DELETED = "it was deleted while it was being moved to {}"

Tell = Callable[[JobMove, str, bool, MoveEnd | None], None]
"""What became of a move, in words, whether somebody should know, and what is kept of it in the Job's history."""


class JobFollower:
    """All Jobs of the cluster that carry our annotation. One thread calls `tick`."""

    def __init__(
        self,
        api: Api,
        jobs: Store[ObjectRecord],
        pods: Store[PodRecord],
        nodes: Store[NodeRecord] | None,
        may_write: MayWrite,
        clock: Clock,
        tell: Tell,
        on_written: Callable[[Json], None] = lambda _: None,
    ) -> None:
        """`on_written` is handed each Job that was written here, so that the store need not wait for it."""
        self._api = api
        self._jobs = jobs
        self._nodes = nodes
        self._may_write = may_write
        self._clock = clock
        self._tell = tell
        self._on_written = on_written
        self._pods = _PodsOf(pods)
        self._missing = _Sights(clock)
        """Nodes that are gone."""
        self._stuck = _Sights(clock)
        """Pods that find no room, by uid. Kubernetes' own time of that is wrong for a pod that had been gated."""
        self._refused = _Sights(clock)
        """Jobs whose template is not taken, by uid."""
        self._under_way: Sequence[JobMove] = ()
        """As of the last tick."""
        self._looked_at: dict[str, float] = {}
        self._troubles: dict[str, str] = {}
        """What was told of a Job that cannot be taken on."""

    def tick(self, after_each: Callable[[], None] = lambda: None) -> None:
        """Take every move on as far as it goes now; one Job's trouble stops no other's. `after_each` of them."""
        found = moves(self._jobs)
        self._tell_of_deleted({move.workload_uid for move in found})
        self._under_way = [move for move in found if move.step != "pinned"]
        self._forget_all_but({move.workload_uid for move in found})
        if not found:
            return
        self._look_around(found)
        for move in found:
            if not self._may_write():
                return
            if not self._waits(move):
                self._follow_safely(move)
                after_each()

    def _tell_of_deleted(self, uids: set[str]) -> None:
        """Of Jobs that were on their way a moment ago, and are gone altogether."""
        for move in self._under_way:
            job = None if move.workload_uid in uids else self._jobs.get(move.namespace, move.name)
            if move.workload_uid not in uids and (job is None or job.uid != move.workload_uid):
                self._tell_once(move, _DELETED.format(move.to_node))

    # --- what the stores say ---------------------------------------------------------------------------------

    def _look_around(self, found: Sequence[JobMove]) -> None:
        """Since when nodes are gone and pods find no room."""
        pods = [pod for move in found for pod in self._pods.of(move)]
        self._stuck.keep({pod.uid for pod in pods if pod.unschedulable_since_seconds is not None})
        nodes = self._nodes
        if nodes is None or not nodes.synced or nodes.silent_seconds() > NODES_SILENT_SECONDS:
            self._missing.keep(set())
            return
        names = {move.to_node for move in found} | {pod.node for pod in pods if pod.node is not None}
        self._missing.keep({name for name in names if nodes.get("", name) is None})

    def _waits(self, move: JobMove) -> bool:
        """Whether a look would lead to nothing, by all that is known here."""
        pause = self._pause_seconds(move)
        looked_at = self._looked_at.get(move.workload_uid, -math.inf)
        return pause == math.inf or self._clock.monotonic() - looked_at < pause

    def _pause_seconds(self, move: JobMove) -> float:
        """Between two looks; infinite where only a change of its pods can lead on."""
        if move.workload_uid in self._troubles:
            return PAUSE_SECONDS
        live = self._living(self._pods.of(move))
        if move.step in ("leaving", "unpinning"):
            # One that is not even told to end: the Job controller is slow, or somebody has resumed the Job.
            if live and all(pod.deleting for pod in live):
                return LONGEST_PAUSE_SECONDS
            return PAUSE_SECONDS if live else SOON_SECONDS
        if self._is_gone(move.to_node) or self._unschedulable_seconds(live) >= UNSCHEDULABLE_SECONDS:
            return PAUSE_SECONDS
        if move.step == "pinned":
            return math.inf
        if has_arrived(move, live) or self._clock.now() - move.step_since_seconds >= ARRIVAL_SECONDS:
            return SOON_SECONDS
        return math.inf if live else PAUSE_SECONDS

    def _living(self, pods: Sequence[PodRecord]) -> tuple[PodRecord, ...]:
        return tuple(
            pod
            for pod in pods
            if not pod.ended and (pod.node is None or self._missing.seconds(pod.node) < PODS_ENDED_SECONDS)
        )

    def _really_living(self, pods: Sequence[PodRecord]) -> tuple[PodRecord, ...]:
        """The same, but no node is taken for gone on a store's word: one that cannot be read is missing there, too."""
        living = self._living(pods)
        lost = {pod.node for pod in pods if pod.node is not None and pod not in living}
        there = {node for node in lost if self._api_knows(node)}
        return tuple(pod for pod in pods if pod in living or pod.node in there)

    def _api_knows(self, node: str) -> bool:
        """By a list of one: our account may not get nodes."""
        return bool(self._api.get(path_of("v1", "nodes"), {"fieldSelector": f"metadata.name={node}"})["items"])

    def _is_gone(self, node: str) -> bool:
        return self._missing.seconds(node) >= NODE_GONE_SECONDS

    def _unschedulable_seconds(self, pods: Sequence[PodRecord]) -> float:
        return max((self._stuck.seconds(pod.uid) for pod in pods if pod.node is None), default=0.0)

    # --- one Job ---------------------------------------------------------------------------------------------

    def _follow_safely(self, move: JobMove) -> None:
        self._looked_at[move.workload_uid] = self._clock.monotonic()
        try:
            is_over = self._follow(move)
        except ApiError as error:
            if error.is_conflict:
                return  # its status has just changed
            self._tell_once(move, f"its move waits: {error}")
        except Exception as error:
            # Whatever is wrong with one Job, or with us about it, the others wait for nobody.
            self._tell_once(move, f"its move waits: an error of the controller: {error!r}")
        else:
            if not is_over:
                self._troubles.pop(move.workload_uid, None)

    def _tell_once(self, move: JobMove, sentence: str) -> None:
        if self._troubles.get(move.workload_uid) != sentence:
            self._troubles[move.workload_uid] = sentence
            self._tell(move, sentence, True, None)

    def _follow(self, move: JobMove) -> bool:
        """True when there is no such Job any more."""
        try:
            job = self._api.get(job_path(move.namespace, move.name))
        except ApiError as error:
            if not error.is_gone:
                raise
            job = None
        if job is None or job["metadata"]["uid"] != move.workload_uid or job["metadata"].get("deletionTimestamp"):
            if move.step != "pinned":
                self._tell_once(move, _DELETED.format(move.to_node))
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
            target_gone=self._is_gone(move.to_node),
        )

    def _carry_out(self, move: JobMove, job: Json, change: Change) -> None:
        try:
            self._send(move, change)
            self._refused.forget(move.workload_uid)
        except ApiError as error:
            if not (error.is_invalid or error.is_forbidden):
                raise
            self._refused.add(move.workload_uid)
            last_resort = resume_unchanged(move, job, self._clock.now())
            if last_resort is None or self._refused.seconds(move.workload_uid) < REFUSED_SECONDS:
                raise
            self._send(move, last_resort)

    def _send(self, move: JobMove, change: Change) -> None:
        if not self._may_write():
            return
        self._on_written(self._api.patch(job_path(move.namespace, move.name), change.body, MERGE_PATCH, PARAMS))
        self._looked_at.pop(move.workload_uid, None)
        self._tell(move, change.told, change.warning, change.ended)

    def _forget_all_but(self, uids: set[str]) -> None:
        self._refused.keep(self._refused.names & uids)
        for known in (self._looked_at, self._troubles):
            for uid in known.keys() - uids:
                del known[uid]


class _Sights:
    """Since when something is seen, by our own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    @property
    def names(self) -> set[str]:
        return set(self._since)

    def keep(self, names: set[str]) -> None:
        """These are seen now, and no others."""
        now = self._clock.monotonic()
        self._since = {name: self._since.get(name, now) for name in names}

    def add(self, name: str) -> None:
        self._since.setdefault(name, self._clock.monotonic())

    def forget(self, name: str) -> None:
        self._since.pop(name, None)

    def seconds(self, name: str) -> float:
        """0 for what is not seen."""
        since = self._since.get(name)
        return 0.0 if since is None else self._clock.monotonic() - since


class _PodsOf:
    """The watched pods of each Job; sorted anew only when a pod has changed: 5,000 take 1 ms.

    By namespace, too: whoever knows a Job's uid may name it as the owner of a pod of his own, and keep that one ending.
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
