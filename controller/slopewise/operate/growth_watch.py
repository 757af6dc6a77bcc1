"""Follows the JobGrowths of a cluster for `slopewise top`: one list and one watch, however long it runs.

It needs the right to list and watch jobgrowths, which the `view` role has where manifests/cluster is applied.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Self

from slopewise.adapters.kube.cache.reflector import Reflector
from slopewise.adapters.kube.connection import Connection, connect
from slopewise.adapters.kube.state.job_growth_object import growth_path
from slopewise.errors import DataSourceError
from slopewise.operate.growths import read_growth
from slopewise.operate.status import Jobs, jobs_line, leader_line, read_leader
from slopewise.operate.top import Losses, View, row_of

FIRST_SECONDS = 15.0
"""How long the first list may take: 5,000 JobGrowths are 20 MB."""

SILENT_SECONDS = 60.0
"""A watch ends every 30 s, and is given up 10 s later: after a minute the API server does not answer."""

LEADER_SECONDS = 5.0
_POLL_SECONDS = 0.05


class GrowthWatch:
    """The workloads of a cluster, always the newest. Leave it to end the watch."""

    def __init__(self, connection: Connection, lease_namespaces: tuple[str, ...]) -> None:
        """Nothing is sent yet; UsageError where the kubeconfig cannot be used."""
        self._api = connect(connection)
        self._lease_namespaces = lease_namespaces
        self._store = Reflector(self._api, growth_path(connection.namespace), read_growth)
        self._losses = Losses()
        self._leader, self._leader_due = "", 0.0

    def __enter__(self) -> Self:
        """Read the first list; DataSourceError where it cannot be had."""
        self._store.start()
        deadline = time.monotonic() + FIRST_SECONDS
        while not self._store.synced:
            if self._store.failure is not None or time.monotonic() > deadline:
                reason = self._store.failure or f"no answer within {FIRST_SECONDS:.0f} s"
                self.close()
                raise DataSourceError(f"top: the JobGrowths cannot be read: {reason}")
            time.sleep(_POLL_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the watch and close the connections."""
        self._store.stop()
        self._api.close()

    def view(self) -> View:
        """The workloads now."""
        growths = self._store.items()
        self._losses.note({each.name: each.status.loss for each in growths})
        jobs = Jobs()
        for each in growths:
            jobs.add(each.name, each.status.state, each.status.job_class, each.status.conditions)
        now = datetime.now(UTC)
        rows = [row_of(each.name, each.status, self._losses.of(each.name)) for each in growths]
        if time.monotonic() >= self._leader_due:
            self._leader = leader_line(read_leader(self._api, self._lease_namespaces))
            self._leader_due = time.monotonic() + LEADER_SECONDS
        return View(rows, (f"{now:%H:%M:%SZ}  {jobs_line(jobs)}", self._leader), self._trouble())

    def _trouble(self) -> str:
        silent = self._store.silent_seconds()
        if self._store.failure is None and silent <= SILENT_SECONDS:
            return ""
        reason = f": {self._store.failure}" if self._store.failure else ""
        return f"the API server has sent nothing for {silent:.0f} s{reason}; the figures are that old"
