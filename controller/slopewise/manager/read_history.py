"""`slopewise history`: lists the actions on jobs from the history in their JobGrowths; nothing is written.

It needs the right to read jobgrowths, which the `view` role has where manifests/cluster is applied.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from slopewise.adapters.kube.cache.reflector import pages
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.crds.history import Line, in_order
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import DataSourceError, UsageError
from slopewise.manager.connect import connect
from slopewise.manager.options import Connection


def read_history(connection: Connection, job: str | None) -> list[Line]:
    """The actions of all workloads, or of those named `job` (`NAME` or `NAMESPACE/NAME`), oldest first.

    UsageError when none has that name; DataSourceError when the cluster does not answer.
    """
    api = connect(connection)
    try:
        growths = [each for each in _growths(api, connection.namespace) if job is None or job in _names(each)]
    except ApiError as error:
        raise DataSourceError(f"history: the JobGrowths cannot be read: {error}") from error
    finally:
        api.close()
    if job is not None and not growths:
        where = f"in namespace {connection.namespace}" if connection.namespace else "in the cluster"
        raise UsageError(
            f"history: no workload {job} is managed {where}; `kubectl get growth -A` lists those that are."
        )
    return in_order(line for growth in growths for line in _lines(growth))


def _growths(api: Api, namespace: str | None) -> Iterator[Json]:
    for page in pages(api, growth_path(namespace), {}):
        yield from page.get("items") or ()


def _names(growth: Json) -> tuple[str, str]:
    name = growth["spec"]["workload"]["name"]
    return name, f"{growth['metadata']['namespace']}/{name}"


def _lines(growth: Json) -> Iterator[Line]:
    """The actions of one JobGrowth; none where its status is malformed."""
    try:
        status = JobGrowthStatus.model_validate({"history": (growth.get("status") or {}).get("history") or ()})
    except ValidationError:
        return
    for action in status.history:
        yield Line(growth["metadata"]["namespace"], growth["spec"]["workload"]["name"], action)
