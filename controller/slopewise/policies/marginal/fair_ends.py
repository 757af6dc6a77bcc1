"""When each job would end if all shared the whole cluster evenly: max-min fair, each up to what it can use.

Jobs that have ended go on there until they would have ended: what they were given sooner is what the others had to wait
for, and without them all that are left would be due sooner for it. One sharing of the whole cluster, and not one for
each node, because an even spread over nodes is what fair placement aims at, and jobs move.

Worked example: on two cores three jobs have 10, 40 and 100 core-seconds left, and the last is of one thread. Each runs
at 2/3 core; the first ends at 15 s. Then the others have a core each, and end 30 s and 90 s later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

import msgspec
from msgspec import structs

from slopewise.allocation import capacity_cores
from slopewise.estimators.speed import useful_cores
from slopewise.model import DEPARTED_KEPT, ClusterSnapshot, Departed, MemoryState
from slopewise.policies.marginal.forecast import Forecast, State, state_of


def fair_share(
    left: Sequence[float], cores: Sequence[float], capacity: float, span: float = math.inf
) -> tuple[list[float], list[float]]:
    """Core-seconds that each job gets within `span` seconds, and seconds until each ends; shape (jobs,) both.

    `left`: core-seconds, infinite where unknown; `cores`: what each can use, above 0. A job runs at the level of all,
    or at its own cores where those are fewer. The level only rises, so each job changes once and ends once.
    """
    served, ends = [0.0] * len(left), [0.0 if each <= 0 else math.inf for each in left]
    at_level = {i for i, each in enumerate(left) if each > 0}
    by_left = sorted(at_level, key=lambda i: (-left[i], i))
    by_cores = sorted(at_level, key=lambda i: (-cores[i], i))
    full: list[tuple[float, int]] = []
    since: dict[int, tuple[float, float]] = {}
    now = had = full_cores = 0.0  # `had`: what each job at the level has had so far
    while at_level or full:
        level = max(0.0, capacity - full_cores) / len(at_level) if at_level else 0.0
        if at_level and cores[i := _last_of(by_cores, at_level)] <= level:
            at_level.remove(i)
            full_cores += cores[i]
            since[i] = now, had
            heappush(full, (now + (left[i] - had) / cores[i], i))
            continue
        first = now + (left[_last_of(by_left, at_level)] - had) / level if level > 0 else math.inf
        until = min(first, full[0][0] if full else math.inf)
        if min(until, span) == math.inf:
            break
        had += level * (min(until, span) - now)
        now = min(until, span)
        if until >= span:
            break
        if first <= until:
            i = by_left[-1]
            at_level.remove(i)
        else:
            i = heappop(full)[1]
            full_cores -= cores[i]
        served[i], ends[i] = left[i], now
    for i in at_level:
        served[i] = min(left[i], had)
    for _, i in full:
        served[i] = min(left[i], since[i][1] + (now - since[i][0]) * cores[i])
    return served, ends


def _last_of(ordered: list[int], some: set[int]) -> int:
    """The last of `ordered` that is in `some`; those behind it, which will not come back, are removed."""
    while ordered[-1] not in some:
        ordered.pop()
    return ordered[-1]


def fair_ends(
    snapshot: ClusterSnapshot, memory: MemoryState, states: Mapping[str, State], found: Mapping[str, Forecast]
) -> tuple[MemoryState, dict[str, float]]:
    """The virtual sharing of the whole cluster brought up to now, and seconds until each running job is due."""
    now = snapshot.taken_at_seconds
    capacities = {node.name: capacity_cores(node) for node in snapshot.nodes}
    whole, total = {node.name: node for node in snapshot.nodes}, math.fsum(capacities.values())
    gone = {each.job_uid: state for each in memory.departed if (state := state_of(each.state)) is not None}
    before = {**gone, **states}
    last = max((state.at_seconds for state in before.values()), default=now)
    served, _ = fair_share(
        [(state.work or math.inf) - state.served for state in before.values()],
        [state.cores for state in before.values()],
        total,
        max(0.0, now - last),
    )
    had = {uid: state.served + more for (uid, state), more in zip(before.items(), served, strict=True)}
    after: dict[str, State] = {}
    for job in snapshot.jobs:
        state, claim = states.get(job.uid), found.get(job.uid)
        if job.state.ended:
            if state is not None:
                after[job.uid] = _over(state, had[job.uid], now)
            continue
        done = claim.done if claim is not None else state.done if state is not None else 0.0
        cores = min(capacities[job.node], useful_cores(job, whole[job.node]))
        work, points, rate = (claim.sure, claim.points, claim.rate) if claim is not None else (0.0, 0, 0.0)
        planned = claim is not None and claim.planned
        after[job.uid] = State(now, had.get(job.uid, done), work if planned else 0.0, cores, done, points, rate)
    for uid, state in gone.items():
        if uid not in after and (ended := _over(state, had[uid], now)).served < ended.work:
            after[uid] = ended
    sure = {uid: claim.sure for uid, claim in found.items()}
    left = [(sure.get(uid, state.work) or math.inf) - state.served for uid, state in after.items()]
    _, ends = fair_share(left, [state.cores for state in after.values()], total)
    behind = (min(0.0, each) / state.cores for each, state in zip(left, after.values(), strict=True))
    due = {uid: end + late for uid, end, late in zip(after, ends, behind, strict=True)}
    jobs = {
        uid: known.altered(state=_stored(after[uid])) if uid in after else known for uid, known in memory.jobs.items()
    }
    kept = [Departed(uid, _stored(after[uid])) for uid in gone if uid in after and uid not in jobs]
    return replace(memory, jobs=jobs, departed=tuple(kept[-DEPARTED_KEPT:])), due


def _stored(state: State) -> str:
    return msgspec.json.encode(state).decode()


def _over(state: State, served: float, now_seconds: float) -> State:
    """A job that has ended, with what it has done: what it had at the last pass, and what it could use since."""
    if state.over:
        return structs.replace(state, at_seconds=now_seconds, served=served)
    done = min(state.work or math.inf, state.done + state.cores * max(0.0, now_seconds - state.at_seconds))
    return State(now_seconds, served, max(done, state.done), state.cores, done, over=True)
