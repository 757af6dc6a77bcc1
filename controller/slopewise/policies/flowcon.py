"""FlowCon: CPU limits in proportion to growth efficiency, per node, with listeners and back-off.

Source: FlowCon (ICPP 2019) and chapters 4 to 6 of the thesis, Algorithms 1 and 2. Where the print is silent or
ambiguous, this is the reading chosen:

- Per-node interval, back-off and lists, kept in the controller's memory. `beta = 2` follows from the printed
  "0.25" with two jobs.
- The unit of alpha is not printed: by default what a job grows per minute (`alphaPer: minute`), so that alpha means the
  same whatever the interval is; `second` with `normaliser: first` gives the thesis' worked example (Fig. 6.5: 0.25
  beside 1 from 40 s on); `interval` is per initial interval.
- Compared with alpha is growth per unit of what the job can use, P / (R / min(C, cores)), where Eq. 4.2 has the whole
  node, P / (R / C), which stays what the shares are in proportion to. The cores are those that the job reports it can
  use, else those that it used, and at least one. So alpha means the same on 2 cores and on 64; on the paper's node of
  one unit both are the same. Worked example: one thread on 16 cores, progress 0.5 % a minute: 0.005 is compared, not
  16 x 0.005 = 0.08.
- The interval that an arrival resets counts from the start of its process, not from its first loss, which a scrape or
  two later shows.
- The lower bound 1/(beta·n) also holds for the new list, where the paper prints none.
- A job arrives with its first loss. Until then (for good without an exporter, or with NaN from the start) it keeps what
  it came with, as does one that has reported no loss for long; the node and n are what they leave.
- A newcomer without a measurement gets the whole node, and counts as the only one that grows: meanwhile the
  share of completing jobs is 0, so they get the lower bound. After three intervals it is a newcomer no longer; if its
  growth cannot be known (its CPU is not counted, or it uses none), it has an even share then.
- An arrival or departure (the *set* of jobs changed, not their number) runs Algorithm 1 at once and resets the
  interval; it reclassifies only jobs that were measured since the last evaluation, which needs a whole interval.
- A job that grows again after back-off resets the interval too, also one that was left out meanwhile (below).
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

from slopewise.estimators.growth import FIRST_INTERVAL_SCRAPES, is_usable
from slopewise.model import ClusterSnapshot, Decisions, Growth, Job, JobMemory, MemoryState, Node, NodeMemory
from slopewise.model.learning import meaning_of
from slopewise.policies import PolicyParameters, Setting, parameter
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node
from slopewise.policies.shared.silence import unknown_reason

PURPOSE = "trainings of which nothing is known but their loss"
ACTIONS = ("resize",)
SOFT_LIMITS = True  # as the paper says (thesis 5.1.1)

NEW, WATCHING, COMPLETING = "NL", "WL", "CL"

NEWCOMER_INTERVALS = 3
"""A job's first reading comes with the first look after its first loss, or the second; a third for a slow start."""

_ONE_STEP_DOWN = {NEW: WATCHING, WATCHING: COMPLETING, COMPLETING: COMPLETING}


