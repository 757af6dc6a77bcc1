"""Finds why a workload with stored memory has no pod on a node: moved, waiting, suspended by others, or ended.

`observer.py` calls it in every pass; the result is `ClusterSnapshot.absent`, from which `reporting/pass_reporter.py`
updates JobGrowths and `feedback/move_tracking.py` closes the moves of Jobs that were suspended meanwhile. What only an
owner's spec shows is read once, and again when the spec has changed (`moves/owner_cache.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from slopewise.adapters.kube.cache.records import ObjectRecord, PodRecord
from slopewise.adapters.kube.client.protocol import Api, Store
from slopewise.adapters.kube.moves.owner_cache import OwnerReading, Pause
from slopewise.adapters.kube.state.job_memory import Remembered
from slopewise.adapters.kube.workloads.owners import Identity
from slopewise.model import Absence, JobUid, MoveUnderWay


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
            elif (pause := self._pause(each)) is not None:
                yield Absence(uid, pause.state, pause.reason, name)

    def _pause(self, job: Remembered) -> Pause | None:
        slot = JobUid.of(job.job_uid).slot
        return self._reading.pause(job.namespace, job.workload, slot, self._generation(job))

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
