"""Restores and reports original resources when a policy is deleted, and those that a missing policy left changed.

`manager/leader.py` begins a Finalization for each; it has a thread of its own, because 5,000 pods take a minute. The
finalizer is removed once the pods have their original resources, or after a deadline: pods and nodes may be gone. What
is pending then, or was left by a policy whose finalizer was removed by hand, is retried without end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields

import structlog

from slopewise.adapters.kube.cache.records import FINALIZER
from slopewise.adapters.kube.events import About, Event
from slopewise.adapters.kube.reporting.pass_reporter import StatusReporter
from slopewise.adapters.kube.restorer import Restorer
from slopewise.adapters.kube.state.training_policies import PolicyRecord, set_finalizer
from slopewise.adapters.pauses import FINALIZER_SECONDS
from slopewise.config.training_policy import TrainingPolicy
from slopewise.errors import SlopewiseError
from slopewise.feedback.restore import RestoreReport
from slopewise.manager.metrics import ClusterMetrics
from slopewise.manager.shared import SharedState
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


@dataclass(eq=False)
class RestoreReporter:
    """Reports one policy's restores: metrics, events on pods and policy, one log line with names."""

    policy: str
    metrics: ClusterMetrics
    reporter: StatusReporter
    name_of: Callable[[str], str]
    _new_outcomes: NewOutcomes = field(default_factory=NewOutcomes)

    def report(self, given_back: RestoreReport) -> None:
        """Report one try."""
        self.metrics.restore_pending_pods.labels(self.policy).set(len(given_back.outstanding))
        new = self._new_outcomes.of(given_back)
        trouble = new.trouble
        if not (new.restored or new.gone or trouble):
            return
        self.metrics.on_restored(new)
        self.reporter.emit_restored(new)
        logger = structlog.get_logger("slopewise")
        log = logger.warning if trouble else logger.info
        log(
            "original resources restored",
            name=self.policy,
            restored=len(new.restored),
            gone=len(new.gone),
            pending=len(given_back.outstanding),
            reasons={self.name_of(uid): reason for uid, reason in list(trouble.items())[:MAX_NAMED]},
        )

    def forget(self) -> None:
        """Remove the policy's metrics."""
        self.metrics.forget_policy(self.policy)


CONFIRM_SECONDS = 0.5
"""From an accepted restore to the check whether it is in effect: most kubelets need no longer."""

ORPHANS_SECONDS = 30.0
"""Between two tries when no policy waits, and between two searches for pods of missing policies."""


