"""Reads the JobGrowths of a cluster for the commands that print them; nothing is written.

It needs the right to read jobgrowths, which the `view` role has where manifests/cluster is applied.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.connection import Connection, connect
from slopewise.adapters.kube.state.job_growth_object import growth_path, read_memory
from slopewise.crds.history import Line, in_order
from slopewise.crds.job_growth import JobGrowthStatus, PodGrowth
from slopewise.errors import DataSourceError, UsageError
from slopewise.estimators.level_range import SETTLED_BY
from slopewise.estimators.raw_points import unpacked
from slopewise.model import JobMemory, Objective
from slopewise.reports.ranking import Ranking, at_rungs
from slopewise.reports.trials import NOT_FINITE, Rungs, Trial

_NO_POINTS = np.empty((0, 2), np.float32)


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
    growths = [each for each in _read(connection, command) if job in (None, each.workload, each.name)]
    if job is not None and not growths:
        where = f"in namespace {connection.namespace}" if connection.namespace else "in the cluster"
        raise UsageError(
            f"{command}: no workload {job} is managed {where}; `kubectl get growth -A` lists those that are."
        )
    return growths


def _read(connection: Connection, command: str, selector: str = "") -> Iterator[ReadGrowth]:
    """The JobGrowths that a field selector chooses; DataSourceError when the cluster does not answer."""
    with closing(connect(connection)) as api:
        try:
            yield from growths_of(api, connection.namespace, selector)
        except ApiError as error:
            raise DataSourceError(f"{command}: the JobGrowths cannot be read: {error}") from error


def read_history(connection: Connection, job: str | None) -> list[Line]:
    """The actions of all workloads, or of those named `job`, oldest first; errors as of `read_growths`."""
    return in_order(line for growth in read_growths(connection, "history", job) for line in growth.lines)


def read_studies(connection: Connection, study: str) -> list[Ranking]:
    """The trials of a study, ranked in each namespace that has one of this name; errors as of `read_growths`."""
    trials: dict[str, list[Trial]] = {}
    for each in _read(connection, "status", f"status.study={study}"):
        trials.setdefault(each.namespace, []).extend(_trials(each))
    if not trials:
        raise UsageError(f"status: there is no study {study!r}; `kubectl get growth -A -o wide` lists studies.")
    return [Ranking(f"{namespace}/{study}", listed) for namespace, listed in sorted(trials.items())]


def _trials(growth: ReadGrowth) -> Iterator[Trial]:
    """Its pods: of an Indexed Job each index is a trial, but for ranks of one training, which have seen one loss."""
    status, trainings = growth.status, dict[object, list[tuple[str, JobMemory, NDArray[np.float32]]]]()
    for pod in status.pods or (PodGrowth(slot="0"),):
        known, pairs = _memory(pod)
        seen = (known.levels.first, known.levels.best, pairs[-1, 1].item()) if len(pairs) else pod.slot
        trainings.setdefault(seen, []).append((pod.slot, known, pairs))
    plan: float | None = None
    for (slot, known, pairs), *ranks in trainings.values():
        name = growth.workload if len(trainings) == 1 else f"{growth.workload}:{slot}"
        points, levels = known.points, known.levels
        rungs: Rungs = {}
        if points is not None and points.unit == "steps" and points.steps and status.progress_ratio:
            plan = plan or points.steps / status.progress_ratio  # the ratio is that of the first pod
            rungs = at_rungs(pairs, plan)
        loss = status.loss if len(trainings) == 1 else float(pairs[-1, 1]) if len(pairs) else None
        spent = [each.points.cpu_seconds for _, each, _ in ranks if each.points is not None]
        used = None if points is None else math.fsum((points.cpu_seconds, *spent))
        chance = None if status.chance is None else known.decided.chance
        loss, reason = (loss, status.reason or "") if levels.finite else (None, NOT_FINITE)
        # The best of three levels that are not settled yet may be the worst, of a loss that rises.
        is_settling = levels.doubts is not None and len(levels.doubts.early) == SETTLED_BY
        rises = not is_settling and (levels.best or 0.0) > (levels.first or 0.0)
        better: Objective = "max" if rises else "min"
        yield Trial(name, status.state or "Unknown", loss, used, better, {}, rungs, reason, levels.series or "", chance)


def _memory(pod: PodGrowth) -> tuple[JobMemory, NDArray[np.float32]]:
    """Its memory and points; empty where none is stored, or it is damaged."""
    try:
        known = read_memory(pod.memory)
        return known, _NO_POINTS if known.points is None else unpacked(known.points)
    except (msgspec.DecodeError, RecursionError, ValueError, zlib.error):
        return JobMemory(), _NO_POINTS


def growths_of(api: Api, namespace: str | None, selector: str = "") -> Iterator[ReadGrowth]:
    """Every JobGrowth, or those with these fields, page by page; ApiError as soon as one cannot be had."""
    return map(read_growth, objects(api, growth_path(namespace), {"fieldSelector": selector} if selector else {}))


def read_growth(growth: Json) -> ReadGrowth:
    """From the object; a malformed status counts as an empty one."""
    try:
        status = JobGrowthStatus.model_validate(growth.get("status") or {})
    except ValidationError:
        status = JobGrowthStatus()
    return ReadGrowth(growth["metadata"]["namespace"], growth["spec"]["workload"]["name"], status)
