"""What fair sharing would have taken over the jobs of a session: the same jobs, from the same queue, replayed.

A place is taken as soon as one is left, by the rules of the queue. The jobs that have one share the CPU evenly, each
until it has had what it has used. What a job that has not ended will use is known from its plan alone, else taken to be
the mean of the others; each end makes the estimates of those before it better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from slopewise.adapters.local.job_queue import Queued, turn
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.supervisor import Supervisor
from slopewise.local.tally import JobTally, RunTally
from slopewise.policies.marginal.fair_ends import fair_share

MAX_REPLAYED = 100
"""Of the jobs that have ended the last ones, and as many of the others: comparing them takes 0.15 s at most."""


class Work(NamedTuple):
    """A job of the replay."""

    queued: Queued
    due_seconds: float
    """When it comes into the queue."""
    core_seconds: float
    cores: float
    """What it can use."""


def fair_seconds(works: Sequence[Work], wanted: Collection[str], most: int | None, capacity: float) -> dict[str, float]:
    """From the start to the end of the jobs `wanted`, and more, under fair sharing of `capacity` cores.

    `most`: how many run at once. Worked example: on one core two jobs of 10 and 30 core-seconds take 20 and 40 s, and
    where one runs at a time 10 and 30 s.
    """
    queue, cores = {each.queued.name: each.queued for each in works}, {each.queued.name: each.cores for each in works}
    later = sorted(((each.due_seconds, each.queued.name) for each in works), reverse=True)
    now, begun, took, left = later[-1][0], dict[str, float](), dict[str, float](), dict[str, float]()
    work = {each.queued.name: each.core_seconds for each in works}
    while not took.keys() >= set(wanted):
        while later and later[-1][0] <= now:
            name = later.pop()[1]
            queue[name] = replace(queue[name], due=True)
        for name in turn(queue.values(), most, math.inf).start:
            queue[name], begun[name], left[name] = replace(queue[name], state="running"), now, work[name]
        used = [cores[name] for name in left]
        _, spans = fair_share([*left.values()], used, capacity)
        span = min([*spans, *(at - now for at, _ in later[-1:])], default=math.inf)
        if span == math.inf:
            break
        served, _ = fair_share([*left.values()], used, capacity, span)
        now += span
        for name, had, until in zip([*left], served, spans, strict=True):
            left[name] -= had
            if until <= span:
                del left[name]
                queue[name], took[name] = replace(queue[name], state="finished"), now - begun[name]
    return took


def compare(own: str, supervisor: Supervisor, tally: RunTally) -> None:
    """Estimate when fair sharing would have ended the job `own`, which just has, and again those that were compared.

    At the earliest: the others do no more than they have done; at the latest: they have twice as much left as expected.
    """
    records, begun = supervisor.records, supervisor.started_at_seconds
    over = [(each.finished_at_seconds, name) for name, each in records.items() if each.finished_at_seconds is not None]
    last = [name for _, name in sorted(over)[-MAX_REPLAYED:]]
    ended = {name: at for name in last if (at := records[name].arrived_at_seconds) is not None}
    left = [name for name, each in records.items() if each.finished_at_seconds is None][:MAX_REPLAYED]
    works = {name: work for name in (*ended, *left) if (work := _work(records[name], tally.of(name))) is not None}
    if own not in works or tally.capacity_cores <= 0:
        return
    usual, first = math.fsum(works.values()) / len(works), min(ended.values())

    def replayed(rest: float) -> dict[str, float]:
        jobs = []
        for name in (name for name in records if name in ended or name in left):
            spec, of_job, work = records[name].spec, tally.of(name), works.get(name, usual)
            if name in left:
                work = of_job.cpu_seconds + rest * max(0.0, work - of_job.cpu_seconds)
            due, cores = max(first, begun + spec.arrive_seconds), _cores(records[name], of_job)
            jobs.append(Work(Queued(name, "waiting", due=False, queueing=spec.queueing), due, work, cores))
        return fair_seconds(jobs, ended, supervisor.max_running, tally.capacity_cores)

    expected, least, most = replayed(1.0), replayed(0.0), replayed(2.0)
    for name in ended.keys() & expected.keys() & least.keys() & most.keys():
        if name == own or tally.of(name).fair_seconds is not None:
            arrived = ended[name]
            tally.of(name).fair_seconds = arrived + expected[name], arrived + least[name], arrived + most[name]


def _cores(record: JobRecord, tally: JobTally) -> float:
    """What it can use: the most in an interval, no less than its mean, which is all of a short one.

    The mean of a job that was changed says nothing: it might have used more.
    """
    took = (record.finished_at_seconds or math.inf) - (record.arrived_at_seconds or 0.0)
    mean = (_work(record, tally) or 0.0) / took if took > 0 else 0.0
    most = max(tally.most_cores, mean) if tally.most_cores or not tally.resizes else 0.0
    return min(most or math.inf, (record.spec.max_useful_cpu_millicores or math.inf) / 1000)


def _work(record: JobRecord, tally: JobTally) -> float | None:
    """Core-seconds of all of it: what it has used, or will by its plan; None: not known.

    Nor is that of one that was started again, whose arrival is that of its last attempt.
    """
    if record.spec.queueing.attempt:
        return None
    if record.finished_at_seconds is not None:
        return record.cpu_seconds
    done, planned = tally.steps_total, tally.steps_planned
    return tally.cpu_seconds * planned / done if done and planned else None