class Finalization:
    """The finalization of one policy. `record` is None when the policy does not exist."""

    def __init__(self, shared: SharedState, name: str, record: PolicyRecord | None) -> None:
        self.uid = None if record is None else record.uid
        self.over = False
        """Nothing is left to do, and the policy's finalizer is removed."""
        self._shared = shared
        self._name = name
        self._record = record
        self._pause_seconds = ORPHANS_SECONDS if record is None else FINALIZER_SECONDS
        self._give_up_at = time.monotonic() + shared.options.restore_deadline_seconds
        document = record.document if record is not None and record.document is not None else TrainingPolicy()
        self._restorer = Restorer(
            name, shared.api, shared.watches, shared.owners, shared.job_growths, shared.rate_limiter.take,
            document.spec.resources, freezes=shared.freezes,
        )  # fmt: skip
        reporter = StatusReporter(
            name, document.spec, shared.job_growths, self._restorer.index, shared.events, policy_uid=self.uid or ""
        )
        self._restore_reporter = RestoreReporter(name, shared.metrics, reporter, self._restorer.name_of)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ending {name}", daemon=True)
        self._logged = ""
        self._pause = 0.0
        self._accepted: Collection[str] = frozenset()
        """Jobs whose restore the last try found accepted and not in effect."""
        self._log = structlog.get_logger("slopewise")

    def start(self) -> None:
        """Start to restore."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 0.0) -> bool:
        """No further try; True once none is under way. May be called again."""
        self._stopping.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def forget(self) -> None:
        """Remove its metrics."""
        self._restore_reporter.forget()

    def _run(self) -> None:
        while not self.over and not self._stopping.wait(self._pause):
            self._pause = self._pause_seconds
            try:
                self.over = self._try()
            except SlopewiseError as error:
                self._log_once(str(error))
            except Exception as error:
                # A controller error about one policy: logged in full and tried again, since a finalizer waits for it.
                self._log_once(repr(error), error)

    def _try(self) -> bool:
        """One try; True when nothing is left to do."""
        given_back = self._restorer.restore()
        self._restore_reporter.report(given_back)
        if given_back.accepted.keys() != self._accepted:
            self._accepted, self._pause = given_back.accepted.keys(), CONFIRM_SECONDS
        if self._record is None:
            self._restorer.retire()
            return not self._restorer.leaves_anything()
        if not given_back.settled and time.monotonic() < self._give_up_at:
            return False
        self._report_stale(self._record, given_back)
        self._restorer.retire()
        if FINALIZER in self._record.finalizers:
            set_finalizer(self._shared.api, self._name, wanted=False)
        return True

    def _report_stale(self, record: PolicyRecord, given_back: RestoreReport) -> None:
        pending = given_back.outstanding
        if not pending:
            return
        uid, reason = next(iter(pending.items()))
        note = (
            f"the policy goes although pods do not have their original resources back ({len(pending)}), "
            f"for example {self._restorer.name_of(uid)}: {reason}"
        )
        if self._log_once(note):
            about = About.policy(record.name, record.uid)
            self._shared.events.emit(Event(about, "RestoreFailed", note, warning=True, action="Restore"))

    def _log_once(self, what: str, error: Exception | None = None) -> bool:
        """Log it unless it was the last message."""
        if what == self._logged:
            return False
        self._logged = what
        self._log.warning("finalization delayed", name=self._name, reason=what, exc_info=error)
        return True


class Finalizations:
    """All finalizations, by the policy's name: at most one for a name. Called by one thread."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._finalizations: dict[str, Finalization] = {}
        self._next_check_at = float("-inf")

    def of(self, record: PolicyRecord) -> None:
        """Begin the finalization of a deleted policy without passes, unless it is under way."""
        finalization = self._finalizations.get(record.name)
        if finalization is not None and finalization.uid == record.uid:
            return
        if self.stop(record.name):
            self._begin(record.name, record)

    def stop(self, name: str) -> bool:
        """Stop the finalization under this name, which another policy has now; True once it has stopped."""
        finalization = self._finalizations.get(name)
        if finalization is None:
            return True
        if not finalization.stop():
            return False
        finalization.forget()
        del self._finalizations[name]
        return True

    def find_orphans(self, names: Collection[str]) -> None:
        """Begin finalizations for pods whose policy is none of `names`, and drop those that are over."""
        for name, finalization in list(self._finalizations.items()):
            if name not in names and (finalization.over or finalization.uid is not None):
                self.stop(name)
        if time.monotonic() < self._next_check_at:
            return
        self._next_check_at = time.monotonic() + ORPHANS_SECONDS
        self._shared.job_growths.refresh()
        for name in self._shared.job_growths.policies():
            if name and name not in names and name not in self._finalizations:
                self._begin(name, None)

    def stop_all(self, timeout_seconds: float) -> None:
        """No further try."""
        deadline = time.monotonic() + timeout_seconds
        for finalization in self._finalizations.values():
            finalization.stop()
        for finalization in self._finalizations.values():
            finalization.stop(max(0.0, deadline - time.monotonic()))

    def _begin(self, name: str, record: PolicyRecord | None) -> None:
        finalization = self._finalizations[name] = Finalization(self._shared, name, record)
        finalization.start()


class NoFinalizations(Finalizations):
    """In a dry run: it has changed no pods, and other controllers restore theirs."""

    def of(self, record: PolicyRecord) -> None:
        """Its pods are unchanged."""

    def find_orphans(self, names: Collection[str]) -> None:
        """None are ours."""
