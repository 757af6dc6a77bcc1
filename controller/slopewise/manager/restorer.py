"""Restores the pods of one policy by its name alone: no document, no pass, no Prometheus.

`manager/finalization.py` uses it for a deleted policy, `restore_all.py` for all of them. `RestoreReporter` reports
restores, also those that `policy_runner.py` does before a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial

import structlog

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.cache.records import ContainerRecord, PodRecord
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.reporting.pass_reporter import StatusReporter
from slopewise.adapters.kube.resize.actuator import KubeActuator, ResizeContext, Turns
from slopewise.adapters.kube.state.freezes import KubeFreezes, UnlessFrozen
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.job_memory import KubeMemory
from slopewise.adapters.kube.workloads.job_index import WatchedJobIndex
from slopewise.adapters.kube.workloads.owners import Identity, Owners
from slopewise.config.training_policy import ResourceSettings
from slopewise.feedback.restore import RestoreReport, restore_originals
from slopewise.manager.informers import Watches
from slopewise.manager.metrics import ClusterMetrics
from slopewise.model import JobUid
from slopewise.ports import Actuator
from slopewise.tracking import OncePerChange

MAX_NAMED = 20
"""Pods that a log line names."""


class Restorer:
    """The restores of one policy. Called by one thread at a time, and not while the policy has passes."""

    def __init__(
        self,
        policy: str,
        api: Api,
        watches: Watches,
        owners: Owners,
        job_growths: JobGrowthStore,
        turns: Turns,
        settings: ResourceSettings | None = None,
        *,
        freezes: KubeFreezes | None = None,
    ) -> None:
        """`settings`: the policy's, where they are known: a limit that we added stays at its ceiling.

        `freezes`: None where they hold nothing back.
        """
        self.policy = policy
        self._job_growths = job_growths
        self.index = WatchedJobIndex(watches.pods, owners, self._changed_container)
        self._memory = KubeMemory(policy, job_growths, self.index)
        actuator = KubeActuator(
            api,
            self.index,
            settings or ResourceSettings(),
            turns,
            SystemClock(),
            self._memory.original,
            watches.pods.observe,
            context=ResizeContext(
                watches.resizes.waited_seconds,
                watches.limits.changes,
            ),
        )
        self._actuator: Actuator = actuator
        if freezes is not None:
            self._actuator = UnlessFrozen(actuator, partial(freezes.before_write, policy), self.index.find)

    def restore(self) -> RestoreReport:
        """Restore every pod; what waits or fails is tried by the next call."""
        self.index.refresh()
        return restore_originals(self._memory, self._actuator)

    def _changed_container(self, identity: Identity, pod: PodRecord) -> ContainerRecord:
        """The container whose original is stored."""
        document = self._job_growths.find(identity.workload.uid)
        slot = None if document is None else document.slots.get(identity.slot)
        stored = None if slot is None else slot.pod.container
        return next((each for each in pod.containers if each.name == stored), pod.containers[0])

    def retire(self) -> None:
        """Delete the JobGrowths of this policy without an original."""
        self._memory.load()
        self._memory.retire()

    def leaves_anything(self) -> bool:
        """True while JobGrowths of this policy exist."""
        return bool(self._job_growths.of(self.policy))

    def name_of(self, job_uid: str) -> str:
        """A job's `namespace/name`, also when its pod is deleted."""
        workload_uid, slot = JobUid.of(job_uid)
        document = self._job_growths.find(workload_uid)
        if document is None or slot not in document.slots:
            return job_uid
        return f"{document.namespace}/{document.slots[slot].pod.name or document.name}"


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
