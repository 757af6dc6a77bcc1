"""Trials of a study (a hyper-parameter sweep) under `Best`: they exchange their places, and no other job's changes.

The trials of one node have, under the policy as it is, so many indices and so many times by which they are due. The
largest index goes to the trial that has hardly begun, so that each has its turn, then to the one whose chance to be the
best is highest per core-second of its whole work, and so on. The first due time goes to the trial with the least left:
the third trial to end is in time if it ends when under fair sharing the third would have. So what the study gets in
sum, and when, is as before, and no neighbour pays for it. A study that has its node for itself is due as a whole.
Floors are as before: a flat trial goes on, and comes forward as soon as its loss is low.

The chance follows the lowest losses at equal steps: a trial lies as many spreads behind as the trial that is furthest
ahead of it, and the spread is the most that a fitted curve may still fall. Where trials cost a third to three times the
same work, a cheap one that ends lets the next one of the queue begin: over eight draws of six real sweeps this order
needs 0.93 [0.88, 0.97] of the time of the lowest loss first until the best trial is found, and 0.86 [0.76, 0.96] where
a trial can use the whole node; where all cost the same, 0.01 of fair sharing's more. Per core-second that is *left*
whichever trial was ahead first stays first. Losses extrapolated by their slope and optimistic bounds by the plan left
need up to 0.1 of fair sharing's more. `replication/sweeps.md` has the figures of this order.

Worked example: trials are 0, 0.1 and 0.2 behind, and a curve may still fall by 0.1. Of a normal distribution 50, 16 and
2 % lie beyond, so the chances are 73, 23 and 3 %.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from slopewise.estimators import raw_points
from slopewise.model import ClusterSnapshot, Job, JobMemory, MemoryState
from slopewise.policies.marginal.curve import LEAST_NOISE, Floats
from slopewise.policies.marginal.forecast import Forecast
from slopewise.reports.trials import differing, direction, metric_of, percent, training_of

HARDLY_BEGUN = 0.02
"""Of its plan: until then a trial's loss says nothing. With 0.1 the best is found 1 to 3 % later, with 0.2 by 9 %."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is said of a running trial of a favoured study."""

    chance: float
    """To be the best of those that run, 0 to 1."""
    best: bool
    hardly_begun: bool
    flat: str
    """For how long its loss has not fallen, as `400 steps`; empty: it falls."""

    def why(self, *, at_floor: bool) -> str:
        """In one sentence."""
        if self.hardly_begun:
            return "has hardly begun, so it may be best"
        if self.best:
            return "best so far"
        if not at_floor:
            return f"may be best: {percent(self.chance)}"
        return f"floor: {percent(self.chance)} to be best{f', flat for {self.flat}' if self.flat else ''}"


@dataclass(frozen=True, slots=True)
class Studies:
    """The forecasts and due times with the places of trials exchanged, and why."""

    found: Mapping[str, Forecast]
    due: Mapping[str, float]
    fair: Mapping[str, float]  # the due times before the exchange
    trials: Mapping[str, Trial]
    """By uid, of the studies whose best is favoured."""
    shared: Mapping[str, str]
    """Why the study of a trial is shared fairly although its owner asks for the best, by uid."""


def exchanged(
    snapshot: ClusterSnapshot,
    memory: MemoryState,
    found: Mapping[str, Forecast],
    due: Mapping[str, float],
    *,
    best: bool,
) -> Studies:
    """`best`: every study's best is favoured; else those of which a trial says so."""
    members: dict[tuple[str, str], list[Job]] = {}
    for job in snapshot.jobs:
        if job.objectives.study and not job.state.ended:
            members.setdefault((job.namespace, job.objectives.study), []).append(job)
    asked = {(job.namespace, job.objectives.study) for job in snapshot.jobs if job.objectives.favours_best}
    favoured = {key: jobs for key, jobs in members.items() if best or key in asked}
    if not favoured:
        return Studies(found, due, due, {}, {})
    fair, found, due, trials, shared = due, dict(found), dict(due), dict[str, Trial](), dict[str, str]()
    on_node = snapshot.jobs_by_node()
    for jobs in favoured.values():
        claims = [found[job.uid] for job in jobs if job.uid in found]
        seen = [(each.job.uid, now) for each in claims if (now := each.job.evaluation) is not None]
        if because := differing((uid, metric_of(now.series, now.objective)) for uid, now in seen):
            shared |= {each.job.uid: f"its study is shared fairly, because {because}" for each in claims}
        elif len(pods := _trainings(claims)) > 1:
            ranks, of_study = _ranked([first for first, *_ in pods.values()], memory)
            in_order = [each for first in ranks for each in pods[training_of(first.job)]]
            trials |= {each.job.uid: of_study[pods[training_of(each.job)][0].job.uid] for each in in_order}
            for node in sorted({job.node for job in jobs}):
                here = [each for each in in_order if each.job.node == node]
                alone = {job.uid for job in on_node[node]} <= {job.uid for job in jobs}
                _exchange(here, found, due, alone=alone)
    return Studies(found, due, fair, trials, shared)


def _trainings(claims: Sequence[Forecast]) -> dict[Hashable, list[Forecast]]:
    """The pods of each training: ranks go together, as one trial."""
    pods: dict[Hashable, list[Forecast]] = {}
    for each in claims:
        pods.setdefault(training_of(each.job), []).append(each)
    return pods