class Parameters(PolicyParameters):
    """FlowCon's parameters."""

    alpha: float = parameter(
        0.05,
        gt=0,
        le=1,
        unit="ratio of the evaluation's range, per alphaPer, of what the job can use",
        source="thesis 6.1.2 (0.01 to 0.15)",
        description="growth efficiency below which a job counts as converging",
    )
    alpha_per: Literal["interval", "minute", "second"] = parameter(
        "minute", unit="interval, minute or second", source="reading: not printed", description="the unit of alpha"
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
        16.0, ge=1, le=1024, unit="ratio", source="ours", description="back-off stops at this multiple of the interval"
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """One run of Algorithm 1 over one node: what was found, class by class, before limits are set."""

    classes: Mapping[str, str]
    growth: Mapping[str, float]
    """Known growth efficiencies; a job that is not in here has none, or none that can be trusted now."""
    paces: Mapping[str, float]
    """The same per unit of what the job can use, in the unit of alpha, which they are compared with."""
    unknown: Mapping[str, str]
    """Why that is, by uid."""
    newcomers: frozenset[str]

    def all_completing(self) -> bool:
        """True when every job that is known to compete is in the completing list, and there is one."""
        competing = [listed for uid, listed in self.classes.items() if uid in self.growth or uid in self.newcomers]
        return bool(competing) and all(listed == COMPLETING for listed in competing)


def _was_unknown_twice(known: JobMemory) -> bool:
    """Its last two measurements (or its only one) gave no growth efficiency: it waits, or its CPU is not counted."""
    measured = [growth for growth in (known.growth, known.previous_growth) if growth is not None]
    return bool(measured) and all(growth.cpu_efficiency is None for growth in measured)


def _usable_ratio(job: Job, node: Node, growth: Growth) -> float:
    """The part of the node that the job can use: the threads that it reports, else what it was seen to use.

    At least a core: a job that waits half of the time is compared as one that needs a whole one.
    """
    cores = max(1.0, job.useful_parallelism_cores or growth.cpu_cores or 1.0)
    return min(1.0, cores / node.cpu_cores)


class Policy:
    """Algorithm 1 (limits by growth efficiency) and Algorithm 2 (listeners), per node."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._parameters = parameters
        self._interval_seconds = setting.interval_seconds
        self._longest_seconds = setting.interval_seconds * parameters.max_interval_ratio
        self._control = setting.control
        seconds = {"interval": setting.interval_seconds, "minute": 60.0, "second": 1.0}
        self._alpha_seconds = seconds[parameters.alpha_per]

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node whose interval is over or whose set of jobs changed."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            return self._decide_node(node, jobs, last, snapshot, memory)

        return decide_by_node(
            "flowcon", snapshot, memory, self._control, decide_node, longest_seconds=self._longest_seconds
        )

    def _decide_node(
        self, node: Node, jobs: Sequence[Job], last: NodeMemory | None, snapshot: ClusterSnapshot, memory: MemoryState
    ) -> NodeDecision:
        found = self._classify(node, jobs, snapshot, memory, last.evaluated_at_seconds if last else float("-inf"))
        limits = self._limits(jobs, found, memory, node)
        verdicts = {uid: Verdict(limit, found.classes[uid], self._reason(uid, found)) for uid, limit in limits.items()}
        return NodeDecision(verdicts, self._interval(jobs, found, last, snapshot))

    def _classify(
        self, node: Node, jobs: Sequence[Job], snapshot: ClusterSnapshot, memory: MemoryState, evaluated_at: float
    ) -> _Found:
        """Algorithm 1, lines 2-13: one step down below alpha, back to the new list at or above it."""
        classes, growth, paces, unknown = {}, {}, {}, {}
        for job in jobs:
            known = memory.jobs[job.uid]
            # Another policy's class, from before the user changed policies, means nothing here.
            before = known.decided.job_class if known.decided.job_class in _ONE_STEP_DOWN else NEW
            efficiency = known.growth.cpu_efficiency if known.growth and is_usable(job, snapshot) else None
            classes[job.uid] = before
            if efficiency is None or known.growth is None:
                unknown[job.uid] = unknown_reason(job, known, snapshot)
                continue
            growth[job.uid] = efficiency
            paces[job.uid] = efficiency * _usable_ratio(job, node, known.growth) * self._alpha_seconds
            if known.growth.at_seconds > evaluated_at:  # measured since the last evaluation: a whole interval
                grows = paces[job.uid] >= self._parameters.alpha
                classes[job.uid] = NEW if grows else _ONE_STEP_DOWN[before]
        newcomers = frozenset(uid for uid in unknown if self._is_newcomer(memory.jobs[uid], snapshot))
        return _Found(classes, growth, paces, unknown, newcomers)

    def _is_newcomer(self, known: JobMemory, snapshot: ClusterSnapshot) -> bool:
        """Never measured yet, and not in the new list for long."""
        if known.growth is not None or known.decided.job_class in (WATCHING, COMPLETING):
            return False
        if known.decided.job_class != NEW:
            return True
        since = float("-inf") if known.decided.class_since_seconds is None else known.decided.class_since_seconds
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
        if known.decided.wanted_cores is None or (job.uid in found.unknown and _was_unknown_twice(known)):
            return even
        kept = min(known.decided.wanted_cores, whole)  # it may have been moved
        diverged = job.evaluation is not None and not job.evaluation.finite
        return min(kept, even) if diverged else kept

    def _interval(
        self, jobs: Sequence[Job], found: _Found, last: NodeMemory | None, snapshot: ClusterSnapshot
    ) -> float:
        """The interval until the next evaluation, in seconds: doubled while all are completing, and reset by an event.

        It stays where nothing is known of jobs that are all completing: a missed scrape is no event. An arrival's
        counts from its start, not from its first loss, which takes some scrapes to be seen.
        """
        base = self._interval_seconds
        before = frozenset() if last is None else last.job_uids
        changed = last is None or before != found.classes.keys()  # Algorithm 2, lines 3-12
        former = base if last is None or changed else max(base, last.interval_seconds)
        if found.all_completing():
            return min(2 * former, self._longest_seconds)
        if not found.growth and set(found.classes.values()) == {COMPLETING}:
            return former
        arrived_at = max((job.started_at_seconds for job in jobs if job.uid not in before), default=None)
        if arrived_at is None:
            return base
        left = min(base, base - (snapshot.taken_at_seconds - arrived_at))
        return left if left >= FIRST_INTERVAL_SCRAPES * snapshot.scrape_interval_seconds else base

    def _reason(self, uid: str, found: _Found) -> str:
        means, alpha = meaning_of(found.classes[uid]), self._parameters.alpha
        if uid in found.newcomers:
            return f"{means}: new, how fast it improves is not known yet"
        if uid not in found.growth:
            return f"{means}: how fast it improves is not known ({found.unknown[uid]})"
        growth, per = found.paces[uid], self._parameters.alpha_per
        sign = "≥" if growth >= alpha else "<"
        return f"{means}: improves by {growth:.3g} per {per} at full speed ({sign} alpha {alpha:g})"
