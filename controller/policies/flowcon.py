"""FlowCon: CPU limits in proportion to growth efficiency, per node, with listeners and back-off.

Source: FlowCon (ICPP 2019) and chapters 4 to 6 of the thesis, Algorithms 1 and 2. Where the print is silent or
ambiguous, this is the reading chosen:

- Per-node interval, back-off and lists, kept in the controller's memory. `beta = 2` follows from the printed
  "0.25" with two jobs.
- The unit of alpha is not printed: by default a fraction of the evaluation's range per initial interval, of the
  whole node (`alphaPer: interval`), or per second (`second`).
- The lower bound 1/(beta·n) also holds for the new list, where the paper prints none.
- A newcomer without a measurement gets the whole node, and counts as the only one that grows: meanwhile the
  share of completing jobs is 0, so they get the lower bound. After three intervals without a reading (no exporter,
  or NaN from the start) it is a newcomer no longer.
- An arrival or departure (the *set* of jobs changed, not their number) runs Algorithm 1 at once and resets the
  interval; it reclassifies only jobs that were measured since the last look, which needs a whole interval.
- A job that grows again after back-off resets the interval too.
- A job whose growth is unknown (restarted, stale, diverged, idle) keeps its class and its limit, and is left
  out: of the sum, and of the question whether all are completing.
- What guards held back or cut short is asked for again between two looks, so that a limit that has to rise in
  steps does not wait out a back-off for each of them.

Limits are soft (5.1.1): `control: requests` writes them as shares, which is FlowCon's faithful form;
`control: limits` writes hard quotas, the second form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from controller.control import given_texts, resizes, targets_millicores
from controller.growth import EARLY_RATIO, is_usable
from controller.job_classes import with_meaning
from controller.model import ClusterSnapshot, Decisions, Job, JobMemory, MemoryState, Node, NodeMemory, Resize
from controller.policies import PolicyParameters, Setting, parameter

PURPOSE = "trainings of which nothing is known but their loss"

NEW, WATCHING, COMPLETING = "NL", "WL", "CL"

NEWCOMER_INTERVALS = 3
"""A job's first reading comes with the first look after its arrival, or the second; the third is for a slow start."""

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
class _Look:
    """One run of Algorithm 1 over one node: what was found, class by class, before limits are set."""

    classes: Mapping[str, str]
    growth: Mapping[str, float]
    """Known growth efficiencies; a job that is not in here has none, or none that can be trusted now."""
    newcomers: frozenset[str]
    revived: bool

    def all_completing(self) -> bool:
        """True when every job that is known to compete is in the completing list, and there is one."""
        competing = [listed for uid, listed in self.classes.items() if uid in self.growth or uid in self.newcomers]
        return bool(competing) and all(listed == COMPLETING for listed in competing)


@dataclass(frozen=True, slots=True)
class _NodeOutcome:
    """What the look at one node yields."""

    resizes: list[Resize]
    reasons: dict[str, str]
    jobs: dict[str, JobMemory]
    node: NodeMemory


