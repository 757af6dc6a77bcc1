"""What a migration would gain and what it costs, both in seconds of one job training at full speed.

A node's cores are shared out by water-filling: in
proportion to requests, as the kernel does, up to what each job can use. A job's speed is what it gets over
what it could use where it is now. A second of a job that learns fast is worth two of one that has converged.

Worked example: three jobs of one thread, two of them on n1 and one on n2, a core each, and a third node n3 that idles.
On n1 both run at half speed. Moving one to n3 lets both run at full speed: 2 x 0.5 x 600 s = 600 s are gained over a
horizon of 600 s. Moving it to n2 gains nothing: three jobs on two cores, before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slopewise.allocation import capacity_cores, water_filling
from slopewise.estimators.move_cost import Cost, cost_of
from slopewise.estimators.speed import useful_cores
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState, Migrate, Node

USES_LESS_RATIO = 0.8
"""Below this part of its share a job waits for something else than CPU. Measured use is 5 to 10 % below a share that is
used up, by what the system takes."""

MIN_SHARE_MILLICORES = 2
"""Linux gives a container without a request the weight of 2 millicores."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A job's claim on the cores of one node."""

    uid: str
    request_millicores: int
    most_cores: float
    full_cores: float
    """At which it trains at full speed."""
    worth: float
    needs_less: bool = False
    """It was seen to use less than it could have: it needs no more on any node."""

    def seconds_a_second(self, cores: float) -> float:
        """What it does with so many cores, weighted; 1 for a converged job at full speed."""
        return self.worth * cores / self.full_cores


@dataclass(frozen=True, slots=True)
class Balance:
    """What a migration gains and costs, and over how long."""

    gain_seconds: float
    horizon_seconds: float
    cost: Cost

    @property
    def pays(self) -> bool:
        """True when it gains more than it costs."""
        return self.gain_seconds > self.cost.total_seconds

    def __str__(self) -> str:
        cost = self.cost
        parts = (
            f"saving {cost.saving_seconds:.3g} s, starting {cost.starting_seconds:.3g} s, "
            f"repeating {cost.repeating_seconds:.3g} s"
        )
        weight = "" if round(cost.weight, 2) == 1 else f"; weight {cost.weight:.3g}"
        return (
            f"gains {round(self.gain_seconds, 2) + 0.0:.3g} s over {self.horizon_seconds:.3g} s, "
            f"costs {cost.total_seconds:.3g} s ({parts}{weight})"
        )


