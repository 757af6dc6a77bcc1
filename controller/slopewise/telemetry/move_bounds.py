"""Counts moves away from each node, beside the bounds that each policy sets on moves: an alert compares them.

The guard of the budget counts what the jobs' memory has of moves. The counter is independent of that: it counts what
was begun. Worked example: three pods of one Job leave node n1 in one pass. That is one move away from n1.
"""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge

from slopewise.model import JobUid, MoveBounds, PassReport


class MoveBoundMetrics:
    """Of all policies of one process, by the name of the policy document."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._departures = Counter(
            "slopewise_node_departures", "Moves away from a node that were begun.", ["name", "job_node"],
            registry=registry,
        )  # fmt: skip
        self._per_node_hour = Gauge(
            "slopewise_moves_max_per_node_hour", "Bound of the moves away from one node within an hour.", ["name"],
            registry=registry,
        )  # fmt: skip
        self._concurrent = Gauge(
            "slopewise_moves_max_concurrent", "Bound of the moves under way at the same time.", ["name"],
            registry=registry,
        )  # fmt: skip
        self._nodes: dict[str, set[str]] = {}

    def show(self, document: str, bounds: MoveBounds | None) -> None:
        """Show the bounds of a policy; none while it moves no job or is unbounded."""
        if bounds is None or not bounds.enabled:
            self._hide(document)
            return
        self._per_node_hour.labels(document).set(bounds.max_per_node_per_hour)
        self._concurrent.labels(document).set(bounds.max_concurrent)

    def count(self, document: str, report: PassReport) -> None:
        """Count the moves that this pass began. A node has its 0 before its first move; deleted nodes disappear."""
        if report.snapshot is None:
            return
        seen, there = self._nodes.get(document, set()), {node.name for node in report.snapshot.nodes}
        for node in seen - there:
            self._departures.remove(document, node)
        for node in there:
            self._departures.labels(document, node)
        begun = {
            (JobUid.of(event.job_uid).workload, event.record.from_node, event.record.at_seconds)
            for event in report.results.events
            if event.stage == "begun"
        }
        for _, node, _ in begun:
            self._departures.labels(document, node).inc()
        self._nodes[document] = there | {node for _, node, _ in begun}

    def forget(self, document: str) -> None:
        """Remove a deleted policy."""
        self._hide(document)
        for node in self._nodes.pop(document, set()):
            self._departures.remove(document, node)

    def _hide(self, document: str) -> None:
        for gauge in (self._per_node_hour, self._concurrent):
            with suppress(KeyError):
                gauge.remove(document)
