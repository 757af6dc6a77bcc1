"""`slopewise history`: what was done to the jobs of a cluster, read from its JobGrowths; nothing is written.

Before it: `cli.py`. After it: `controller/history.py`, which prints. It needs the right to read jobgrowths, which the
`view` role has where manifests/cluster is applied.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.growth_objects import growth_path
from controller.adapters.kube.watching import pages
from controller.cluster.connecting import connect
from controller.cluster.options import Connection
from controller.errors import DataSourceError, UsageError
from controller.history import Line, in_order
from controller.job_growth import JobGrowthStatus


def read_history(connection: Connection, job: str | None) -> list[Line]:
    """The actions of all workloads, or of those named `job` (`NAME` or `NAMESPACE/NAME`), oldest first.

    UsageError when none is named so; DataSourceError when the cluster cannot be asked.
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
    """What somebody else has written into a status is not an action."""
    try:
        status = JobGrowthStatus.model_validate({"history": (growth.get("status") or {}).get("history") or ()})
    except ValidationError:
        return
    for action in status.history:
        yield Line(growth["metadata"]["namespace"], growth["spec"]["workload"]["name"], action)
