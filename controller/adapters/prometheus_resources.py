"""From the rows of RESOURCES and MACHINES to what each container uses, and to how large nodes are.

`prometheus.py` asks the queries and hands the rows in; `kube/observer.py` joins the result with pods. Counters go with
the time of the kubelet's own sample: it looks at containers every 10 to 15 s, so a rate over the times at which
Prometheus was asked would be wrong by up to a quarter over one minute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from controller.adapters.prometheus_http import Row
from controller.adapters.queries import VALUE_LABEL
from controller.model import Usage

_CONTAINER = ["namespace", "pod", "container"]
_POD = ["namespace", "pod"]
_NETWORK = "network_io"
_VALUES = (
    "cpu",
    "sampled_at",
    "container_memory_working_set_bytes",
    "block_io",
    "container_cpu_cfs_periods_total",
    "container_cpu_cfs_throttled_periods_total",
)


class ContainerKey(NamedTuple):
    """A container as its kubelet names it."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What one container has used so far. None: no kubelet that is scraped tells."""

    usage: Usage
    cpu_periods_total: float | None = None
    """Periods of CPU quota in which it wanted to run; only cAdvisor counts them, and only under a limit."""
    cpu_throttled_periods_total: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The size of a whole node."""

    cpu_cores: float
    memory_bytes: int


def use_by_container(rows: Sequence[Row]) -> dict[ContainerKey, ContainerUse]:
    """One entry for each container of which the CPU time is known; network is told per pod and shared by its own."""
    long = pd.DataFrame(
        [_cells(row.labels, row.value) for row in rows], columns=pd.Index(["kind", *_CONTAINER, "value"])
    )
    is_network = long["kind"] == _NETWORK
    # A container is there twice when a kubelet is scraped both with honor_labels and without: max, as in the query.
    wide = long[~is_network].pivot_table("value", _CONTAINER, "kind", "max").reindex(columns=pd.Index(_VALUES))
    network = long[is_network].groupby(_POD)["value"].max().rename(_NETWORK)
    table = wide.join(network, on=_POD).dropna(subset=["cpu", "sampled_at"])
    return {
        ContainerKey(*key): _use(*values)
        for key, values in zip(table.index.to_list(), table.to_numpy().tolist(), strict=True)
    }


def machines_by_node(rows: Iterable[Row]) -> dict[str, Machine]:
    """Nodes by name: the target's label `node`, else its instance, which is a node's name or its address and port."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        name = row.labels.get("node") or row.labels.get("instance", "").rpartition(":")[0]
        name = name or row.labels.get("instance", "")
        found.setdefault(name, {})[row.labels.get("__name__", "")] = row.value
    return {
        name: Machine(values["machine_cpu_cores"], round(values["machine_memory_bytes"]))
        for name, values in found.items()
        if name and values.keys() >= {"machine_cpu_cores", "machine_memory_bytes"}
    }


def _cells(labels: Mapping[str, str], value: float) -> tuple[str, str, str, str, float]:
    """Kind, namespace, pod, container (empty for a pod's network) and value."""
    return (
        labels.get(VALUE_LABEL) or labels.get("__name__", ""),
        labels.get("exported_namespace") or labels.get("namespace", ""),
        labels.get("pod", ""),
        labels.get("container", ""),
        value,
    )


def _use(
    cpu: float, sampled_at: float, memory: float, block: float, periods: float, throttled: float, network: float
) -> ContainerUse:
    usage = Usage(
        sampled_at_seconds=sampled_at,
        cpu_seconds_total=cpu,
        memory_bytes=_known(memory),
        block_io_bytes_total=_known(block),
        network_io_bytes_total=_known(network),
    )
    return ContainerUse(usage, _known(periods), _known(throttled))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
