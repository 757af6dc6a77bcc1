"""Jobs of which a policy does not know what it decides on: they keep what they came with, others share the rest.

Comes before the looks of a policy (`decide_by_node` in `_looks`). No metrics, no action: a job that has never reported,
or has stopped for long, is neither raised nor lowered, and is left out of every sum; what it was changed to before is
given back. Its share stays its own, and the policy divides what that leaves, as if the node were that much smaller.

Worked example: three jobs with requests of 1000m each on 1.5 cores, one of them without a loss: it keeps its 1000m,
which are 0.5 cores, and the others are handed the 1.0 core that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from controller.control import even_share_millicores, own_millicores, share_ratio
from controller.growth import age_seconds, is_fresh, stale_after_seconds
from controller.model import ClusterSnapshot, CpuControl, Job, JobMemory, Node

GONE_WINDOWS = 3
"""A job that has reported before is silent after so many windows of four scrapes: one missed scrape changes nothing."""

_LEAST_LEFT_CORES = 1e-3
"""Of a node whose silent jobs came with all of its weight: shares of it are as good as nothing, and still defined."""

Silence = Callable[[Job, JobMemory], str | None]
"""Why a policy knows nothing of a job, in words for its owner; None: it knows enough."""


def without_a_loss(snapshot: ClusterSnapshot) -> Silence:
    """Silent is who reports no loss: for policies that decide on it, and for all that do not say otherwise.

    A job that has diverged after it reported is not silent: it says that it has.
    """

    def silence(job: Job, known: JobMemory) -> str | None:
        if known.first_level is None:
            return _no_loss_yet(job)
        if known.silent_since_seconds is None or (job.evaluation is not None and not job.evaluation.finite):
            return None
        return _gone("loss", known.silent_since_seconds, snapshot)

    return silence


def without_a_report(snapshot: ClusterSnapshot) -> Silence:
    """Silent is who reports neither a loss nor steps nor responses: for policies that decide on something else."""

    def silence(job: Job, known: JobMemory) -> str | None:
        if job.evaluation is not None or job.steps_total is not None or job.responses is not None:
            return None
        if known.first_level is None and known.pace_anchor is None and not known.paces:
            return "reports nothing"
        since = known.silent_since_seconds
        return None if since is None else _gone("sample", since, snapshot)

    return silence


def nobody_is_silent(job: Job, known: JobMemory) -> str | None:
    """For policies that change no CPU: they leave everybody's alone."""
    return None


def _no_loss_yet(job: Job) -> str:
    if job.evaluation is None:
        return "reports no loss"
    return "has had no finite loss yet" if not job.evaluation.finite else "has only begun to report its loss"


def _gone(what: str, since_seconds: float, snapshot: ClusterSnapshot) -> str | None:
    """That the job has stopped reporting for long; None: it has only just stopped."""
    seconds = snapshot.taken_at_seconds - since_seconds
    return f"no {what} for {seconds:.0f} s" if seconds >= GONE_WINDOWS * stale_after_seconds(snapshot) else None


def reason(why: str) -> str:
    """What its owner is told of a silent job."""
    return f"left alone: {why}, keeps the CPU that it came with"


def why_unknown(job: Job, known: JobMemory, snapshot: ClusterSnapshot) -> str:
    """Why the growth of a job that does report is not known now."""
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
        return "nobody counts its CPU"
    return f"it used {known.growth.cpu_cores:.3g} cores, so it waits"


def silent_jobs(jobs: Sequence[Job], remembered: Mapping[str, JobMemory], silence: Silence) -> dict[str, str]:
    """Why each silent job is left alone, by uid."""
    return silent_and_new(jobs, remembered, silence)[0]


def silent_and_new(
    jobs: Sequence[Job], remembered: Mapping[str, JobMemory], silence: Silence
) -> tuple[dict[str, str], set[str]]:
    """Why each silent job is left alone, by uid; and who has begun to report since the last look.

    For a policy these arrive only now: nothing has been decided of them yet.
    """
    silent: dict[str, str] = {}
    new: set[str] = set()
    for job in jobs:
        known = remembered[job.uid]
        if (why := silence(job, known)) is not None:
            silent[job.uid] = why
        elif known.job_class is None and known.wanted_cores is None:
            new.add(job.uid)
    return silent, new


def left_alone(known: JobMemory) -> JobMemory:
    """The memory of a silent job: no class, no limit."""
    if known.job_class is None and known.wanted_cores is None:
        return known
    return known.altered(job_class=None, class_since_seconds=None, wanted_cores=None, streak=0)


def node_without(
    silent: Mapping[str, str],
    jobs: Sequence[Job],
    remembered: Mapping[str, JobMemory],
    node: Node,
    control: CpuControl,
    *,
    reserves: bool,
) -> Node:
    """The node as large as what its silent jobs leave.

    Under `limits` they leave what they do not use, so that the rest is handed out as well; `reserves`: the policy keeps
    promises, and must not promise what they may use.
    """
    quiet = [job for job in jobs if job.uid in silent]
    if not quiet or not (control == "requests" or reserves):
        return node
    if control == "requests":
        taken = node.cpu_cores * share_ratio(quiet, jobs, remembered)
    else:
        even = even_share_millicores(jobs, remembered, node, control)
        taken = sum(min(even, own_millicores(job, remembered, node, control)) for job in quiet) / 1000
    return replace(node, cpu_cores=max(_LEAST_LEFT_CORES, node.cpu_cores - taken))