class Policy:
    """Algorithm 1 (limits by growth efficiency) and Algorithm 2 (listeners), per node."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._interval_seconds = setting.interval_seconds
        self._control = setting.control

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Look at every node whose interval is over or whose set of jobs changed; leave the others alone."""
        jobs_on = snapshot.jobs_by_node()
        changes: list[Resize] = []
        reasons: dict[str, str] = {}
        jobs, nodes = dict(memory.jobs), {}
        for node in snapshot.nodes:
            outcome = self._decide_node(node, jobs_on[node.name], snapshot, memory)
            changes += outcome.resizes
            reasons |= outcome.reasons
            jobs |= outcome.jobs
            nodes[node.name] = outcome.node
        return Decisions("flowcon", tuple(changes), reasons, MemoryState(jobs, nodes))

    def _decide_node(
        self, node: Node, jobs: Sequence[Job], snapshot: ClusterSnapshot, memory: MemoryState
    ) -> _NodeOutcome:
        now = snapshot.taken_at_seconds
        last = memory.nodes.get(node.name)
        uids = frozenset(job.uid for job in jobs)
        changed = last is None or last.job_uids != uids  # Algorithm 2, lines 3-12
        if last is not None and not changed and now < last.looked_at_seconds + EARLY_RATIO * last.interval_seconds:
            return self._wait(node, jobs, last, memory, now)
        looked_at = last.looked_at_seconds if last else float("-inf")
        look = self._classify(jobs, snapshot, memory, looked_at)
        limits = self._limits(jobs, look, memory, node)
        interval = self._interval(look, last, changed)
        wanted = [limits[job.uid] for job in jobs]
        targets = targets_millicores(jobs, wanted, memory.jobs, node, self._control)
        given = given_texts(wanted, targets, node, self._control)
        reasons = {job.uid: self._reason(job, look, text) for job, text in zip(jobs, given, strict=True)}
        return _NodeOutcome(
            resizes(jobs, targets, reasons, node, self._control),
            reasons,
            {job.uid: memory.jobs[job.uid].with_decision(look.classes[job.uid], limits[job.uid], now) for job in jobs},
            NodeMemory(uids, now, interval),
        )

    def _wait(self, node: Node, jobs: Sequence[Job], last: NodeMemory, memory: MemoryState, now: float) -> _NodeOutcome:
        """Between two looks: nothing new, but what was decided and is not there yet is asked for again."""
        left = max(0.0, last.look_at_seconds - now)
        limits = [min(memory.jobs[job.uid].wanted_cores or node.cpu_cores, node.cpu_cores) for job in jobs]
        targets = targets_millicores(jobs, limits, memory.jobs, node, self._control)
        given = given_texts(limits, targets, node, self._control)
        reasons = {
            job.uid: f"{_NAMED.get(memory.jobs[job.uid].job_class or NEW, NEW)}: next look in {left:.0f} s, {text}"
            for job, text in zip(jobs, given, strict=True)
        }
        return _NodeOutcome(resizes(jobs, targets, reasons, node, self._control), reasons, {}, last)

    def _classify(self, jobs: Sequence[Job], snapshot: ClusterSnapshot, memory: MemoryState, looked_at: float) -> _Look:
        """Algorithm 1, lines 2-13: one step down below alpha, back to the new list at or above it."""
        classes, growth, revived = {}, {}, False
        for job in jobs:
            known = memory.jobs[job.uid]
            # Another policy's class, from before the user changed policies, means nothing here.
            before = known.job_class if known.job_class in _ONE_STEP_DOWN else NEW
            efficiency = known.growth.cpu_efficiency if known.growth and is_usable(job, snapshot) else None
            classes[job.uid] = before
            if efficiency is None or known.growth is None:
                continue
            growth[job.uid] = efficiency
            if known.growth.at_seconds > looked_at:  # measured since the last look: a whole interval
                grows = self._per_alpha(efficiency) >= self._parameters.alpha
                classes[job.uid] = NEW if grows else _ONE_STEP_DOWN[before]
                revived |= grows and before == COMPLETING
        newcomers = frozenset(job.uid for job in jobs if self._is_newcomer(job, memory.jobs[job.uid], snapshot))
        return _Look(classes, growth, newcomers, revived)

    def _is_newcomer(self, job: Job, known: JobMemory, snapshot: ClusterSnapshot) -> bool:
        """Never measured yet, in the new list, and young."""
        age = snapshot.taken_at_seconds - job.started_at_seconds
        young = age <= NEWCOMER_INTERVALS * self._interval_seconds
        return young and known.growth is None and known.job_class in (None, NEW)

    def _limits(self, jobs: Sequence[Job], look: _Look, memory: MemoryState, node: Node) -> dict[str, float]:
        """Algorithm 1, lines 14-27: limits in cores; all of the node for each when every job is completing."""
        if not jobs:
            return {}
        free_competition = look.all_completing()
        total = sum(look.growth.values())
        floor = node.cpu_cores / (self._parameters.beta * len(jobs))
        limits = {}
        for job in jobs:
            uid, listed = job.uid, look.classes[job.uid]
            kept = memory.jobs[uid].wanted_cores
            if free_competition and uid in look.growth:
                limits[uid] = node.cpu_cores
            elif uid in look.growth and listed != WATCHING:
                counts = listed == NEW or not look.newcomers
                share = look.growth[uid] / total if total > 0 and counts else 0.0
                limits[uid] = max(node.cpu_cores * share, floor)
            else:  # watching, or unknown: as it was; a newcomer gets the whole node
                limits[uid] = node.cpu_cores if kept is None else min(kept, node.cpu_cores)  # it may have been moved
        return limits

    def _interval(self, look: _Look, last: NodeMemory | None, changed: bool) -> float:
        """The interval until the next look, in seconds: reset by an event or a revival, doubled in back-off."""
        base = self._interval_seconds
        interval = base if last is None or changed or look.revived else last.interval_seconds
        if look.all_completing():
            interval = min(2 * interval, base * self._parameters.max_interval_ratio)
        return interval

    def _per_alpha(self, efficiency: float) -> float:
        """Growth efficiency in the unit of alpha."""
        per_interval = self._parameters.alpha_per == "interval"
        return efficiency * self._interval_seconds if per_interval else efficiency

    def _reason(self, job: Job, look: _Look, given: str) -> str:
        listed, efficiency = _NAMED[look.classes[job.uid]], look.growth.get(job.uid)
        if job.uid in look.newcomers:
            return f"{listed}: newcomer without a growth reading yet, {given}"
        if efficiency is None:
            return f"{listed}: growth unknown, kept at {given}"
        alpha = self._parameters.alpha
        growth = self._per_alpha(efficiency)
        sign = "≥" if growth >= alpha else "<"
        return f"{listed}: growth {growth:.3g}/{self._parameters.alpha_per} {sign} α {alpha:g}, {given}"