class Speeds:
    """Who claims how much of each node: as it was observed, and then with every migration that was counted."""

    def __init__(self, snapshot: ClusterSnapshot, memory: MemoryState) -> None:
        self._memory = memory
        self._now_seconds = snapshot.taken_at_seconds
        self._jobs = {job.uid: job for job in snapshot.jobs}
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._on_node = snapshot.jobs_by_node()
        self._fastest = max((_progress(memory.jobs.get(job.uid)) for job in snapshot.jobs), default=0.0)
        self._claims: dict[str, dict[str, _Claim]] = {}

    def balance(self, moves: Sequence[Migrate], horizon_seconds: float) -> Balance:
        """What these migrations, made together, gain within the horizon, and cost.

        The horizon ends with the first of their jobs that is done, as far as its steps and its pace show. Worked
        example: 100 steps to do at 2 s each: no gain is counted beyond 200 s.
        """
        jobs = [self._jobs[move.job_uid] for move in moves]
        left = (_seconds_left(job, self._memory.jobs.get(job.uid)) for job in jobs)
        horizon = min(horizon_seconds, *left)
        places = {name for move in moves for name in (move.from_node, move.node)}
        before = {name: list(self._here(name).values()) for name in places}
        after = {name: list(claims.values()) for name, claims in self._after(moves).items()}
        gained = math.fsum(self._rate(name, after[name]) - self._rate(name, before[name]) for name in sorted(places))
        return Balance(gained * horizon, horizon, self._cost(jobs))

    def count(self, moves: Sequence[Migrate]) -> None:
        """These migrations are to be made: whatever is asked from now on finds the jobs where they go."""
        self._claims.update(self._after(moves))

    def _cost(self, jobs: Iterable[Job]) -> Cost:
        costs = [
            cost_of(job, self._memory.jobs.get(job.uid) or _UNKNOWN, self._worth(job.uid), self._now_seconds)
            for job in jobs
        ]
        saving = math.fsum(cost.saving_seconds for cost in costs)
        starting = math.fsum(cost.starting_seconds for cost in costs)
        repeating = math.fsum(cost.repeating_seconds for cost in costs)
        unweighted = saving + starting + repeating
        total = math.fsum(cost.total_seconds for cost in costs)
        return Cost(saving, starting, repeating, total / unweighted if unweighted > 0 else 1.0)

    def _worth(self, uid: str) -> float:
        """1 for a job that has converged, or of which nothing is known, 2 for the one that learns fastest."""
        return 1.0 if self._fastest <= 0 else 1.0 + _progress(self._memory.jobs.get(uid)) / self._fastest

    def _here(self, name: str) -> dict[str, _Claim]:
        """The claims on one node, by uid; worked out when they are first asked for."""
        if name not in self._claims:
            self._claims[name] = {claim.uid: claim for claim in self._observed(name)}
        return self._claims[name]

    def _observed(self, name: str) -> list[_Claim]:
        """The claims of who is on a node: first as their owners state them, then without what is left unused."""
        node, jobs = self._nodes[name], self._on_node[name]
        claims = [self._claim(job, node) for job in jobs]
        shares = _shares(claims, node)
        used = [_cores_used(job, self._memory.jobs.get(job.uid)) for job in jobs]
        return [
            claim if cores is None or cores >= USES_LESS_RATIO * share else _bounded(claim, cores)
            for claim, share, cores in zip(claims, shares, used, strict=True)
        ]

    def _claim(self, job: Job, node: Node) -> _Claim:
        useful, limit = useful_cores(job, node), job.allocation.limit_millicores
        most = min(useful, math.inf if limit is None else limit / 1000)
        return _Claim(job.uid, job.allocation.request_millicores, most, useful, self._worth(job.uid))

    def _after(self, moves: Sequence[Migrate]) -> dict[str, dict[str, _Claim]]:
        """The claims on all nodes concerned, once the jobs are on their targets."""
        after = {name: dict(self._here(name)) for move in moves for name in (move.from_node, move.node)}
        for move in moves:
            claim = after[move.from_node].pop(move.job_uid)
            after[move.node][move.job_uid] = self._taken_along(claim, move)
        return after

    def _taken_along(self, claim: _Claim, move: Migrate) -> _Claim:
        """The claim on the target, where the job starts with what its owner gave it.

        One that makes use of a whole node makes use of a larger one, too; one that needs less than its share does not.
        """
        job, target = self._jobs[move.job_uid], self._nodes[move.node]
        known = self._memory.jobs.get(job.uid) or _UNKNOWN
        given = known.original or job.allocation
        limit = math.inf if given.limit_millicores is None else given.limit_millicores / 1000
        useful = claim.full_cores if claim.needs_less else useful_cores(job, target)
        most = min(useful, target.cpu_cores, limit)
        return replace(claim, most_cores=most, request_millicores=given.request_millicores)

    def _rate(self, name: str, claims: Sequence[_Claim]) -> float:
        """Weighted seconds of full speed that the jobs of a node do in a second."""
        shares = _shares(claims, self._nodes[name])
        return math.fsum(claim.seconds_a_second(cores) for claim, cores in zip(claims, shares, strict=True))


_UNKNOWN = JobMemory()


def _shares(claims: Sequence[_Claim], node: Node) -> list[float]:
    """Cores of each job of a node, shape (claims,), as the kernel shares out what other pods leave."""
    weights = [float(max(MIN_SHARE_MILLICORES, claim.request_millicores)) for claim in claims]
    return water_filling([claim.most_cores for claim in claims], capacity_cores(node), weights)


def _bounded(claim: _Claim, cores: float) -> _Claim:
    """A job that uses less than it could have: with just that it is at full speed."""
    needs = max(cores, MIN_SHARE_MILLICORES / 1000)
    return replace(claim, most_cores=needs, full_cores=needs, needs_less=True)


def _cores_used(job: Job, known: JobMemory | None) -> float | None:
    """What it used in its last interval; None: not known, or it has less than it came with.

    A job that is squeezed to a weight of 9 among others of 1,000 uses what is left to it, and not what it needs.
    """
    if known is None or known.growth is None:
        return None
    came, has = known.original or job.allocation, job.allocation
    lowered = has.request_millicores < came.request_millicores or (
        has.limit_millicores is not None
        and (came.limit_millicores is None or has.limit_millicores < came.limit_millicores)
    )
    return None if lowered else known.growth.cpu_cores


def _progress(known: JobMemory | None) -> float:
    """Its growth as a figure to compare by; 0 where it is not known."""
    growth = known.growth.progress_per_second if known is not None and known.growth is not None else 0.0
    return growth if math.isfinite(growth) else 0.0


def _seconds_left(job: Job, known: JobMemory | None) -> float:
    """Until it is done, at its newest pace; infinite when that is not known."""
    if job.steps_planned is None or job.steps_total is None or known is None or not known.paces:
        return math.inf
    left = known.paces[-1].seconds * max(0.0, job.steps_planned - job.steps_total)
    return left if math.isfinite(left) else math.inf
