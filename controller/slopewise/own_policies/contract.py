"""The contract of policies: checks for any policy, on the worlds of `drawn_worlds.py`.

`slopewise policies check` runs the checks on a user's policy, `tests/controller/policies/test_contract.py` on every
shipped one. A check raises ContractError.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace

from slopewise.estimators import growth, measurements
from slopewise.guards.context import PassContext
from slopewise.guards.move_budgets import memory_capacity
from slopewise.guards.review import review
from slopewise.model import Bounds, ClusterSnapshot, CpuControl, Decisions, Job, JobMemory, MemoryState, Migrate, Place
from slopewise.own_policies.answers import first_mistake
from slopewise.own_policies.drawn_worlds import INTERVAL
from slopewise.policies import ACTIONS, Action, DecidesOn, PolicyProtocol

AUTO = Bounds("Auto", 1, 64_000, 0.0, 1000.0, 0.0)

Make = Callable[[], PolicyProtocol]
"""Builds a new instance, without state of earlier decisions."""


class ContractError(AssertionError):
    """A policy does not keep to the contract; the message says what it did."""


def _require(holds: bool, broken: str) -> None:  # noqa: FBT001 - the condition, as in an assert
    if not holds:
        raise ContractError(broken)


def decide(policy: PolicyProtocol, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    """Measure and decide, as a pass does."""
    return policy.decide(snapshot, measured(snapshot, memory))


def measured(snapshot: ClusterSnapshot, memory: MemoryState) -> MemoryState:
    """The memory that a pass hands to the policy."""
    return measurements.measure(snapshot, memory, growth.Measuring(INTERVAL))


def check_everything(
    make: Make,
    control: CpuControl,
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    decides_on: DecidesOn = "loss",
    actions: frozenset[Action] = ACTIONS,
) -> Decisions:
    """All that holds for any world; returns the decisions for further checks. `actions`: those that its file names."""
    decisions = check_pure_and_deterministic(make, snapshot, memory)
    check_order_makes_no_difference(make, snapshot, memory, decisions)
    check_explained_and_remembered(control, snapshot, memory, decisions)
    check_resizes_within_bounds(control, snapshot, decisions)
    check_silent_jobs_keep_their_original(snapshot, decisions, decides_on)
    check_weights_add_up_to_the_originals(snapshot, decisions)
    check_moves_are_possible(snapshot, decisions)
    check_actions_are_named(decisions, actions)
    return decisions


def check_pure_and_deterministic(make: Make, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    """The decisions; the policy keeps no state, changes none of its arguments and decides the same again."""
    # As tuples, in which a NaN equals itself: since Python 3.13 dataclasses compare field by field.
    before = astuple(snapshot), copy.deepcopy(memory)
    policy = make()
    first, again, another = (decide(each, snapshot, memory) for each in (policy, policy, make()))
    _require(first == again, "asked twice, the same policy gives two answers for one world; keep nothing in `self`")
    _require(first == another, "two policies with the same parameters give two answers for one world; decide purely")
    unchanged = (astuple(snapshot), memory) == before
    _require(unchanged, "decide changes what it was given; make new objects (`replace`, `altered`)")
    return first


def check_order_makes_no_difference(
    make: Make, snapshot: ClusterSnapshot, memory: MemoryState, decisions: Decisions
) -> None:
    """The decisions do not depend on the order of jobs, nodes and arrivals."""
    turned = replace(snapshot, jobs=snapshot.jobs[::-1], nodes=snapshot.nodes[::-1], waiting=snapshot.waiting[::-1])
    other = decide(make(), turned, memory)
    same = {
        "resizes": set(other.resizes) == set(decisions.resizes),
        "reasons": other.reasons == decisions.reasons,
        "memory": other.memory == decisions.memory,
        "moves": other.moves == decisions.moves,
    }
    for part, is_same in same.items():
        _require(is_same, f"{part} depend on the order in which jobs and nodes come; sort them, and end ties by uid")


def check_explained_and_remembered(
    control: CpuControl, snapshot: ClusterSnapshot, memory: MemoryState, decisions: Decisions
) -> None:
    """What is looked at in every pass as well, of policies of the user's: see there."""
    mistake = first_mistake(decisions, snapshot, measured(snapshot, memory), control)
    _require(mistake is None, mistake or "")


def check_actions_are_named(decisions: Decisions, actions: frozenset[Action]) -> None:
    """The policy decides only what the `ACTIONS` of its file name; restoring what a job came with is no action."""
    done: set[Action] = {"place" if isinstance(move, Place) else "migrate" for move in decisions.moves}
    done |= {"resize" for resize in decisions.resizes if not resize.is_rollback}
    for action in sorted(done - actions):
        raise ContractError(f"decides to {action} a job, which ACTIONS does not name; add {action!r} to it")


