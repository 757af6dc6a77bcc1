"""Computes the next step of a move by eviction: which pods leave, and which replace them. Pure.

`evict/controller.py` carries it out. A replacement has the same direct owner as the leaving pod, and is younger (both
times are the API server's). The job's uid would not do: both pods have the same for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import PLACED, OwnerRef, PodRecord
from slopewise.crds.conditions import timestamp
from slopewise.crds.job_growth import MoveIntent, PodMove, WorkloadRef

EVICT_SECONDS = 30.0
"""How long a refused eviction is retried after that of another pod was granted."""

TO_BE_EVICTED = "about to be evicted"
ENDING = "saving and ending"
AWAITED = "waiting for its replacement"
STARTING = "starting on {}"
UNPINNED = "starting on any node"


@dataclass(frozen=True, slots=True)
class Step:
    """The message of what is waited for, and the action; no message: nothing more."""

    message: str = ""
    evict: PodRecord | None = None
    release: PodRecord | None = None


def runs(pod: PodRecord) -> bool:
    """Whether it is on a node and not about to leave it."""
    return pod.node is not None and not pod.ended and not pod.deleting


def as_leaving(slot: str, pod: PodRecord, owner: OwnerRef) -> PodMove:
    """A pod that is to be moved, as it is stored."""
    return PodMove(
        slot=slot,
        name=pod.name,
        uid=pod.uid,
        node=pod.node or "",
        created=timestamp(pod.created_at_seconds),
        owner=WorkloadRef(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid),
    )


class Replacements:
    """The pods that replace leaving ones: of the same owner, younger, each for one of them."""

    def __init__(self, pods: Iterable[PodRecord], namespace: str, intent: MoveIntent) -> None:
        owners = {leaving.owner.uid for leaving in intent.pods}
        of_owners = [
            pod for pod in pods if pod.namespace == namespace and pod.owner is not None and pod.owner.uid in owners
        ]
        self._by_uid = {pod.uid: pod for pod in of_owners}
        left = {leaving.uid for leaving in intent.pods}
        young = [pod for pod in of_owners if pod.uid not in left and not pod.deleting]
        self._young = sorted(young, key=lambda pod: (pod.created_at_seconds, pod.name))

    def old(self, leaving: PodMove) -> PodRecord | None:
        """The leaving pod, while it exists."""
        return self._by_uid.get(leaving.uid)

    def take(self, leaving: PodMove) -> PodRecord | None:
        """The pod that has replaced it; None: not yet."""
        created = leaving.created.timestamp()
        for pod in self._young:
            owner = "" if pod.owner is None else pod.owner.uid
            if owner == leaving.owner.uid and pod.created_at_seconds > created:
                self._young.remove(pod)
                return pod
        return None


def next_step(leaving: PodMove, intent: MoveIntent, replacements: Replacements, age_seconds: float) -> Step:
    """Of one leaving pod, in a move of this age."""
    old = replacements.old(leaving)
    if old is not None and not old.ended:
        if old.deleting:
            return Step(ENDING)
        # Its eviction was refused, or was never sent: retried for a while, then it stays.
        return Step(TO_BE_EVICTED, evict=old) if age_seconds <= EVICT_SECONDS else Step()
    if old is not None and old.phase == "Succeeded" and leaving.owner.kind == "Job":
        return Step()  # counted as done; a StatefulSet starts it again
    new = replacements.take(leaving)
    if new is None:
        return Step(AWAITED)
    starting = STARTING.format(intent.node) if intent.node else UNPINNED
    if new.waits_for_us:
        return Step(starting, release=new)
    if new.node is not None or PLACED not in new.annotations:
        return Step()
    # Where the node was given up, a pod that is still pinned to it is evicted next, and another one comes.
    return Step(starting if intent.node else AWAITED)