def _exchange(ranks: Sequence[Forecast], found: dict[str, Forecast], due: dict[str, float], *, alone: bool) -> None:
    """Of the trials of one node, in the order in which they may be best."""
    indices = sorted((each.index for each in ranks), reverse=True)
    for place, (each, index) in enumerate(zip(ranks, indices, strict=True)):
        found[each.job.uid] = replace(each, index=index * (1.0 - 1e-9 * place))  # equal ones keep this order
    times = sorted(due[each.job.uid] for each in ranks)
    by_left = sorted(ranks, key=lambda each: (each.sure_left, each.job.uid))
    due |= {each.job.uid: times[-1] if alone else at for each, at in zip(by_left, times, strict=True)}


def _ranked(claims: Sequence[Forecast], memory: MemoryState) -> tuple[list[Forecast], dict[str, Trial]]:
    """The trials, the one that comes first at the beginning, and what is said of each."""
    known = [memory.jobs[each.job.uid] for each in claims]
    said = {now.objective for each in claims if (now := each.job.evaluation) is not None}
    sign = -1.0 if direction(said, (had.levels for had in known)) == "max" else 1.0
    curves = [_Curve.of(each.job, had, sign) for each, had in zip(claims, known, strict=True)]
    behind_of_most, behind = _behind(curves)
    places = {each.job.uid: place for place, each in enumerate(claims)}
    young = {each.job.uid for each in claims if each.done < HARDLY_BEGUN * each.total}

    def rank(each: Forecast) -> tuple[bool, int, float, float, str]:
        uid, place = each.job.uid, places[each.job.uid]
        if uid in young:
            return False, 0, 0.0, -each.done, uid
        return True, behind_of_most[place], curves[place].loss, -each.done, uid

    ranks = sorted(claims, key=rank)
    begun = [places[each.job.uid] for each in ranks if each.job.uid not in young]
    falls = [_further_fall(claims[place], curves[place]) for place in begun]
    spread = max([1e-9, *falls, *(LEAST_NOISE * abs(curves[place].loss) for place in begun[:1])])
    least = min((behind[place] for place in begun), default=0.0)  # above 0 where each is behind another one
    deviations = [0.0] * len(young) + sorted((behind[place] - least) / spread for place in begun)
    shares = [normal_beyond(each) for each in deviations]
    whole = math.fsum(shares)
    best = claims[begun[0]].job.uid if begun else None
    trials = {}
    for each, share in zip(ranks, shares, strict=True):
        uid = each.job.uid
        trials[uid] = Trial(share / whole, uid == best, uid in young, curves[places[uid]].flat())
    by_worth = sorted(ranks[len(young) :], key=lambda each: -trials[each.job.uid].chance / max(1e-9, each.total))
    return [*ranks[: len(young)], *by_worth], trials


@dataclass(frozen=True, slots=True)
class _Curve:
    """The lowest losses of a trial so far over its work; where larger values are better, with the other sign."""

    unit: str
    works: Floats
    lowest: Floats

    @classmethod
    def of(cls, job: Job, known: JobMemory, sign: float) -> _Curve:
        """By its points, or else its evaluation alone."""
        evaluation, points = job.evaluation, known.points
        if points is not None and points.count:
            pairs = raw_points.unpacked(points).astype(np.float64)
            return cls(points.unit, pairs[:, 0], np.minimum.accumulate(sign * pairs[:, 1]))
        level = known.levels.best if evaluation is None else evaluation.level
        return cls("", np.zeros(1), np.array([math.inf if level is None else sign * level]))

    @property
    def loss(self) -> float:
        """The lowest of all."""
        return float(self.lowest[-1])

    @property
    def near(self) -> float:
        """A loss that is not below this is its lowest one, or noise above it."""
        return self.loss + LEAST_NOISE * abs(float(self.lowest[0]))

    def flat(self) -> str:
        """For how long it has not fallen, as text; empty where that is less than a tenth of its work."""
        flat = float(self.works[-1] - self.works[int(np.argmax(self.lowest <= self.near))])
        return f"{flat:.3g} {'steps' if self.unit == 'steps' else 'core-s'}" if flat > 0.1 * self.works[-1] else ""


def _behind(curves: Sequence[_Curve]) -> tuple[list[int], list[float]]:
    """Of each trial, how many others were lower after the same work, and by how much the one that was furthest ahead.

    Where not all count their work alike, all are compared as they are now.
    """
    alike = len({each.unit for each in curves}) == 1
    ends = np.array([each.works[-1] for each in curves])
    at_equal = np.empty((len(curves), len(curves)))
    for place, each in enumerate(curves):
        until = np.minimum(ends, each.works[-1]) if alike else np.full(len(ends), each.works[-1])
        at_equal[place] = each.lowest[np.maximum(0, np.searchsorted(each.works, until, side="right") - 1)]
    others = at_equal.T
    gaps = [float(np.max(own - of_others)) for own, of_others in zip(at_equal, others, strict=True)]
    return np.count_nonzero(others < at_equal, axis=1).tolist(), gaps


def normal_beyond(deviations: float) -> float:
    """The part of a normal distribution that lies so many standard deviations above its mean, or more."""
    return 0.5 * math.erfc(deviations / math.sqrt(2.0))


def _further_fall(each: Forecast, lowest: _Curve) -> float:
    """By the fitted curve, from now to the end."""
    now, end = math.exp(-each.kappa * min(1.0, each.done / each.total)), math.exp(-each.kappa)
    fallen = float(lowest.lowest[0]) - lowest.loss
    return fallen * max(0.0, now - end) / (1.0 - now) if now < 1.0 else 0.0
