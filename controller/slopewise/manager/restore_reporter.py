"""Reports restores of original resources: of a deleted policy, and those before a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import structlog

from slopewise.adapters.kube.reporting.pass_reporter import StatusReporter
from slopewise.feedback.restore import RestoreReport
from slopewise.manager.metrics import ClusterMetrics
from slopewise.tracking import OncePerChange

MAX_NAMED = 20
"""Pods that a log line names."""


class NewOutcomes:
    """Filters the outcomes of each try: restores, and jobs that began to wait or to fail, but not repetitions.

    An accepted restore is none: it is in effect a moment later, or it waits.
    """

    def __init__(self) -> None:
        self._reported = OncePerChange[str, str]()

    def of(self, given_back: RestoreReport) -> RestoreReport:
        """The same, without repetitions."""
        outcomes: dict[str, Mapping[str, str]] = {
            each.name: getattr(given_back, each.name) for each in fields(given_back) if each.name != "accepted"
        }
        fresh = {
            kind: {uid: reason for uid, reason in jobs.items() if self._reported.is_new(uid, kind)}
            for kind, jobs in outcomes.items()
        }
        lasting = {uid for kind, jobs in outcomes.items() if kind not in ("restored", "gone") for uid in jobs}
        self._reported.forget_all_but(lasting)
        return RestoreReport(**fresh)


class RestoreReporter:
    """Reports one policy's restores: metrics, events on pods and policy, one log line with names."""

    def __init__(
        self, policy: str, metrics: ClusterMetrics, reporter: StatusReporter, name_of: Callable[[str], str]
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._reporter = reporter
        self._name_of = name_of
        self._new_outcomes = NewOutcomes()
        self._log = structlog.get_logger("slopewise")

    def report(self, given_back: RestoreReport) -> None:
        """Report one try."""
        self._metrics.restore_pending_pods.labels(self._policy).set(len(given_back.outstanding))
        new = self._new_outcomes.of(given_back)
        trouble = new.trouble
        if not (new.restored or new.gone or trouble):
            return
        self._metrics.on_restored(new)
        self._reporter.emit_restored(new)
        log = self._log.warning if trouble else self._log.info
        log(
            "original resources restored",
            name=self._policy,
            restored=len(new.restored),
            gone=len(new.gone),
            pending=len(given_back.outstanding),
            reasons={self._name_of(uid): reason for uid, reason in list(trouble.items())[:MAX_NAMED]},
        )

    def forget(self) -> None:
        """Remove the policy's metrics."""
        self._metrics.forget_policy(self._policy)
