"""Why a workload that a policy remembers has no pod on a node: moved, waiting, suspended by somebody else, or over.

`observer.py` asks in every pass, with the jobs that it has found; `ClusterSnapshot.absent` has the answer, by which
`reporting.py` keeps JobGrowths true and `move_review.py` closes the moves of Jobs that were suspended meanwhile. What
only an owner's spec can tell is read once, and again when the spec has changed (`owner_reading.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.adapters.kube.contracts import Api, Store
from controller.adapters.kube.owner_reading import OwnerReading, Pause
from controller.adapters.kube.owners import Identity
from controller.adapters.kube.records import ObjectRecord, OwnerRef, PodRecord
from controller.model import Absence, MoveUnderWay


@dataclass(frozen=True, slots=True)
class Remembered:
    """A job that a policy has managed before."""

    job_uid: str
    workload: OwnerRef
    namespace: str


class Absences:
    """Keeps what was read from pass to pass. One for each policy; used by the thread of its passes."""

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
        """Of the remembered jobs that are not `here` (uids); `pods`: all that are known, by the uid of their job."""
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
            elif (pause := self._pause(each)) is not None:
                yield Absence(uid, pause.state, pause.reason, name)

    def _pause(self, job: Remembered) -> Pause | None:
        slot = job.job_uid.rpartition(":")[2]
        return self._reading.pause(job.namespace, job.workload, slot, self._generation(job))

    def _generation(self, job: Remembered) -> int:
        """Of the spec of a Job, which changes when it is suspended; 0 where it is not watched."""
        record = self._jobs.get(job.namespace, job.workload.name) if job.workload.kind == "Job" else None
        return record.generation if record is not None and record.uid == job.workload.uid else 0


def _waits(pod: PodRecord) -> str:
    if pod.gates:
        return f"its pod {pod.name} waits behind {', '.join(pod.gates)}"
    if pod.unschedulable_since_seconds is not None:
        return f"no node takes its pod {pod.name} just now; `kubectl describe` it to see why"
    return f"its pod {pod.name} waits for a node"
