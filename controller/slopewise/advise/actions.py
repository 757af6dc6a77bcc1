"""Says what to do about the findings of jobs, one sentence a kind, and whose jobs they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from slopewise.advise.findings import JobFinding
from slopewise.reports.wording import counted, plain

MOST_NAMESPACES = 5
"""Named in a sentence; JSON, CSV and the page have every job's."""

_KINDS: Mapping[str, tuple[Callable[[JobFinding], bool], str]] = {
    "with a flat loss": (
        lambda job: bool(job.flat_hours),
        "stop such trainings at a target (slopewise.dev/at-target: stop), or early, with the patience in the job's row",
    ),
    "whose loss did not improve": (
        lambda job: job.is_stalled,
        "check the learning rate and the data before it runs again",
    ),
    "flat so far within the plan": (
        lambda job: job.loss_state == "planned",
        "compare with the plan's schedule, and plan fewer steps if the loss stays flat to its end",
    ),
    "whose loss rises": (lambda job: job.loss_state == "rises", "keep the best checkpoint, and stop early"),
    "flat on held-out data while the training loss falls": (
        lambda job: job.loss_state == "fits",
        "compare with the metric that the training is for; if that is flat, keep the best checkpoint, and stop early",
    ),
    "of which it is not known whether the loss is flat": (
        lambda job: job.reports_loss and job.loss_state in (None, "unclear"),
        "report a smoothed loss, or more often",
    ),
    "throttled while improving": (
        lambda job: job.throttled_while_improving,
        "raise their limits, or have a policy share CPU by requests",
    ),
    "input-bound": (
        lambda job: job.input_bound,
        "give their loaders more CPU (spec.resources.accelerators) or workers, or take fewer GPUs",
    ),
    "that never used half of a request": (
        lambda job: bool(job.cpu_never_used_cores or job.memory_never_used_gib),
        "lower the requests to what was used, with room for a peak",
    ),
}
"""What the jobs are, which they are, and what their owners can do."""


def actions(findings: Sequence[JobFinding]) -> Iterator[str]:
    """A sentence for each kind of finding that some job has, with the namespaces whose owners to ask.

    Worked example: `4 jobs with a flat loss (ask the owners of vision: 3, nlp: 1): stop such trainings at a target.`
    """
    for what, (has, action) in _KINDS.items():
        namespaces = Counter(plain(job.namespace) for job in findings if has(job))
        if namespaces:
            owners = ", ".join(f"{name}: {count}" for name, count in namespaces.most_common(MOST_NAMESPACES))
            more = len(namespaces) - MOST_NAMESPACES
            rest = f", and {more} more" if more > 0 else ""
            yield f"{counted(namespaces.total(), 'job')} {what} (ask the owners of {owners}{rest}): {action}."
