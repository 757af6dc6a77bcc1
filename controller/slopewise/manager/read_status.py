"""Reads what `slopewise status` prints; nothing is written.

It needs the right to list jobgrowths; for a whole cluster also trainingpolicies, which are the cluster's. To show who
leads, it needs the right to read the Lease.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import ValidationError

from slopewise.adapters.kube.cache.reflector import pages
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.connection import LEASE_NAME
from slopewise.adapters.kube.state.training_policies import policy_path
from slopewise.composition import composed_name
from slopewise.crds.policy_status import TrainingPolicyStatus
from slopewise.errors import DataSourceError
from slopewise.explain.overview import Jobs, Leader, Policies, PolicyRow
from slopewise.manager.read_growth import growths_of

_LEASES = "coordination.k8s.io/v1"

ABANDONED_LEASES = 4
"""After so many of its own durations a Lease that nobody renews has no holder; clocks of two machines differ."""


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
        found = [_policy(each) for page in pages(api, policy_path(), {}) for each in page.get("items") or ()]
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
