"""Reads and prints `slopewise status`: who leads, the policies, the jobs, and what somebody should look at.

It needs the right to list jobgrowths; for a whole cluster also trainingpolicies, which are the cluster's. To show who
leads, it needs the right to read the Lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json, path_of
from slopewise.adapters.kube.connection import LEASE_NAME
from slopewise.adapters.kube.state.freezes import FreezeRecord
from slopewise.adapters.kube.state.training_policies import policy_path
from slopewise.composition import composed_name
from slopewise.crds.conditions import troubles
from slopewise.crds.policy_status import TrainingPolicyStatus
from slopewise.errors import DataSourceError
from slopewise.model.learning import with_meaning
from slopewise.operate.growths import growths_of
from slopewise.reports.columns import Column, fitting, named, one_line, remarks, sized, table_of
from slopewise.reports.wording import UNKNOWN, counted, listed, plain

R = TypeVar("R")

MODE_REASONS = frozenset({"ModeObserve", "ModeRecommend", "Ended", "NotInCanary", "Frozen"})
"""Why jobs are not managed although nothing is wrong; a Freeze has a line of its own."""

MAX_FREEZES = 5
_LEASES = "coordination.k8s.io/v1"

ABANDONED_LEASES = 4
"""After so many of its own durations a Lease that nobody renews has no holder; clocks of two machines differ."""


class Leader(NamedTuple):
    """Who holds the Lease."""

    holder: str
    """Empty: nobody does, or it was abandoned."""
    renewed_seconds_ago: float | None
    trouble: str = ""
    """Why the Lease cannot be read."""


class PolicyRow(NamedTuple):
    """One TrainingPolicy."""

    name: str
    mode: str
    policy: str
    status: TrainingPolicyStatus


class Listed(NamedTuple, Generic[R]):
    """The TrainingPolicies of a cluster, or its Freezes in force."""

    rows: Sequence[R] = ()
    trouble: str = ""
    """Why they cannot be read."""


Policies = Listed[PolicyRow]
FreezesInForce = Listed[FreezeRecord]


class Trouble(NamedTuple):
    """One condition that several objects share."""

    condition: str
    reason: str
    names: tuple[str, ...]
    message: str
    """Of the first one."""


@dataclass(slots=True)
class Jobs:
    """The workloads of a cluster, counted."""

    total: int = 0
    states: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    """Names and messages by type and reason of a condition."""

    def add(self, name: str, state: str | None, job_class: str | None, conditions: Iterable[Any]) -> None:
        """One more workload."""
        self.total += 1
        self.states[state or "Unknown"] += 1
        if job_class:
            self.classes[job_class] += 1
        for each in troubles(conditions):
            if each.reason not in MODE_REASONS:
                self.found.setdefault((each.type, each.reason), []).append((name, each.message))

    @property
    def troubles(self) -> list[Trouble]:
        """The most common first."""
        most_first = sorted(self.found.items(), key=lambda item: -len(item[1]))
        return [
            Trouble(kind, reason, tuple(name for name, _ in named), named[0][1]) for (kind, reason), named in most_first
        ]


def read_leader(api: Api, lease_namespaces: tuple[str, ...]) -> Leader:
    """Who leads, by the first Lease that has a holder; a Lease that may not be read is no error."""
    found = []
    for namespace in lease_namespaces:
        found.append(_leader(api, namespace))
        if found[-1].holder:
            return found[-1]
    # Who leads is not known where one Lease has no holder and another one cannot be read.
    return next((each for each in found if each.trouble), found[0])


def _leader(api: Api, namespace: str) -> Leader:
    try:
        lease = api.get(path_of(_LEASES, "leases", namespace, LEASE_NAME))
    except ApiError as error:
        if error.is_not_found:
            return Leader("", None)
        return Leader("", None, f"no right to read leases in {namespace}" if error.is_forbidden else str(error))
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    ago = None if renewed is None else (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds()
    abandoned = ago is not None and ago > ABANDONED_LEASES * float(spec.get("leaseDurationSeconds") or 15)
    return Leader("" if abandoned else str(spec.get("holderIdentity") or ""), ago)


def read_policies(api: Api, namespace: str | None) -> Policies:
    """Every TrainingPolicy; DataSourceError where they cannot be read.

    A user of one namespace has no right to list what belongs to the cluster, and sees its jobs without them.
    """
    try:
        found = [_policy(each) for each in objects(api, policy_path())]
    except ApiError as error:
        if namespace is not None and error.is_forbidden:
            return Policies(trouble="no right to list trainingpolicies in the cluster")
        raise DataSourceError(f"status: the TrainingPolicies cannot be read: {error}") from error
    return Policies(sorted(found, key=lambda row: row.name))


def read_jobs(api: Api, namespace: str | None) -> Jobs:
    """The workloads, counted; DataSourceError where they cannot be read."""
    jobs = Jobs()
    try:
        for growth in growths_of(api, namespace):
            jobs.add(growth.name, growth.status.state, growth.status.job_class, growth.status.conditions)
    except ApiError as error:
        raise DataSourceError(f"status: the JobGrowths cannot be read: {error}") from error
    return jobs


def _policy(policy: Json) -> PolicyRow:
    spec = policy.get("spec") or {}
    named, placing = (spec.get(part) or {} for part in ("policy", "placement"))
    try:
        status = TrainingPolicyStatus.model_validate(policy.get("status") or {})
    except ValidationError:  # somebody else has written into it
        status = TrainingPolicyStatus()
    decides = composed_name(str(named.get("name", "")), placing.get("name"))
    return PolicyRow(policy["metadata"]["name"], str(spec.get("mode", "")), decides, status)


def troubles_of_policies(policies: Sequence[PolicyRow]) -> list[Trouble]:
    """Conditions of policies that are not as they should be."""
    return [
        Trouble(each.type, each.reason, (f"policy {policy.name}",), each.message)
        for policy in policies
        for each in troubles(policy.status.conditions)
    ]


def leader_line(leader: Leader) -> str:
    """The leader in one sentence."""
    if leader.trouble:
        return plain(f"leader: not known ({leader.trouble})")
    if not leader.holder:
        return "leader: none; no controller runs, or none can take the Lease: see the log of its pods"
    ago = "" if leader.renewed_seconds_ago is None else f", renewed {leader.renewed_seconds_ago:.0f} s ago"
    return f"leader: {plain(leader.holder)}{ago}"


def no_policies_line(policies: Policies) -> str:
    """Why no policy is listed."""
    if policies.trouble:
        return f"policies: not known ({policies.trouble})"
    return "there is no TrainingPolicy; apply one (examples/cluster/policy.yaml)"


def policies_table(policies: Sequence[PolicyRow], width: int) -> Table:
    """A row for each policy."""
    columns: list[Column[PolicyRow]] = [
        named("POLICY", policies, lambda row: row.name),
        sized("MODE", policies, lambda row: one_line(row.mode)),
        sized("DECIDES BY", policies, lambda row: one_line(row.policy)),
        sized("READY", policies, _ready),
        sized("JOBS", policies, lambda row: Text(str(row.status.jobs.total)), "right"),
        Column("CLASSES", 12, lambda row: one_line(_counts(row.status.jobs.by_class)), fills=True),
    ]
    return table_of(fitting(columns, [each.heading for each in columns], width), policies)


def _ready(row: PolicyRow) -> Text:
    ready = next((each.status for each in row.status.conditions if each.type == "Ready"), UNKNOWN)
    return Text(ready, style="" if ready == "True" else "yellow")


def jobs_line(jobs: Jobs) -> str:
    """The jobs in one sentence."""
    if not jobs.total:
        return 'no workload is managed; label its pods slopewise.dev/managed: "true"'
    classes = "".join(f"; {count} {with_meaning(name)}" for name, count in jobs.classes.most_common())
    return plain(f"{counted(jobs.total, 'workload')}: {_counts(jobs.states)}{classes}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or UNKNOWN


def freeze_lines(freezes: FreezesInForce) -> list[str]:
    """A line for each of a few Freezes, and for the number of the others."""
    if freezes.trouble:
        return [plain(f"freezes: not known ({freezes.trouble})")]
    shown = [plain(f"frozen: {row.spec.message(row.name)}") for row in freezes.rows[:MAX_FREEZES]]
    more = len(freezes.rows) - len(shown)
    return [*shown, f"frozen: {more} more; kubectl get freezes"] if more else shown


def troubles_table(found: Sequence[Trouble]) -> Table:
    """A row for each trouble, with the names of a few that have it."""
    texts = (f"{each.condition} ({each.reason}), {listed(each.names, at_most=3)}: {each.message}" for each in found)
    return remarks(("attention", "yellow", text) for text in texts)


def as_json(leader: Leader, policies: Policies, freezes: FreezesInForce, jobs: Jobs) -> dict[str, Any]:
    """For `--output json`."""
    return {
        "leader": leader._asdict(),
        "policies": [
            {
                "name": row.name,
                "mode": row.mode,
                "policy": row.policy,
                "status": row.status.model_dump(
                    mode="json", by_alias=True, exclude_none=True, include={"jobs", "canary", "conditions"}
                ),
            }
            for row in policies.rows
        ],
        "policiesTrouble": policies.trouble,
        "freezes": [
            {
                "name": row.name,
                **row.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"name"}),
                "of": row.spec.name,
            }
            for row in freezes.rows
        ],
        "freezesTrouble": freezes.trouble,
        "workloads": {"total": jobs.total, "byState": dict(jobs.states), "byClass": dict(jobs.classes)},
        "attention": [each._asdict() for each in (*troubles_of_policies(policies.rows), *jobs.troubles)],
    }
