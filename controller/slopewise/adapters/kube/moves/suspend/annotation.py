"""The move of a Job, stored in its annotation `slopewise.dev/move`; how it is written, and how long a Job has no pod.

`suspend/state_machine.py` writes it with every step; `suspend/controller.py` and the sweeper continue from it. The
observer reads the moves under way (`under_way`), and `moves/movability_inputs.py` the owner's affinity beside our pin.
Tenants can write the annotation, so an unreadable one counts as none.

A Job that is restored from a backup, or made from another one's YAML, carries the annotation of that other Job, and may
be suspended and pinned. The uids in the annotation show that it is a copy. A copy is freed and its move is not
continued (`on_a_copy`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from slopewise.adapters.kube.cache.parsing import controlling_owner
from slopewise.adapters.kube.cache.records import MOVE, ObjectRecord, PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, PARAMS, Api, Json, Store
from slopewise.adapters.kube.workloads.eligibility import KUEUE_LABEL
from slopewise.model import JobUid, MoveUnderWay
from slopewise.tracking import FirstSeen

_MAX_KEPT = 4096
"""Parsed annotations in the cache: a pinned Job is checked twice a second for its lifetime."""

_MAX_KEPT_CHARACTERS = 4096
"""Length limit of a cached annotation: ours have 500. Kubernetes takes 256 KiB, and 4096 of those would fill 1 GiB."""

MAX_JOBS = 1000
"""Pods of one Job that are moved together. Their uids take 40 KiB of the 256 KiB that all its annotations may take."""

_LATEST_SECONDS = 253_402_300_799.0
"""The end of the year 9999, the last valid date."""

Step = Literal["leaving", "pinning", "pinned", "unpinning"]
"""`suspend/state_machine.py` defines the steps."""


class JobMove(BaseModel):
    """The state of one Job's move: the annotation, and the Job that carries it."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", allow_inf_nan=False, alias_generator=to_camel, populate_by_name=True
    )

    workload_uid: str
    namespace: str
    name: str
    step: Step
    from_node: str = Field(max_length=253)
    to_node: str = Field(max_length=253)
    since_seconds: float = Field(ge=0, le=_LATEST_SECONDS)
    """When it was begun."""
    step_since_seconds: float = Field(ge=0, le=_LATEST_SECONDS)
    policy: str = Field(max_length=253)
    """The TrainingPolicy that decided on it."""
    job_uids: tuple[str, ...] = Field(min_length=1, max_length=MAX_JOBS)
    """The jobs that move with it: `<workload uid>:<slot>`. The first one names the Job that the annotation was written
    for, so that a template, which cannot contain the uid of a Job made from it, says nothing about that Job."""
    node_affinity: dict[str, Any] | None = None
    """The owner's affinity in the template, which returns when the pin ends."""

    @model_validator(mode="after")
    def _moves_its_own_jobs(self) -> JobMove:
        # The annotation is on a tenant's object: it must not claim that another tenant's job is being moved.
        if not all(uid.startswith(f"{self.workload_uid}:") for uid in self.job_uids):
            raise ValueError("names jobs of another workload")
        return self

    def at(self, step: Step, now_seconds: float) -> JobMove:
        """The same move, one step on."""
        return self.model_copy(update={"step": step, "step_since_seconds": now_seconds})

    def on_a_copy(self, workload_uid: str) -> JobMove:
        """The annotation's meaning on a Job that was copied: a suspension to end, or a pin to watch.

        Worked example: a copy restored at `leaving` is resumed as at `unpinning`, wherever the scheduler puts it.
        """
        step: Step = "unpinning" if self.step in ("leaving", "unpinning") else "pinned"
        job_uids = tuple(str(JobUid(workload_uid, JobUid.of(uid).slot)) for uid in self.job_uids)
        return self.model_copy(update={"workload_uid": workload_uid, "step": step, "job_uids": job_uids})

    def written(self) -> str:
        """The annotation's text."""
        return self.model_dump_json(by_alias=True, exclude={"workload_uid", "namespace", "name"})

    def as_under_way(self) -> tuple[MoveUnderWay, ...]:
        """As in the snapshot, one for each job; nothing once it is over."""
        if self.step == "pinned":
            return ()
        target = "" if self.step == "unpinning" else self.to_node
        step = _WORDS[self.step].format(self.to_node)
        return tuple(MoveUnderWay(uid, self.from_node, target, self.since_seconds, step) for uid in self.job_uids)


_WORDS = {
    "leaving": "saving and ending",
    "pinning": "starting on {}",
    "unpinning": "ending, to start on any node but {}",
}


