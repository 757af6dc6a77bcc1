"""Silent jobs: a policy has no figures for them, so they keep their original CPU, and the others share the rest.

A job that has never reported, or has stopped for long, is neither raised nor lowered, and counts in no sum; an earlier
change of it is restored. The policy divides the rest, as if the node were that much smaller.

Worked example: three jobs with requests of 1000m each on 1.5 cores, one of them without a loss: it keeps its 1000m,
which are 0.5 cores, and the others share 1.0 core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from slopewise.allocation import MIN_CAPACITY_CORES, even_share_millicores, original_millicores, promisable, share_ratio
from slopewise.estimators.growth import age_seconds, is_fresh, stale_after_seconds
from slopewise.model import ClusterSnapshot, CpuControl, Job, JobMemory, Node, PolicyMemory
from slopewise.text import duration

GONE_WINDOWS = 3
"""A job that has reported before is silent after so many windows of four scrapes: one missed scrape changes nothing."""

Silence = Callable[[Job, JobMemory], str | None]
"""Why a job is silent, as a message for its owner; None: it is not."""


def without_a_loss(snapshot: ClusterSnapshot) -> Silence:
    """A job is silent that reports no loss; the default. A job that diverged after it reported is not silent."""

    def silence(job: Job, known: JobMemory) -> str | None:
        if known.levels.first is None:
            return _no_loss_yet(job)
        since = known.levels.silent_since_seconds
        return None if since is None else _gone("loss", since, snapshot)

    return silence


def without_a_report(snapshot: ClusterSnapshot) -> Silence:
    """A job is silent that reports no loss, no steps and no responses."""

    def silence(job: Job, known: JobMemory) -> str | None:
        if job.evaluation is not None or job.steps_total is not None or job.responses is not None:
            return None
        if known.levels.first is None and known.timing.anchor is None and not known.paces:
            return "reports nothing"
        since = known.levels.silent_since_seconds
        return None if since is None else _gone("sample", since, snapshot)

    return silence


def none_is_silent(job: Job, known: JobMemory) -> str | None:
    """No job is silent: for policies that change no CPU."""
    return None


def _no_loss_yet(job: Job) -> str:
    if job.evaluation is None:
        return "reports no loss"
    return "has had no finite loss yet" if not job.evaluation.finite else "has only begun to report its loss"


def _gone(what: str, since_seconds: float, snapshot: ClusterSnapshot) -> str | None:
    """The message for a job that has stopped to report for long; None: it has only just stopped."""
    seconds = snapshot.taken_at_seconds - since_seconds
    return f"no {what} for {duration(seconds)}" if seconds >= GONE_WINDOWS * stale_after_seconds(snapshot) else None


def reason(because: str) -> str:
    """The reason of a silent job."""
    return f"unchanged: {because}, keeps its original CPU"


def unknown_reason(job: Job, known: JobMemory, snapshot: ClusterSnapshot) -> str:
    """Why the growth of a reporting job is not known now."""
    evaluation = job.evaluation
    if evaluation is None:
        return "no loss now"
    if job.restarted:
        return "it has just restarted"
    if not evaluation.finite:
        return "its loss is not finite"
    if not is_fresh(evaluation, snapshot):
        return f"its newest loss is {age_seconds(evaluation, snapshot):.0f} s old"
    if known.growth is None or evaluation.sample_count < 2:
        return "not measured yet"
    if known.growth.cpu_cores is None:
        return "its CPU is not counted"
    return f"it used {known.growth.cpu_cores:.3g} cores, so it waits"


def silent_jobs(jobs: Sequence[Job], remembered: Mapping[str, JobMemory], silence: Silence) -> dict[str, str]:
    """Why each silent job is silent, by uid."""
    reasons = ((job.uid, silence(job, remembered[job.uid])) for job in jobs)
    return {uid: because for uid, because in reasons if because is not None}


@dataclass(frozen=True, slots=True)
class JobsOfNode:
    """All jobs of a node, and the silent ones among them."""

    everyone: Sequence[Job]
    """In order of uid."""
    silent: Mapping[str, str]
    """Why each silent job is silent, by uid."""

    @classmethod
    def of(cls, jobs: Sequence[Job], remembered: Mapping[str, JobMemory], silence: Silence) -> JobsOfNode:
        """The jobs in order of uid, and which of them are silent."""
        everyone = sorted(jobs, key=_by_uid)
        return cls(everyone, silent_jobs(everyone, remembered, silence))

    @property
    def reporting(self) -> Sequence[Job]:
        """Those that are not silent."""
        return [job for job in self.everyone if job.uid not in self.silent] if self.silent else self.everyone

    def left_on(self, node: Node, remembered: Mapping[str, JobMemory], control: CpuControl, *, reserves: bool) -> Node:
        """The node as large as what its silent jobs leave.

        Under `limits` they leave what they do not use, unless the policy guarantees CPU (`reserves`): then the node is
        also only its capacity, without what other pods take.
        """
        node = promisable(node) if reserves else node
        if not self.silent or not (control == "requests" or reserves):
            return node
        jobs = self.everyone
        quiet = [job for job in jobs if job.uid in self.silent]
        if control == "requests":
            taken = node.cpu_cores * share_ratio(quiet, jobs, remembered)
        else:
            even = even_share_millicores(jobs, remembered, node, control)
            came_with = [original_millicores(job, remembered, node, control) for job in quiet]
            # A job with accelerators gets no CPU that the limit of a silent job covers, unless that is the whole node.
            keeps_all = any(job.least_cores is not None for job in jobs)
            bounded = 1000 * node.cpu_cores if keeps_all else even
            taken = sum(each if each < bounded else min(even, each) for each in came_with) / 1000
        return replace(node, cpu_cores=max(MIN_CAPACITY_CORES, node.cpu_cores - taken))


_by_uid = attrgetter("uid")


def is_new(known: JobMemory) -> bool:
    """Whether nothing has been decided of a job yet: it arrived, or has begun to report since the last evaluation."""
    return known.decided.job_class is None and known.decided.wanted_cores is None


def without_decision(known: JobMemory) -> JobMemory:
    """The memory of a silent job: no class, no limit, no expected end."""
    decided = known.decided
    if decided.job_class is None and decided.wanted_cores is None and decided.unmet is None and decided.ends is None:
        return known
    return known.altered(decided=PolicyMemory(marks=decided.marks, state=decided.state))
