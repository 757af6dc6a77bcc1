"""When each job would end if all shared the whole cluster evenly: max-min fair, each up to what it can use.

Jobs that have ended go on there until they would have ended: what they were given sooner is what the others had to wait
for, and without them all that are left would be due sooner for it. One sharing of the whole cluster, and not one for
each node, because an even spread over nodes is what fair placement aims at, and jobs move.

Worked example: on two cores three jobs have 10, 40 and 100 core-seconds left, and the last is of one thread. Each runs
at 2/3 core; the first ends at 15 s. Then the others have a core each, and end 30 s and 90 s later.

Under fair sharing a trial of a study has its start, before its first loss, to do as well: what it was served until
then is what it has done of its steps. With starts of 3 of 20 core-seconds a study would else be due a sixth too soon.

The order of one node's jobs: by index, as long as no job that is due sooner would be late; and CPU down the order.

Worked example: on one core two jobs are due in 100 s and in 300 s and have 80 and 100 core-seconds left. The first has
a slack of 20 s, the second 300 - 180 = 120 s. With a reserve of 10 s the index decides; once the first has waited for
15 s, it goes before all that are due later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import groupby

import msgspec
from msgspec import structs

from slopewise.allocation import capacity_cores, down_an_order
from slopewise.estimators.speed import useful_cores
from slopewise.model import DEPARTED_KEPT, ClusterSnapshot, Departed, Ends, MemoryState
from slopewise.policies.marginal.forecast import Forecast, State, state_of

Seconds = Mapping[str, float]


def fair_share(
    left: Sequence[float], cores: Sequence[float], capacity: float, span: float = math.inf
) -> tuple[list[float], list[float]]:
    """Core-seconds that each job gets within `span` seconds, and seconds until each ends; shape (jobs,) both.

    `left`: core-seconds, infinite where unknown; `cores`: what each can use, above 0. A job runs at the level of all,
    or at its own cores where those are fewer. The level only rises, so each job changes once and ends once.
    """
    served, ends = [0.0] * len(left), [0.0 if each <= 0 else math.inf for each in left]
    unended = [i for i, each in enumerate(left) if each > 0]
    at_level = set(unended)
    by_left = sorted(unended, key=left.__getitem__, reverse=True)  # stable: of equal ones the first stays first
    by_cores = sorted(unended, key=cores.__getitem__, reverse=True)
    full: list[tuple[float, int]] = []  # by when each ends
    since: dict[int, tuple[float, float]] = {}
    now = had = full_cores = 0.0  # `had`: what each job at the level has had so far
    while at_level or full:
        level, first = 0.0, math.inf
        if at_level:
            level = max(0.0, capacity - full_cores) / len(at_level)
            if cores[i := _last_of(by_cores, at_level)] <= level:
                at_level.remove(i)
                full_cores += cores[i]
                since[i] = now, had
                heappush(full, (now + (left[i] - had) / cores[i], i))
                continue
            if level > 0:
                first = now + (left[_last_of(by_left, at_level)] - had) / level
        until = min(first, full[0][0] if full else math.inf)
        if min(until, span) == math.inf:
            break
        had += level * (min(until, span) - now)
        now = min(until, span)
        if until >= span:
            break
        i = by_left[-1] if first <= until else heappop(full)[1]
        full_cores -= 0.0 if i in at_level else cores[i]
        at_level.discard(i)
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
    now, nodes = snapshot.taken_at_seconds, {node.name: node for node in snapshot.nodes}
    total = math.fsum(map(capacity_cores, snapshot.nodes))
    gone = {each.job_uid: state for each in memory.departed if (state := state_of(each.state)) is not None}
    before = {**gone, **states}
    span = max(0.0, now - max((state.at_seconds for state in before.values()), default=now))
    left = [(state.work or math.inf) - state.served for state in before.values()]
    served, _ = fair_share(left, [state.cores for state in before.values()], total, span)
    had = {uid: state.served + more for (uid, state), more in zip(before.items(), served, strict=True)}
    after: dict[str, State] = {}
    for job in snapshot.jobs:
        uid, node = job.uid, nodes[job.node]
        state, claim = states.get(uid), found.get(uid)
        cores = min(capacity_cores(node), useful_cores(job, node))
        if job.state.ended:
            after |= {uid: _over(state, had[uid], now)} if state else {}
        elif claim is not None:
            work = claim.sure if claim.planned else 0.0
            is_new = claim.points > 0 and (state is None or (state.work == 0 and state.points == 0))
            given = claim.done if is_new and job.objectives.study else had.get(uid, claim.done)
            after[uid] = State(now, given, work, cores, claim.done, claim.points, claim.rate)
        else:
            done = state.done if state else 0.0
            after[uid] = State(now, had.get(uid, done), 0.0, cores, done)
    over = {uid: _over(state, had[uid], now) for uid, state in gone.items() if uid not in after}
    after |= {uid: state for uid, state in over.items() if state.served < state.work}
    works = [found[uid].sure if uid in found else state.work for uid, state in after.items()]
    left = [(work or math.inf) - state.served for work, state in zip(works, after.values(), strict=True)]
    _, ends = fair_share(left, [state.cores for state in after.values()], total)
    due = {
        uid: end + min(0.0, late) / state.cores
        for (uid, state), end, late in zip(after.items(), ends, left, strict=True)
    }
    texts = {uid: msgspec.json.encode(state).decode() for uid, state in after.items()}
    changed = {
        uid: known.with_decided(state=texts[uid])
        for uid, known in memory.jobs.items()
        if texts.get(uid, known.decided.state) != known.decided.state
    }
    # Also those that have ended there, without a state: a suspended Job would come again with that of its last pass.
    departed = [Departed(each.job_uid, texts.get(each.job_uid, "")) for each in memory.departed]
    kept = sorted((each for each in departed if each.job_uid not in memory.jobs), key=lambda each: each.state != "")
    return replace(memory.with_jobs(changed), departed=tuple(kept[-DEPARTED_KEPT:])), due


def _over(state: State, served: float, now_seconds: float) -> State:
    """A job that has ended, with what it has done: what it had at the last pass, and what it could use since."""
    if state.over and state.served >= state.work:
        return state  # so that a cluster does not write it again and again
    if state.over:
        return structs.replace(state, at_seconds=now_seconds, served=served)
    done = min(state.work or math.inf, state.done + state.cores * max(0.0, now_seconds - state.at_seconds))
    return State(now_seconds, served, max(done, state.done), state.cores, done, over=True)


@dataclass(frozen=True, slots=True)
class Order:
    """The jobs of a node, first to last, and why."""

    jobs: Sequence[Forecast]
    slack_seconds: Mapping[str, float]
    """How long each, and those due before it, can wait and still be in time."""
    by_index: frozenset[str]
    """Jobs beside which all that are due sooner can wait."""


def order(claims: Sequence[Forecast], due: Mapping[str, float], capacity: float, reserve_seconds: float) -> Order:
    """`due`: seconds from now until each job's end under fair sharing; `reserve_seconds`: slack that each keeps."""
    by_due = sorted(claims, key=lambda each: (due[each.job.uid], each.sure_left, each.job.uid))
    slack, free, before, least = {}, set(), 0.0, math.inf
    for _, together in groupby(by_due, lambda each: due[each.job.uid]):
        for each in (due_then := list(together)):
            before += each.sure_left
            slack[each.job.uid] = due[each.job.uid] - before / capacity
        if least >= reserve_seconds:
            free |= {each.job.uid for each in due_then}
        least = min([least, *(slack[each.job.uid] for each in due_then)])
    by_index = sorted(claims, key=lambda each: (-each.index, each.job.uid))
    first = [each for each in by_index if each.job.uid in free]
    return Order([*first, *(each for each in by_due if each.job.uid not in free)], slack, frozenset(free))


