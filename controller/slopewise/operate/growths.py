"""Reads the JobGrowths of a cluster for the commands that print them; nothing is written.

It needs the right to read jobgrowths, which the `view` role has where manifests/cluster is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.connection import Connection, connect
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.crds.history import Line, in_order
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import DataSourceError, UsageError


class ReadGrowth(NamedTuple):
    """One workload's JobGrowth."""

    namespace: str
    workload: str
    status: JobGrowthStatus

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.workload}"

    @property
    def lines(self) -> list[Line]:
        """Its actions, oldest first."""
        return [Line(self.namespace, self.workload, action) for action in self.status.history]


def read_growths(connection: Connection, command: str, job: str | None = None) -> list[ReadGrowth]:
    """All JobGrowths, or those of the workloads named `job` (`NAME` or `NAMESPACE/NAME`).

    UsageError when none has that name; DataSourceError when the cluster does not answer.
    """
    api = connect(connection)
    try:
        growths = [each for each in growths_of(api, connection.namespace) if job in (None, each.workload, each.name)]
    except ApiError as error:
        raise DataSourceError(f"{command}: the JobGrowths cannot be read: {error}") from error
    finally:
        api.close()
    if job is not None and not growths:
        where = f"in namespace {connection.namespace}" if connection.namespace else "in the cluster"
        raise UsageError(
            f"{command}: no workload {job} is managed {where}; `kubectl get growth -A` lists those that are."
        )
    return growths


def read_history(connection: Connection, job: str | None) -> list[Line]:
    """The actions of all workloads, or of those named `job`, oldest first; errors as of `read_growths`."""
    return in_order(line for growth in read_growths(connection, "history", job) for line in growth.lines)


def growths_of(api: Api, namespace: str | None) -> Iterator[ReadGrowth]:
    """Every JobGrowth, page by page; ApiError as soon as one cannot be had."""
    return map(read_growth, objects(api, growth_path(namespace)))


def read_growth(growth: Json) -> ReadGrowth:
    """From the object; a malformed status counts as an empty one."""
    try:
        status = JobGrowthStatus.model_validate(growth.get("status") or {})
    except ValidationError:
        status = JobGrowthStatus()
    return ReadGrowth(growth["metadata"]["namespace"], growth["spec"]["workload"]["name"], status)
