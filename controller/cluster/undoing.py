"""Gives back what one policy has changed, by the policy's name alone: no document, no pass, no Prometheus.

For policies that have no passes any more: `endings.py` uses it when one is deleted, `restore.py` for all of them. What
is worth telling of it, and how, is here too; `runner.py` tells in the same way of what it gives back before a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import structlog

from controller.adapters.clock import SystemClock
from controller.adapters.kube.actuator import KubeActuator, ResizeContext, Turns
from controller.adapters.kube.contracts import Api, MayWrite
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.memory import KubeMemory
from controller.adapters.kube.owners import Identity, Owners
from controller.adapters.kube.records import ManagedPod
from controller.adapters.kube.reporting import StatusReporter
from controller.adapters.kube.unwatched import READ_AGAIN_SECONDS, UnwatchedPods
from controller.cluster.metrics import ClusterMetrics
from controller.cluster.watches import Watches
from controller.restoring import GivenBack, give_back
from controller.settings import ResourceSettings

MOST_NAMED = 20
"""Pods that a log line names one by one."""


class Undoing:
    """Of one policy. Called by one thread at a time, and by none while the policy has passes."""

    def __init__(
        self,
        policy: str,
        api: Api,
        watches: Watches,
        owners: Owners,
        book: GrowthBook,
        may_write: MayWrite,
        turns: Turns,
        settings: ResourceSettings | None = None,
        *,
        by_a_person: bool = False,
    ) -> None:
        """`settings`: the policy's, where it is known: a limit that we added is left at its ceiling.

        `by_a_person`: who may also change pods whose owners have taken the label off, and waits for each answer.
        """
        self.policy = policy
        self._book = book
        self.roster = _Roster(watches, owners, book)
        self._memory = KubeMemory(policy, book, self.roster, intervals={})
        self._actuator = KubeActuator(
            api,
            self.roster,
            settings or ResourceSettings(),
            may_write,
            turns,
            SystemClock(),
            self._memory.original,
            watches.pods.observe,
            context=ResizeContext(
                watches.resizes.waited_seconds,
                watches.limits.changes,
                UnwatchedPods(api, book, 0.0 if by_a_person else READ_AGAIN_SECONDS).find,
                restores_unlabelled=by_a_person,
            ),
        )

    def give_back(self) -> GivenBack:
        """Give every pod what it came with; what waits or fails is tried by the next call."""
        return give_back(self._memory, self._actuator)

    def retire(self) -> None:
        """Delete the JobGrowths of this policy that hold no original any more."""
        self._memory.load()
        self._memory.retire()

    def leaves_anything(self) -> bool:
        """True while JobGrowths of this policy are there."""
        return bool(self._book.of(self.policy))

    def name_of(self, job_uid: str) -> str:
        """Where a person finds a job, also when its pod is gone: `namespace/name`."""
        workload_uid, _, slot = job_uid.rpartition(":")
        document = self._book.find(workload_uid)
        if document is None or slot not in document.slots:
            return job_uid
        return f"{document.namespace}/{document.slots[slot].pod.name or document.name}"


class _Roster:
    """Who a job is, without a policy: the container is the one whose original is stored."""

    def __init__(self, watches: Watches, owners: Owners, book: GrowthBook) -> None:
        self._pods = watches.pods
        self._owners = owners
        self._book = book

    def find(self, job_uid: str) -> ManagedPod | None:
        """As the watches have it now."""
        found = self._owners.resolve(self._pods.items()).pods.get(job_uid)
        if found is None:
            return None
        identity, pod = found
        changed = self._container(identity)
        container = next((each for each in pod.containers if each.name == changed), pod.containers[0])
        return ManagedPod(job_uid, identity.workload, identity.slot, pod, container)

    def _container(self, identity: Identity) -> str | None:
        document = self._book.find(identity.workload.uid)
        slot = None if document is None else document.slots.get(identity.slot)
        return None if slot is None else slot.pod.container


class News:
    """What of each try is news: what came back, and what began to wait or to fail, but not that it still does.

    That the platform has taken something is none: it is in effect a moment later, or it is waited for.
    """

    def __init__(self) -> None:
        self._known: Mapping[str, str] = {}

    def of(self, given_back: GivenBack) -> GivenBack:
        """The same, without what was told before."""
        told: dict[str, Mapping[str, str]] = {
            each.name: getattr(given_back, each.name) for each in fields(given_back) if each.name != "accepted"
        }
        fresh = {
            kind: {uid: why for uid, why in jobs.items() if self._known.get(uid) != kind} for kind, jobs in told.items()
        }
        self._known = {uid: kind for kind, jobs in told.items() if kind not in ("restored", "gone") for uid in jobs}
        return GivenBack(**fresh)


class Announcer:
    """Tells of one policy's given-back resources: metrics, events on pods and policy, one log line with names."""

    def __init__(
        self, policy: str, metrics: ClusterMetrics, reporter: StatusReporter, name_of: Callable[[str], str]
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._reporter = reporter
        self._name_of = name_of
        self._news = News()
        self._log = structlog.get_logger("slopewise")

    def tell(self, given_back: GivenBack) -> None:
        """Of one try."""
        self._metrics.not_given_back.labels(self._policy).set(len(given_back.not_back))
        news = self._news.of(given_back)
        trouble = news.trouble
        if not (news.restored or news.gone or trouble):
            return
        self._metrics.on_given_back(news)
        self._reporter.tell_restored(news)
        log = self._log.warning if trouble else self._log.info
        log(
            "original resources given back",
            name=self._policy,
            restored=len(news.restored),
            gone=len(news.gone),
            left=len(given_back.not_back),
            why={self._name_of(uid): why for uid, why in list(trouble.items())[:MOST_NAMED]},
        )

    def forget(self) -> None:
        """The policy has nothing to give back any more."""
        self._metrics.forget_policy(self._policy)
