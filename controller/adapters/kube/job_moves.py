"""The move of a Job as it is written on the Job itself: the annotation `slopewise.dev/move`.

`job_steps.py` writes it, with every step. `following.py` and the sweeper go on from it; the observer reads which jobs
are being moved (`under_way`), and `mobilities.py` what their owners wished for beside our pin. It is on a tenant's
object, so it may say anything: what cannot be read counts as none.

A Job that is restored from a backup, or made from the YAML of another one, comes with the annotation that was written
for that one, and may come suspended and pinned by us: nobody else would ever free it. By the uids in the annotation it
is known as a copy, and it is freed and not moved on: what was decided for the other Job is long over (`on_a_copy`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from controller.adapters.kube.contracts import Json, Store
from controller.adapters.kube.eligibility import KUEUE_LABEL
from controller.adapters.kube.parsing import controlling_owner
from controller.adapters.kube.records import MOVE, ObjectRecord
from controller.model import MoveUnderWay

_MOST_KEPT = 4096
"""Annotations that are kept parsed: a pinned Job is looked at twice a second for as long as it lives."""

_LONGEST_KEPT = 4096
"""Characters of one that is: ours have 500. Kubernetes takes 256 KiB, and 4096 of those would fill 1 GiB."""

MOST_JOBS = 1000
"""Pods of one Job that are moved together. Their uids take 40 KiB of the 256 KiB that all its annotations may take."""

_LATEST_SECONDS = 253_402_300_799.0
"""The end of the year 9999: what is later is no date."""

Step = Literal["leaving", "pinning", "pinned", "unpinning"]
"""What each means, and what follows it, is told in `job_steps.py`."""


class JobMove(BaseModel):
    """How far the move of one Job is: the annotation, and the Job that carries it."""

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
    job_uids: tuple[str, ...] = Field(min_length=1, max_length=MOST_JOBS)
    """The jobs that move with it: `<workload uid>:<slot>`. By the first it is known whose the annotation is, so that a
    template, which cannot know the uid of the Job that is made from it, says nothing about that Job."""
    node_affinity: dict[str, Any] | None = None
    """What its owner wrote into the template, and what comes back with the end of the pin."""

    @model_validator(mode="after")
    def _moves_its_own_jobs(self) -> JobMove:
        # The annotation is on a tenant's object: nobody says of another's job that it is being moved.
        if not all(uid.startswith(f"{self.workload_uid}:") for uid in self.job_uids):
            raise ValueError("names jobs of another workload")
        return self

    def at(self, step: Step, now_seconds: float) -> JobMove:
        """The same move, one step on."""
        return self.model_copy(update={"step": step, "step_since_seconds": now_seconds})

    def on_a_copy(self, workload_uid: str) -> JobMove:
        """What the annotation means on another Job that carries it: a suspension that is to end, or a pin to watch.

        Worked example: one that was restored at `leaving` is resumed as at `unpinning`, wherever the scheduler puts it.
        """
        step: Step = "unpinning" if self.step in ("leaving", "unpinning") else "pinned"
        job_uids = tuple(f"{workload_uid}:{uid.partition(':')[2]}" for uid in self.job_uids)
        return self.model_copy(update={"workload_uid": workload_uid, "step": step, "job_uids": job_uids})

    def written(self) -> str:
        """The annotation's text."""
        return self.model_dump_json(by_alias=True, exclude={"workload_uid", "namespace", "name"})

    def as_under_way(self) -> tuple[MoveUnderWay, ...]:
        """As the snapshot tells it, one for each job; nothing once it is over."""
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
    """All Jobs that carry our annotation, also those whose move is over and that are pinned."""
    return [move for record in jobs.items() if (move := move_of(record)) is not None]


def under_way(jobs: Store[ObjectRecord]) -> Sequence[JobMove]:
    """The moves that are not over. A Job that is being deleted comes back nowhere, however long its finalizers stay."""
    found = (move_of(record) for record in jobs.items() if not record.deleting)
    return [move for move in found if move is not None and move.step != "pinned"]


def move_of(record: ObjectRecord) -> JobMove | None:
    """The move of a Job; None where it carries no annotation of ours, or one that nobody can read."""
    text = record.annotations.get(MOVE)
    if text is None:
        return None
    is_free = record.owner is None and KUEUE_LABEL not in record.labels
    return _parsed(text, _Carrier(record.uid, record.namespace, record.name, is_free))


def move_on(job: Json) -> JobMove | None:
    """The same of the API server's JSON."""
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
    """Nobody else suspends and resumes it. We suspend no other Job, so on any other an inherited annotation is void."""


def _parsed(text: str, carrier: _Carrier) -> JobMove | None:
    parse = _parsed_once if len(text) <= _LONGEST_KEPT else _parsed_anew
    return parse(text, carrier)


def _parsed_anew(text: str, carrier: _Carrier) -> JobMove | None:
    try:
        found = json.loads(text)
        written_for = next(iter(found["jobUids"])).partition(":")[0]
        whose = {"workloadUid": written_for, "namespace": carrier.namespace, "name": carrier.name}
        move = JobMove.model_validate({**found, **whose})
    except (ValueError, TypeError, LookupError, AttributeError, StopIteration, RecursionError):
        # The last is what 2,000 opening brackets come to; it must not stop everybody else's moves and passes.
        return None
    if written_for == carrier.uid:
        return move
    return move.on_a_copy(carrier.uid) if carrier.is_free else None


_parsed_once = lru_cache(maxsize=_MOST_KEPT)(_parsed_anew)
