"""`slopewise history`: lists the actions on jobs from the history in their JobGrowths; nothing is written."""

from __future__ import annotations

from slopewise.adapters.kube.connection import Connection
from slopewise.crds.history import Line, in_order
from slopewise.manager.read_growth import read_growths


def read_history(connection: Connection, job: str | None) -> list[Line]:
    """The actions of all workloads, or of those named `job`, oldest first; errors as of `read_growths`."""
    return in_order(line for growth in read_growths(connection, "history", job) for line in growth.lines)
