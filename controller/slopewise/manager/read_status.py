"""Reads what `slopewise status` prints; nothing is written.

It needs the right to list trainingpolicies and jobgrowths, and to read the Lease where its holder is to be known.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import ValidationError

from slopewise.adapters.kube.cache.reflector import pages
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.state.training_policies import policy_path
from slopewise.composition import composed_name
from slopewise.crds.policy_status import TrainingPolicyStatus
from slopewise.errors import DataSourceError
from slopewise.explain.overview import Jobs, Leader, PolicyRow
from slopewise.manager.connect import LEASE_NAME
from slopewise.manager.read_growth import growths_of

_LEASES = "coordination.k8s.io/v1"

ABANDONED_LEASES = 4
"""After so many of its own durations a Lease that nobody renews has no holder; clocks of two machines differ."""


def read_leader(api: Api, lease_namespace: str) -> Leader:
    """Who leads; a Lease that may not be read is no error."""
    try:
        lease = api.get(path_of(_LEASES, "leases", lease_namespace, LEASE_NAME))
    except ApiError as error:
        return Leader("", None) if error.status == 404 else Leader("", None, str(error))
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    ago = None if renewed is None else (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds()
    abandoned = ago is not None and ago > ABANDONED_LEASES * float(spec.get("leaseDurationSeconds") or 15)
    return Leader("" if abandoned else str(spec.get("holderIdentity") or ""), ago)


def read_policies(api: Api) -> list[PolicyRow]:
    """Every TrainingPolicy; DataSourceError where they cannot be read."""
    try:
        found = [_policy(each) for page in pages(api, policy_path(), {}) for each in page.get("items") or ()]
    except ApiError as error:
        raise DataSourceError(f"status: the TrainingPolicies cannot be read: {error}") from error
    return sorted(found, key=lambda row: row.name)


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