def moves(jobs: Store[ObjectRecord]) -> Sequence[JobMove]:
    """All Jobs that carry our annotation, also pinned ones whose move is over."""
    return [move for record in jobs.items() if (move := move_of(record)) is not None]


def under_way(jobs: Store[ObjectRecord]) -> Sequence[JobMove]:
    """The moves that are not over. A Job that is being deleted does not return, however long its finalizers stay."""
    found = (move_of(record) for record in jobs.items() if not record.deleting)
    return [move for move in found if move is not None and move.step != "pinned"]


def move_of(record: ObjectRecord) -> JobMove | None:
    """The move of a Job; None where it carries no annotation of ours, or an unreadable one."""
    text = record.annotations.get(MOVE)
    if text is None:
        return None
    is_free = record.owner is None and KUEUE_LABEL not in record.labels
    return _parsed(text, _Carrier(record.uid, record.namespace, record.name, is_free))


def move_on(job: Json) -> JobMove | None:
    """The same from the API server's JSON."""
    meta = job["metadata"]
    text = (meta.get("annotations") or {}).get(MOVE)
    if text is None:
        return None
    is_free = controlling_owner(meta) is None and KUEUE_LABEL not in (meta.get("labels") or {})
    return _parsed(text, _Carrier(meta["uid"], meta["namespace"], meta["name"], is_free))


class _Carrier(NamedTuple):
    """The Job that carries an annotation."""

    uid: str
    namespace: str
    name: str
    is_free: bool
    """No other controller suspends and resumes it. Only such Jobs are suspended, so on others an inherited annotation
    is void."""


def _parsed(text: str, carrier: _Carrier) -> JobMove | None:
    parse = _parsed_once if len(text) <= _MAX_KEPT_CHARACTERS else _parsed_again
    return parse(text, carrier)


def _parsed_again(text: str, carrier: _Carrier) -> JobMove | None:
    try:
        found = json.loads(text)
        written_for = JobUid.of(next(iter(found["jobUids"]))).workload
        whose = {"workloadUid": written_for, "namespace": carrier.namespace, "name": carrier.name}
        move = JobMove.model_validate({**found, **whose})
    except (ValueError, TypeError, LookupError, AttributeError, StopIteration, RecursionError):
        # The last is what 2,000 opening brackets come to; it must not stop everybody else's moves and passes.
        return None
    if written_for == carrier.uid:
        return move
    return move.on_a_copy(carrier.uid) if carrier.is_free else None


_parsed_once = lru_cache(maxsize=_MAX_KEPT)(_parsed_again)


class SuspendedJobs:
    """Counts from the first call of `seconds` that sees a Job so, i.e. from a scrape. Safe from any thread."""

    def __init__(
        self, jobs: Store[ObjectRecord], pods: Store[PodRecord], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._jobs = jobs
        self._pods = pods
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen = FirstSeen[str]()

    def seconds(self) -> list[float]:
        """For how long each of them has had no pod; empty: none is without."""
        with self._lock:
            now, uids = self._monotonic(), self._without_pods()
            self._seen.keep(uids, now)
            return [self._seen.seconds(uid, now) for uid in uids]

    def _without_pods(self) -> list[str]:
        suspended = {
            (move.namespace, move.workload_uid)
            for move in under_way(self._jobs)
            if move.step in ("leaving", "unpinning")
        }
        if not suspended:
            return []
        with_pods = {
            (pod.namespace, pod.owner.uid) for pod in self._pods.items() if pod.owner is not None and not pod.ended
        }
        return [uid for _, uid in suspended - with_pods]


def patch_once(
    api: Api, path: str, body: Json, is_done: Callable[[Json], bool], on_written: Callable[[Json], None]
) -> Refused | None:
    """None once the patch is carried out; ApiError where nothing was done.

    `is_done`: whether a Job that is read has what the patch writes. `on_written` gets the Job as it is then.
    """
    try:
        on_written(api.patch(path, body, MERGE_PATCH, PARAMS))
    except ApiError as error:
        if not error.maybe_done:
            raise
        return _find_out(api, path, is_done, on_written, error)
    return None


def _find_out(
    api: Api, path: str, is_done: Callable[[Json], bool], on_written: Callable[[Json], None], error: ApiError
) -> Refused | None:
    try:
        found = api.get(path)
    except ApiError:
        reason = f"not known whether it was done ({error.message}); the next pass will see"
        return Refused("failed", reason, "trouble", maybe_done=True)
    if not is_done(found):
        return Refused("failed", f"it was not done ({error.message})", "trouble")
    on_written(found)
    return None
