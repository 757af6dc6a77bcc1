"""FlowCon: CPU limits in proportion to growth efficiency, per node, with listeners and back-off.

Source: FlowCon (ICPP 2019) and chapters 4 to 6 of the thesis, Algorithms 1 and 2. Where the print is silent or
ambiguous, this is the reading chosen:

- Per-node interval, back-off and lists, kept in the controller's memory. `beta = 2` follows from the printed
  "0.25" with two jobs.
- The unit of alpha is not printed: by default a fraction of the evaluation's range per initial interval, of the
  whole node (`alphaPer: interval`), or per second (`second`).
- The lower bound 1/(beta·n) also holds for the new list, where the paper prints none.
- A job arrives with its first loss. Until then (for good without an exporter, or with NaN from the start) it keeps what
  it came with, as does one that has reported no loss for long; the node and n are what they leave.
- A newcomer without a measurement gets the whole node, and counts as the only one that grows: meanwhile the
  share of completing jobs is 0, so they get the lower bound. After three intervals it is a newcomer no longer; if its
  growth cannot be known (nobody counts its CPU, or it uses none), it has an even share then.
- An arrival or departure (the *set* of jobs changed, not their number) runs Algorithm 1 at once and resets the
  interval; it reclassifies only jobs that were measured since the last look, which needs a whole interval.
- A job that grows again after back-off resets the interval too.
- A job whose growth is unknown (restarted, stale, diverged, idle) keeps its class and its limit, and is left
  out: of the sum, and of the question whether all are completing. One that has diverged has an even share at most.
- What guards held back or cut short is asked for again between two looks, so that a limit that has to rise in
  steps does not wait out a back-off for each of them.

Limits are soft (5.1.1): `control: requests` writes them as shares, which is FlowCon's faithful form;
`control: limits` writes hard quotas, the second form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.growth import is_usable
from controller.job_classes import with_meaning
from controller.model import ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, Node, NodeMemory
from controller.policies import PolicyParameters, Setting, parameter
from controller.policies._looks import Look, Verdict, decide_by_node
from controller.policies._silence import why_unknown

PURPOSE = "trainings of which nothing is known but their loss"

NEW, WATCHING, COMPLETING = "NL", "WL", "CL"

NEWCOMER_INTERVALS = 3
"""A job's first reading comes with the first look after its first loss, or the second; a third for a slow start."""

_NAMED = {listed: with_meaning(listed) for listed in (NEW, WATCHING, COMPLETING)}

_ONE_STEP_DOWN = {NEW: WATCHING, WATCHING: COMPLETING, COMPLETING: COMPLETING}