def check_resizes_within_bounds(control: CpuControl, snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    """No limit is above the cores of its node."""
    jobs, nodes = {job.uid: job for job in snapshot.jobs}, {node.name: node for node in snapshot.nodes}
    for resize in decisions.resizes:
        most = math.ceil(1000 * nodes[jobs[resize.job_uid].node].cpu_cores)
        text = f"a limit of {resize.to_millicores} millicores on a node that has {most}"
        _require(control != "limits" or resize.to_millicores <= most, text)


_REPORTED: Mapping[DecidesOn, str] = {"loss": "a loss", "reports": "a loss, steps or responses"}


def has_reported(job: Job, known: JobMemory, decides_on: DecidesOn) -> bool:
    """Whether the policy has, or once had, what it decides on."""
    if decides_on == "loss" or known.levels.first is not None:
        return known.levels.first is not None
    counts = (job.evaluation, job.steps_total, job.responses, known.timing.anchor)
    return any(each is not None for each in counts) or bool(known.paces)


def check_silent_jobs_keep_their_original(
    snapshot: ClusterSnapshot, decisions: Decisions, decides_on: DecidesOn
) -> None:
    """No metrics, no action: of a job that has never reported, nothing is changed but what was changed before."""
    resizes = {resize.job_uid: resize for resize in decisions.resizes}
    for job in snapshot.jobs:
        known = decisions.memory.jobs[job.uid]
        if job.uid in resizes and not has_reported(job, known, decides_on):
            _require(
                resizes[job.uid].is_rollback,
                f"changes {job.uid}, which has never reported {_REPORTED[decides_on]}; keep its original CPU",
            )


def check_weights_add_up_to_the_originals(snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    """The share of a job that keeps its weight stays the same, whatever the others get."""
    changed = {resize.job_uid: resize for resize in decisions.resizes if resize.control == "requests"}
    for jobs in snapshot.jobs_by_node().values():
        if not any(job.uid in changed for job in jobs):
            continue
        originals = [decisions.memory.jobs[job.uid].original or job.allocation for job in jobs]
        now = [
            changed[job.uid].to_millicores if job.uid in changed else job.allocation.request_millicores for job in jobs
        ]
        total, before = sum(now), sum(each.request_millicores for each in originals)
        text = f"weights of a node add up to {total} millicores, the originals of its jobs to {before}; see `resizes`"
        _require(abs(total - before) <= 1.5 * len(jobs), text)


def check_moves_are_possible(snapshot: ClusterSnapshot, decisions: Decisions) -> None:
    """Only jobs that may be moved are moved, to other nodes that accept them and have the memory."""
    running = {job.uid: job for job in snapshot.jobs if not job.state.ended}
    waiting = {arrival.uid: arrival for arrival in snapshot.waiting}
    for move in decisions.moves:
        if isinstance(move, Migrate):
            job = running[move.job_uid]
            _require(job.migratable, f"moves {move.job_uid}, which may not be moved; ask can_move(job)")
            _require(move.node != job.node, f"moves {move.job_uid} to where it is")
            if job.movability is not None:
                blocked, refused = job.movability.blocked_reason, job.movability.refused_nodes
                backoff = job.movability.backoff_reason
                _require(
                    blocked is None, f"moves {move.job_uid}, which stays because it is {blocked}; ask can_move(job)"
                )
                _require(backoff is None, f"moves {move.job_uid}, which is not moved {backoff}; ask can_move(job)")
                _require(move.node not in refused, f"moves {move.job_uid} to a node that refuses it; see refused_nodes")
        else:
            refused = waiting[move.job_uid].refused_nodes
            _require(move.node not in refused, f"places {move.job_uid} on a node that refuses it; see refused_nodes")
    reviewed = review(decisions.moves, PassContext(snapshot, decisions.memory, AUTO))
    too_large = [each for each in reviewed.withheld_of(Place) if each.guard == memory_capacity.__name__]
    _require(not too_large, "places a job where its memory does not fit; see snapshot.memory_room_bytes, or place_each")


def check_limits_add_up(make: Make, snapshot: ClusterSnapshot, memory: MemoryState, *, soft: bool) -> None:
    """What a policy wants for the jobs of a node, all of them evaluated for the first time, fits the node.

    Of one with soft limits each job's fits the node, and their sum need not.
    """
    fresh = {uid: known.with_decided(wanted_cores=None) for uid, known in memory.jobs.items()}
    decisions = decide(make(), snapshot, MemoryState(fresh))
    jobs_on = snapshot.jobs_by_node()
    for node in snapshot.nodes:
        wanted = [decisions.memory.jobs[job.uid].decided.wanted_cores for job in jobs_on[node.name]]
        most, has = node.cpu_cores * (1 + 1e-9), f"of a node that has {node.cpu_cores:.4g}"
        known = [cores for cores in wanted if cores is not None]
        largest, total = max(known, default=0.0), math.fsum(known)
        _require(largest <= most, f"wants {largest:.4g} cores for one job {has}; a Verdict is in cores of its node")
        together = f"wants {total:.4g} cores together for the jobs {has}; divide what it has, or say SOFT_LIMITS = True"
        _require(soft or total <= most, together)
