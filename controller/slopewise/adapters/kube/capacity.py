"""Computes what the pods of others leave of each node's CPU: allocatable less what they request, or use if more.

Requests come from a watch of all pods that are not managed, use from one query to Prometheus. Either alone is enough.
Without both all of the node counts, and `Capacity.note` says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from slopewise.adapters.kube.cache.records import OtherPod, PodRecord
from slopewise.adapters.kube.client.protocol import Store
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.errors import ObservationError
from slopewise.model import CpuAllocation, Job

UseOfOthers = Callable[[float, Collection[str], Container[JobKey]], Mapping[str, float]]
"""`PrometheusReader.use_of_others`."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is left of one node for jobs, in cores; None: not known, and all of it counts."""

    available_cores: float | None
    note: str | None = None
    """What is wrong with the figure; None: nothing."""


def available(whole: float, reserved: float, requested: float | None, used: float | None) -> Capacity:
    """Allocatable cores (`whole`) less what others request, or use if that is more; never below 0.

    `reserved`: what this policy's jobs requested before their first resize. `requested`: None where other pods may not
    be read, or are not read yet. `used`: None where no scraped kubelet reports it.

    Use beyond their requests is borrowed, because the kernel gives a node's CPU by weight: so no use of others, nor a
    broken figure of it, takes what the jobs themselves request. Worked example: of 4 cores others request 1 and use 3,
    and jobs request 2: 2 are left, not 1.
    """
    if used is not None and not (math.isfinite(used) and used >= 0):
        found = available(whole, reserved, requested, None)
        return Capacity(found.available_cores, f"the CPU use of other pods is reported as {used:.3g} cores")
    if requested is None and used is None:
        return Capacity(None, "what other pods request and use is not known, so all of its CPU counts")
    note = "what other pods request is not known, so only their use counts" if requested is None else None
    if requested is not None and requested > whole:
        note = f"other pods request {requested:.3g} of {whole:.3g} cores"
    elif used is not None and used > whole:
        note = f"other pods use {used:.3g} of {whole:.3g} cores"
    borrowable = max(0.0, whole - reserved)
    taken = max(requested or 0.0, min(used or 0.0, borrowable))
    return Capacity(max(0.0, whole - taken), note)


@dataclass(frozen=True, slots=True)
class _NotOthers:
    """The pods whose use is not that of others: our own, and those that have ended or are deleted.

    The last samples of an ended job count for a minute and more: all others would be squeezed by what it has just left.
    """

    ours: Collection[JobKey]
    present: Collection[tuple[str, str]] | None
    """None: not known, and every pod that is not ours counts."""

    def __contains__(self, key: object) -> bool:
        """Rows of several pods together name none: they count."""
        if not isinstance(key, tuple) or not key[1]:
            return False
        return key in self.ours or (self.present is not None and key not in self.present)


class Others:
    """The pods that are not the jobs of one policy: those of other policies as well."""

    def __init__(self, others: Store[OtherPod] | None, managed: Store[PodRecord], use: UseOfOthers) -> None:
        """`others`: None where they may not be read."""
        self._others = others
        self._managed = managed
        self._use = use

    def leave(
        self,
        cores: Mapping[str, float],
        reserved_cores: Mapping[str, float],
        ours: Collection[JobKey],
        now_seconds: float,
    ) -> dict[str, Capacity]:
        """The capacity of each node, by name. `cores`: allocatable; `reserved_cores`: what `ours` request there."""
        requests = self._requests(ours)
        try:
            namespaces = {key.namespace for key in ours}
            used = self._use(now_seconds, namespaces, _NotOthers(ours, self._present(namespaces)))
        except ObservationError:  # requests alone are known
            used = {}
        return {
            name: available(
                whole,
                reserved_cores.get(name, 0.0),
                None if requests is None else requests.get(name, 0) / 1000,
                used.get(name),
            )
            for name, whole in cores.items()
        }

    def _present(self, namespaces: Collection[str]) -> frozenset[tuple[str, str]] | None:
        """The pods of these namespaces that run; None: they may not be read, or are not read yet."""
        if self._others is None or not self._others.synced:
            return None
        unmanaged = ((pod.namespace, pod.name) for pod in self._others.items() if pod.namespace in namespaces)
        managed = ((pod.namespace, pod.name) for pod in self._managed.items() if not pod.ended)
        return frozenset((*unmanaged, *managed))

    def _requests(self, ours: Collection[JobKey]) -> Mapping[str, int] | None:
        """Millicores that all pods but `ours` reserve, by node; None: not known."""
        if self._others is None or not self._others.synced:
            return None
        reserved: dict[str, int] = defaultdict(int)
        for pod in self._others.items():
            reserved[pod.node] += pod.request_millicores
        for each in self._managed.items():
            if each.node is not None and not each.ended and (each.namespace, each.name) not in ours:
                parts = each.containers if each.pod_level is None else ()
                of_pod = 0 if each.pod_level is None else each.pod_level.request_millicores
                reserved[each.node] += of_pod + sum(container.desired.request_millicores for container in parts)
        return reserved


def reserved_cores(jobs: Iterable[Job], original: Callable[[str], CpuAllocation | None]) -> dict[str, float]:
    """What the jobs of each node requested before their first resize, in cores, by node."""
    reserved: dict[str, float] = defaultdict(float)
    for job in jobs:
        if not job.state.ended:
            reserved[job.node] += (original(job.uid) or job.allocation).request_millicores / 1000
    return reserved


def capacity_message(capacities: Mapping[str, Capacity], most_names: int = 3) -> str | None:
    """The notes on all nodes, those with the same note together; None: there is none."""
    by_note: dict[str, list[str]] = defaultdict(list)
    for name, capacity in sorted(capacities.items()):
        if capacity.note is not None:
            by_note[capacity.note].append(name)
    if not by_note:
        return None
    return "; ".join(
        f"{', '.join(names[:most_names])}{' and more' if len(names) > most_names else ''}: {note}"
        for note, names in by_note.items()
    )