class Parameters(PolicyParameters):
    """FlowCon's parameters."""

    alpha: float = parameter(
        0.05,
        gt=0,
        le=1,
        unit="ratio of the evaluation's range, per alphaPer, of a whole node",
        source="thesis 6.1.2 (0.01 to 0.15)",
        description="growth efficiency below which a job counts as converging",
    )
    alpha_per: Literal["interval", "second"] = parameter(
        "interval", unit="interval or second", source="reading: not printed", description="the unit of alpha"
    )
    beta: float = parameter(
        2.0,
        ge=1,
        le=1000,
        unit="ratio",
        source="reading of thesis 6.1.3 (0.25 with two jobs)",
        description="no limit is below node / (beta x jobs)",
    )
    max_interval_ratio: float = parameter(
        16.0,
        ge=1,
        le=1024,
        unit="ratio",
        source="ours",
        description="back-off stops at this multiple of the interval",
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """One run of Algorithm 1 over one node: what was found, class by class, before limits are set."""

    classes: Mapping[str, str]
    growth: Mapping[str, float]
    """Known growth efficiencies; a job that is not in here has none, or none that can be trusted now."""
    unknown: Mapping[str, str]
    """Why that is, by uid."""
    newcomers: frozenset[str]
    revived: bool

    def all_completing(self) -> bool:
        """True when every job that is known to compete is in the completing list, and there is one."""
        competing = [listed for uid, listed in self.classes.items() if uid in self.growth or uid in self.newcomers]
        return bool(competing) and all(listed == COMPLETING for listed in competing)


def _was_unknown_twice(known: JobMemory) -> bool:
    """Its last two measurements (or its only one) told no growth efficiency: it waits, or nobody counts its CPU."""
    measured = [growth for growth in (known.growth, known.previous_growth) if growth is not None]
    return bool(measured) and all(growth.cpu_efficiency is None for growth in measured)


class Policy:
    """Algorithm 1 (limits by growth efficiency) and Algorithm 2 (listeners), per node."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._interval_seconds = setting.interval_seconds
        self._control = setting.control

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Look at every node whose interval is over or whose set of jobs changed; leave the others alone."""

        def look_at(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> Look:
            return self._look(node, jobs, last, snapshot, memory)

        return decide_by_node("flowcon", snapshot, memory, self._control, look_at)

    def _look(
        self, node: Node, jobs: Sequence[Job], last: NodeMemory | None, snapshot: ClusterSnapshot, memory: MemoryState
    ) -> Look:
        found = self._classify(jobs, snapshot, memory, last.looked_at_seconds if last else float("-inf"))
        limits = self._limits(jobs, found, memory, node)
        verdicts = {uid: Verdict(limit, found.classes[uid], self._reason(uid, found)) for uid, limit in limits.items()}
        return Look(verdicts, self._interval(found, last))

    def _classify(
        self, jobs: Sequence[Job], snapshot: ClusterSnapshot, memory: MemoryState, looked_at: float
    ) -> _Found:
        """Algorithm 1, lines 2-13: one step down below alpha, back to the new list at or above it."""
        classes, growth, unknown, revived = {}, {}, {}, False
        for job in jobs:
            known = memory.jobs[job.uid]
            # Another policy's class, from before the user changed policies, means nothing here.
            before = known.job_class if known.job_class in _ONE_STEP_DOWN else NEW
            efficiency = known.growth.cpu_efficiency if known.growth and is_usable(job, snapshot) else None
            classes[job.uid] = before
            if efficiency is None or known.growth is None:
                unknown[job.uid] = why_unknown(job, known, snapshot)
                continue
            growth[job.uid] = efficiency
            if known.growth.at_seconds > looked_at:  # measured since the last look: a whole interval
                grows = self._per_alpha(efficiency) >= self._parameters.alpha
                classes[job.uid] = NEW if grows else _ONE_STEP_DOWN[before]
                revived |= grows and before == COMPLETING
        newcomers = frozenset(uid for uid in unknown if self._is_newcomer(memory.jobs[uid], snapshot))
        return _Found(classes, growth, unknown, newcomers, revived)

    def _is_newcomer(self, known: JobMemory, snapshot: ClusterSnapshot) -> bool:
        """Never measured yet, and not in the new list for long."""
        if known.growth is not None or known.job_class in (WATCHING, COMPLETING):
            return False
        if known.job_class != NEW:
            return True
        since = float("-inf") if known.class_since_seconds is None else known.class_since_seconds
        return snapshot.taken_at_seconds - since <= NEWCOMER_INTERVALS * self._interval_seconds

    def _limits(self, jobs: Sequence[Job], found: _Found, memory: MemoryState, node: Node) -> dict[str, float]:
        """Algorithm 1, lines 14-27: limits in cores; all of the node for each when every job is completing."""
        free_competition = found.all_completing()
        total = sum(found.growth.values())
        even = node.cpu_cores / max(1, len(jobs))
        limits = {}
        for job in jobs:
            uid, listed = job.uid, found.classes[job.uid]
            if free_competition and uid in found.growth:
                limits[uid] = node.cpu_cores
            elif uid in found.growth and listed != WATCHING:
                counts = listed == NEW or not found.newcomers
                share = found.growth[uid] / total if total > 0 and counts else 0.0
                limits[uid] = max(node.cpu_cores * share, even / self._parameters.beta)
            else:
                limits[uid] = self._kept(job, memory.jobs[uid], found, node.cpu_cores, even)
        return limits

    def _kept(self, job: Job, known: JobMemory, found: _Found, whole: float, even: float) -> float:
        """The limit of a job that is watched or unknown, in cores: as it was; a newcomer's is the whole node."""
        if job.uid in found.newcomers:
            return whole
        if known.wanted_cores is None or (job.uid in found.unknown and _was_unknown_twice(known)):
            return even
        kept = min(known.wanted_cores, whole)  # it may have been moved
        diverged = job.evaluation is not None and not job.evaluation.finite
        return min(kept, even) if diverged else kept

    def _interval(self, found: _Found, last: NodeMemory | None) -> float:
        """The interval until the next look, in seconds: reset by an event or a revival, doubled in back-off."""
        base = self._interval_seconds
        changed = last is None or last.job_uids != found.classes.keys()  # Algorithm 2, lines 3-12
        interval = base if last is None or changed or found.revived else last.interval_seconds
        if found.all_completing():
            interval = min(2 * interval, base * self._parameters.max_interval_ratio)
        return interval

    def _per_alpha(self, efficiency: float) -> float:
        """Growth efficiency in the unit of alpha."""
        per_interval = self._parameters.alpha_per == "interval"
        return efficiency * self._interval_seconds if per_interval else efficiency

    def _reason(self, uid: str, found: _Found) -> str:
        listed, efficiency = _NAMED[found.classes[uid]], found.growth.get(uid)
        if uid in found.newcomers:
            return f"{listed}: newcomer without a growth reading yet"
        if efficiency is None:
            return f"{listed}: growth unknown ({found.unknown[uid]})"
        alpha = self._parameters.alpha
        growth = self._per_alpha(efficiency)
        sign = "≥" if growth >= alpha else "<"
        return f"{listed}: growth {growth:.3g}/{self._parameters.alpha_per} {sign} α {alpha:g}"
