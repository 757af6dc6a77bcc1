"""Refuses demos in which a policy could do nothing, before the first run.

What cannot be known before, such as how long a command of the user's runs, is said after them
(`report/comparability.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slopewise.composition import parts_of
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.demo.workloads import DESCRIPTIONS, WorkloadName
from slopewise.errors import UsageError
from slopewise.own_policies.catalogue import find

MAX_SLOWER = 2.0
"""How much slower this machine may be than the one that the lengths of the built-in jobs were measured on."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the runs will be made of."""

    jobs: Sequence[JobSpec]
    nodes: int
    cores: int
    """Of the machine, which nodes are made of."""
    interval_seconds: float
    longest_seconds: float | None
    """How long the longest of the jobs takes, with fair shares; None where that is not known before the runs."""
    jobs_file: Path | None = None
    """None: the jobs are a built-in list."""

    @property
    def where(self) -> str:
        """Where a user would write what a job lacks."""
        return f"in {self.jobs_file}" if self.jobs_file is not None else "in a jobs file (--jobs)"


_Check = Callable[[Surroundings], str | None]
"""What hinders a policy and what to do about it; None: nothing does."""


def refuse_idle_policies(names: Sequence[str], given: Surroundings) -> None:
    """UsageError for the first of these policies that could do nothing in these runs."""
    if len(given.jobs) < 2 and names:
        raise UsageError(
            f"There is one job, and a policy shares CPU or nodes among several; write a second one {given.where}."
        )
    for name in dict.fromkeys(part for each in names for part in parts_of(each)):
        for check in _CHECKS.get(name, ()):
            if (hindrance := check(given)) is not None:
                raise UsageError(f"policy {name} could do nothing here: {hindrance}.")


def refuse_mode(document: TrainingPolicy, path: Path) -> None:
    """UsageError for a document in whose mode nothing would be changed, and so nothing compared."""
    mode = document.spec.mode
    if mode not in ("Canary", "Auto"):
        raise UsageError(f"{path}: spec.mode is {mode}, in which nothing would be changed; write Auto for a demo.")


def refuse_migration(document: TrainingPolicy, path: Path) -> None:
    """UsageError for a policy that does nothing but move jobs, with a document that forbids moves."""
    name = (document.spec.placement or document.spec.policy).name
    if find(name).actions == {"migrate"} and not document.spec.migration.enabled:
        raise UsageError(
            f"{path}: policy {name} could do nothing here: it only moves jobs, and spec.migration.enabled is false; "
            "write true."
        )


def _one_node(given: Surroundings) -> str | None:
    if given.nodes > 1:
        return None
    if given.cores < 2:
        return "it chooses among nodes, and the one core of this machine makes one node; take a machine with two"
    return "it chooses among nodes, and there is one; add --nodes 2"


def _no_job_may_move(given: Surroundings) -> str | None:
    if any(job.migratable for job in given.jobs):
        return None
    return (
        "it moves running jobs, and none of these may be moved; write `migratable: true` beside those that save on "
        f"SIGTERM and resume, {given.where}"
    )


def _without(what: str, key: str, workload: WorkloadName, has: Callable[[JobSpec], bool]) -> _Check:
    def check(given: Surroundings) -> str | None:
        if any(map(has, given.jobs)):
            return None
        if given.jobs_file is not None:
            return f"no job has {what}; write `{key}` beside those that do, {given.where}"
        return f"none of these jobs has {what}; add --workload {workload} ({DESCRIPTIONS[workload]})"

    return check


_NO_DEADLINE = _without("a deadline", "deadlineSeconds", "deadlines", lambda job: job.deadline_seconds is not None)
_NO_OBJECTIVE = _without("an objective", "qoeSeconds", "served", lambda job: job.objectives.qoe_seconds is not None)
_NO_TARGET = _without(
    "a target",
    "targetLoss",
    "targets",
    lambda job: (job.objectives.target_level, job.objectives.deliverable_level) != (None, None),
)


def _too_short(given: Surroundings) -> str | None:
    """Growth and pace are known one interval after a job's arrival at the earliest."""
    longest = given.longest_seconds
    if longest is None or MAX_SLOWER * longest >= given.interval_seconds:
        return None
    return (
        f"it decides every {given.interval_seconds:g} s, and the longest of these jobs takes about {longest:.0f} s; "
        "give a shorter --interval or a larger --scale"
    )


def _too_short_on_one_node(given: Surroundings) -> str | None:
    """On several nodes it still places what arrives."""
    return _too_short(given) if given.nodes == 1 else None


_CHECKS: Mapping[str, Sequence[_Check]] = {
    "flowcon": (_too_short,),
    "flowcon2": (_too_short_on_one_node,),
    "marginal": (_too_short_on_one_node,),
    "specon": (_one_node, _no_job_may_move, _too_short),
    "draps": (_one_node,),
    "procon": (_one_node,),
    "deadline": (_NO_DEADLINE, _too_short),
    "dqoes": (_NO_OBJECTIVE, _too_short),
    "tradl": (_NO_TARGET, _too_short),
}
"""By policy; of the others nothing is known that would leave them nothing to do."""