def down(
    uids: Sequence[str], floors: Mapping[str, float], cores: Mapping[str, float], capacity: float
) -> dict[str, float]:
    """Cores by uid: each its floor, and the rest down the order, up to what each can use."""
    return down_an_order(floors, [[uid] for uid in uids], cores, capacity)


def expected_ends(
    jobs: Sequence[Forecast], due: Seconds, fair: Seconds, cores: Mapping[str, float], capacity: float, now: float
) -> dict[str, Ends]:
    """When each job ends if its node goes down this order; at the earliest, served alone; at the latest, when due.

    Of each job before it no more counts than its own work left: before it has done that, the order has changed.
    Worked example: behind a job with a plan of 10^9 steps, one with 60 core-seconds left ends in 120 s on one core.
    """
    found, lefts = {}, [each.left for each in jobs]
    for place, (each, left) in enumerate(zip(jobs, lefts, strict=True)):
        uid = each.job.uid
        alone = left / cores[uid]
        before = math.fsum([min(other, left) for other in lefts[:place]])
        expected = max(alone, (before + left) / capacity)
        latest = max(expected, due[uid]) if due[uid] < math.inf else expected
        by_fair = round(now + fair[uid], 1) if fair[uid] < math.inf else None
        at, earliest, latest = (round(now + seconds, 1) for seconds in (expected, alone, latest))
        found[uid] = Ends(at, earliest, latest, by_fair)
    return found
