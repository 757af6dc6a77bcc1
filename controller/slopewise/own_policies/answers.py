"""Validates the decisions of a user's policy before any of them is carried out; failures hold the pass.

A policy that raises, or whose answer cannot be used, raises PolicyError. Shipped policies are tested for the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec

from slopewise.allocation import MIN_MILLICORES, accepted_millicores
from slopewise.errors import PolicyError
from slopewise.model import (
    MEMORY_JSON,
    ClusterSnapshot,
    CpuControl,
    Decisions,
    Job,
    JobMemory,
    MemoryState,
    Migrate,
    Node,
    NodeMemory,
    Place,
    PolicyMemory,
    Resize,
)
from slopewise.policies import PolicyProtocol

MEASURED = tuple(field for field in JobMemory.__struct_fields__ if field != "decided")
"""Fields of `JobMemory` that are not a policy's to write. Without `original` a job would never get back what it had."""

_measured = attrgetter(*MEASURED)

MIN_INTERVAL_SECONDS = 1.0
"""Between two evaluations of a node, as in `spec.behaviour.intervalSeconds`."""


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """A policy whose failures are PolicyErrors, each a sentence, and whose answers can be used."""

    name: str
    policy: PolicyProtocol
    control: CpuControl
    describe: Callable[[BaseException], str]
    """What an exception was, and where."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """What the policy decides; PolicyError where it fails or its answer cannot be used."""
        # Dictionaries are not frozen: what a policy changes must not be what is stored.
        lent = MemoryState(
            dict(memory.jobs),
            dict(memory.nodes),
            arriving=dict(memory.arriving),
            classes=dict(memory.classes),
            departed=memory.departed,
        )
        try:
            decisions = self.policy.decide(snapshot, lent)
            mistake = first_mistake(decisions, snapshot, memory, self.control)
        except PolicyError as error:
            raise PolicyError(f"policy {self.name} gave an answer that cannot be used: {error}") from error
        except (Exception, SystemExit) as error:
            raise PolicyError(f"policy {self.name} failed: {self.describe(error)}") from error
        if mistake is not None:
            raise PolicyError(f"policy {self.name} gave an answer that cannot be used: {mistake}")
        return decisions


def first_mistake(answer: object, snapshot: ClusterSnapshot, memory: MemoryState, control: CpuControl) -> str | None:
    """The first mistake in an answer; None: there is none. `memory` is what the policy was given."""
    if not isinstance(answer, Decisions):
        return f"decide returned {_kind(answer)}, and not Decisions"
    return next(_mistakes(answer, snapshot, memory, control), None)


def _mistakes(
    decisions: Decisions, snapshot: ClusterSnapshot, memory: MemoryState, control: CpuControl
) -> Iterator[str]:
    yield from _of_shape(decisions)
    running = {job.uid: job for job in snapshot.jobs if not job.state.ended}
    yield from _of_reasons(decisions, running)
    yield from _of_memory(decisions.memory, snapshot, memory)
    nodes = {node.name: node for node in snapshot.nodes}
    yield from _of_resizes(decisions, running, nodes, control, memory)
    yield from _of_moves(decisions, running, snapshot)


def _of_shape(decisions: Any) -> Iterator[str]:
    """The fields of another type than theirs; the other checks rely on the types."""
    for field, kind in (("resizes", tuple), ("moves", tuple), ("reasons", Mapping), ("memory", MemoryState)):
        value = getattr(decisions, field)
        if not isinstance(value, kind):
            yield f"{field} is {_kind(value)}, and not a {kind.__name__}"
    for each in decisions.resizes:
        if not isinstance(each, Resize):
            yield f"resizes holds {_kind(each)}, and not only Resize"
    for move in decisions.moves:
        if not isinstance(move, Place | Migrate):
            yield f"moves holds {_kind(move)}, and not only Place and Migrate"


def _of_reasons(decisions: Decisions, running: Mapping[str, Job]) -> Iterator[str]:
    for uid in running:
        if not decisions.reasons.get(uid):
            yield f"reasons has none for {uid}; give one for every job that has not ended, also for unchanged ones"
    for uid in decisions.reasons.keys() - running.keys():
        yield f"reasons has one for {uid}, which is no job that runs"
    for text in (*decisions.reasons.values(), *(each.reason for each in (*decisions.resizes, *decisions.moves))):
        if not isinstance(text, str) or not text:
            yield f"a reason is {text!r}, and not a text"


def _of_memory(decided: Any, snapshot: ClusterSnapshot, given: MemoryState) -> Iterator[str]:
    for uid, before in given.jobs.items():
        after = decided.jobs.get(uid)
        if not (isinstance(after, JobMemory) and isinstance(after.decided, PolicyMemory)):
            yield f"memory.jobs has lost {uid}; begin with the memory that decide was given"
        elif _measured(after) != _measured(before):
            (field, *_) = [name for name in MEASURED if getattr(after, name) != getattr(before, name)]
            yield f"memory.jobs has another {field} for {uid}, which is not the policy's to write"
        elif after.decided.wanted_cores is not None and not 0 <= after.decided.wanted_cores < math.inf:
            yield f"memory.jobs wants {after.decided.wanted_cores!r} cores for {uid}"
        elif after.decided is not before.decided:
            yield from _of_decided(uid, after.decided)
    for uid in decided.jobs.keys() - given.jobs.keys():
        yield f"memory.jobs has {uid}, which is no job"
    names = {node.name for node in snapshot.nodes}
    for name in names ^ decided.nodes.keys():
        yield f"memory.nodes {'has none for' if name in names else 'has one for the unknown node'} {name}"
    for name, last in decided.nodes.items():
        yield from _of_node(name, last, snapshot.taken_at_seconds)


def _of_decided(uid: str, decided: PolicyMemory) -> Iterator[str]:
    """What could not be read back would cost all that is remembered of the job, once another process begins."""
    try:
        msgspec.json.decode(MEMORY_JSON.encode(decided), type=PolicyMemory)
    except msgspec.ValidationError as error:
        yield f"memory.jobs has a decision on {uid} that cannot be stored: {error}"


def _of_node(name: str, last: object, now_seconds: float) -> Iterator[str]:
    if not isinstance(last, NodeMemory):
        yield f"memory.nodes has {_kind(last)} for {name}, and not a NodeMemory"
    elif not MIN_INTERVAL_SECONDS <= last.interval_seconds < math.inf:
        yield f"memory.nodes evaluates {name} every {last.interval_seconds!r} s; at least 1 s must lie between"
    elif not now_seconds < last.requeue_at_seconds < math.inf:
        yield f"memory.nodes evaluates {name} next in the past; store when it was evaluated"


def _of_resizes(
    decisions: Decisions, running: Mapping[str, Job], nodes: Mapping[str, Node], control: CpuControl, given: MemoryState
) -> Iterator[str]:
    seen: set[str] = set()
    for resize in decisions.resizes:
        uid, job = resize.job_uid, running.get(resize.job_uid)
        if job is None or uid in seen:
            yield f"resizes has {uid}, which is no job that runs" if job is None else f"resizes has {uid} twice"
            continue
        seen.add(uid)
        has = accepted_millicores(job, nodes[job.node], control)
        if (resize.control, resize.node, resize.from_millicores) != (control, job.node, has):
            yield (
                f"the resize of {uid} is of {resize.control} {resize.from_millicores!r} on {resize.node}, and it has "
                f"{control} {has} on {job.node}"
            )
        elif isinstance(resize.to_millicores, bool) or not isinstance(resize.to_millicores, int):
            yield f"the resize of {uid} goes to {resize.to_millicores!r}, and not to a whole number of millicores"
        elif resize.to_millicores < MIN_MILLICORES:
            yield f"the resize of {uid} goes to {resize.to_millicores} millicores; the least is {MIN_MILLICORES}"
        elif resize.is_rollback and resize.to_millicores not in _originals(job, given.jobs[uid], nodes[job.node]):
            yield f"the resize of {uid} says is_rollback, and does not go to the job's original"


def _originals(job: Job, known: JobMemory, node: Node) -> set[int | None]:
    """What the job may have come with, in millicores of either dimension; nothing where it was never changed."""
    if known.original is None:
        return set()
    parts = [part for part in (known.original, job.pod_level) if part is not None]
    limits, requests = ({getattr(part, f"{side}_millicores") for part in parts} for side in ("limit", "request"))
    return {round(1000 * node.cpu_cores), *limits, *requests}


def _of_moves(decisions: Decisions, running: Mapping[str, Job], snapshot: ClusterSnapshot) -> Iterator[str]:
    waiting, names = {arrival.uid for arrival in snapshot.waiting}, {node.name for node in snapshot.nodes}
    seen: set[str] = set()
    for move in decisions.moves:
        uid = move.job_uid
        if uid in seen:
            yield f"moves has {uid} twice"
        seen.add(uid)
        if move.node not in names:
            yield f"the move of {uid} goes to {move.node}, which is no node"
        elif isinstance(move, Place) and uid not in waiting:
            yield f"moves places {uid}, which does not wait for a node"
        elif isinstance(move, Migrate) and (uid not in running or running[uid].node != move.from_node):
            yield f"moves has {uid} leave {move.from_node}, where it is not"


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
