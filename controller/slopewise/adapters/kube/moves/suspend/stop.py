"""Stops a job at its target: suspends its Job, once all checks hold on a fresh read, and notes on it who did and why.

The pods get SIGTERM and save within their grace period. Nothing resumes the Job but its owner: it carries no step of a
move, so neither `suspend/controller.py` nor the sweeper continues anything. Disruption budgets are not asked, because
its owner wants it to end.
"""

from __future__ import annotations

from collections.abc import Callable

from slopewise.adapters.kube.cache.records import AT_TARGET, STOP, STOPPED, ManagedPod
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused, explain
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.client.retry import update
from slopewise.adapters.kube.moves.stop_note import StopNote, note_on
from slopewise.adapters.kube.moves.suspend.annotation import patch_once
from slopewise.adapters.kube.moves.suspend.begin import GONE, job_path, not_now, suspension_obstacles
from slopewise.model import Outcome, Stop
from slopewise.ports import Clock


class JobStopper:
    """Suspends Jobs for good. Safe from any thread: the Job's version settles a race."""

    def __init__(self, api: Api, clock: Clock, on_written: Callable[[Json], None] = lambda _: None) -> None:
        """`on_written` gets what was written, so that the store need not wait for the watch."""
        self._api = api
        self._clock = clock
        self._on_written = on_written

    def stop(self, stop: Stop, managed: ManagedPod, policy: str) -> Outcome[Stop]:
        """Suspend the pod's Job; `infeasible` where its owner is none. NotLeadingError without the lease."""
        reason = _no_job(managed)
        if reason is not None:
            return Outcome(stop, "infeasible", reason)
        note = StopNote(round(self._clock.now(), 3), stop.reason, policy)
        path = job_path(managed.pod.namespace, managed.workload.name)
        try:
            refused = update(lambda job: self._suspend(job, managed, note), lambda: self._api.get(path))
        except ApiError as error:
            refused = explain(error, "suspend")
        if refused is not None:
            return Outcome(stop, refused.result, refused.detail)
        return Outcome(stop, "applied", f"{stop.reason}; its Job is suspended, and its pods save and end")

    def _suspend(self, job: Json, managed: ManagedPod, note: StopNote) -> Refused | None:
        """One patch, unless something is in the way; ApiError where nothing was done."""
        if job["metadata"]["uid"] != managed.workload.uid:
            return GONE
        if note_on(job) is not None:
            return None
        refused = not_now(job) or next(suspension_obstacles(job), None) or _not_asked_for(job)
        if refused is not None:
            return refused
        meta = job["metadata"]
        body = {
            "metadata": {
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
                "annotations": {STOPPED: note.written()},
            },
            "spec": {"suspend": True},
        }
        path = job_path(meta["namespace"], meta["name"])
        return patch_once(self._api, path, body, lambda found: note_on(found) == note, self._on_written)


def _no_job(managed: ManagedPod) -> str | None:
    """Why its owner is nothing that can be suspended; None: it is a Job that no other object is known to control."""
    owner, workload = managed.pod.owner, managed.workload
    if owner is None:
        return "a bare pod cannot be suspended; run it as a Job"
    if owner.kind != "Job" or owner.api_version != "batch/v1":
        return f"a {owner.kind} is not suspended, only a Job of batch/v1 is; run it as a Job"
    if workload.uid != owner.uid:
        return f"its {workload.kind} {workload.name} would resume its Job at once; run it as a Job of its own"
    return None


def _not_asked_for(job: Json) -> Refused | None:
    """The owner's wish in the template; the admission policy checks the same."""
    annotations = (job["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    if annotations.get(AT_TARGET) == STOP:
        return None
    only = f"the annotation {AT_TARGET}: {STOP} is on its pod alone; put it on the Job's pod template too"
    return Refused("infeasible", only, "rule")
