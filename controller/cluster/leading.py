"""What the one leader does: a runner for each TrainingPolicy, from its creation until its pods have their originals.

`process.py` calls `tick` about twice a second while this replica leads. A policy is obeyed from the moment its
finalizer is set, so that it cannot go before its pods are what they were; one that cannot be obeyed changes nothing and
says why; one that is deleted waits for its pods, but never for ever: pods and nodes may be gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.events import About, Event
from controller.adapters.kube.policies import (
    PolicyDocument,
    PolicyRecord,
    add_finalizer,
    remove_finalizer,
)
from controller.adapters.kube.records import FINALIZER, PodRecord
from controller.adapters.kube.reporting import tell_invalid
from controller.bounds import acts
from controller.cluster.runner import PolicyRunner, check_interval
from controller.cluster.world import World
from controller.policy_status import Standing
from controller.restoring import GivenBack
from controller.settings import TrainingPolicy

TRY_AGAIN_SECONDS = 3.0
"""Between two tries to give a deleted policy's pods their originals, or to set a finalizer."""


@dataclass(slots=True)
class _Ending:
    """A policy that is being deleted."""

    give_up_at: float
    try_at: float
    last: GivenBack


class Leadership:
    """All policies of the cluster. Called by one thread; `stir` by any."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runners: dict[str, PolicyRunner] = {}
        self._documents: dict[str, PolicyDocument] = {}
        self._told: dict[str, tuple[int, str]] = {}
        """Of each policy that is not obeyed: its generation, and the sentence that was told."""
        self._endings: dict[str, _Ending] = {}
        self._finalizer_at: dict[str, float] = {}
        self._stirred = threading.Event()
        self._log = structlog.get_logger("slopewise")

    def stir(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A pod changed: whoever manages it looks again soon, when it is a change that a decision may depend on."""
        if _matters(old) != _matters(new):
            self._stirred.set()

    def tick(self) -> None:
        """Bring the runners in line with the policies as they are now."""
        policies = {record.uid or record.name: record for record in self._world.claims.policies()}
        for key, record in policies.items():
            try:
                self._follow(key, record)
            except ApiError as error:
                self._tell(key, record, degraded=f"{record.name}: {error}")
        for key in self._runners.keys() - policies.keys():
            self._drop(key)
        for key in self._documents.keys() - policies.keys():
            del self._documents[key]
        stirred = self._stirred.is_set()
        self._stirred.clear()
        for runner in list(self._runners.values()):
            runner.tick()
            if stirred and not runner.wake():
                self._stirred.set()  # its turn comes a moment later
        self._count(policies)

    def is_alive(self) -> bool:
        """False once a policy had no pass for three of its intervals."""
        return all(runner.loop.is_alive() for runner in list(self._runners.values()))

    def stop(self) -> None:
        """No further pass. Every pod keeps what it has: another replica takes over."""
        for runner in self._runners.values():
            runner.stop()
        self._runners.clear()

    def _follow(self, key: str, record: PolicyRecord) -> None:
        if record.deleting:
            self._end(key, record)
        elif record.document is None:
            self._refuse(key, record, record.invalid or "it cannot be read")
        elif (why := check_interval(record.document, self._world.options.scrape_interval_seconds)) is not None:
            self._refuse(key, record, f"TrainingPolicy {record.name}: {why}.")
        else:
            self._obey(key, record, record.document)

    # --- obeying a policy ------------------------------------------------------------------------------------

    def _obey(self, key: str, record: PolicyRecord, document: TrainingPolicy) -> None:
        self._told.pop(key, None)
        runner = self._runners.get(key)
        if runner is not None and runner.record.generation == record.generation:
            self._let_finalizer_go(record, runner)
            return
        if acts(document.spec.mode) and not self._hold(key, record):
            return
        if runner is not None:
            self._drop(key)
        runner = PolicyRunner(self._world, record, document, self._status(key, record))
        self._runners[key] = runner
        self._log.info("policy", name=record.name, mode=document.spec.mode, policy=document.spec.policy.name)
        runner.start()

    def _hold(self, key: str, record: PolicyRecord) -> bool:
        """Set the finalizer before anything is changed; False when it must be tried again later."""
        if not record.uid or self._world.options.dry_run or FINALIZER in record.finalizers:
            return True
        now = time.monotonic()
        if now < self._finalizer_at.get(key, 0.0):
            return False
        self._finalizer_at[key] = now + TRY_AGAIN_SECONDS
        add_finalizer(self._world.api, record.name)
        return True

    def _let_finalizer_go(self, record: PolicyRecord, runner: PolicyRunner) -> None:
        """A policy that changes nothing and has nothing to give back can be deleted without us."""
        if acts(runner.spec.mode) or FINALIZER not in record.finalizers or self._world.options.dry_run:
            return
        now = time.monotonic()
        if now < self._finalizer_at.get(record.uid, 0.0) or not runner.loop.passes or runner.holds_originals():
            return
        self._finalizer_at[record.uid] = now + TRY_AGAIN_SECONDS
        remove_finalizer(self._world.api, record.name)

    def _drop(self, key: str) -> None:
        runner = self._runners.pop(key)
        runner.stop()
        runner.forget()

    # --- a policy that cannot be obeyed ----------------------------------------------------------------------

    def _refuse(self, key: str, record: PolicyRecord, why: str) -> None:
        """Change nothing under it, and say why where people look: its condition, an event, the log."""
        if key in self._runners:
            self._drop(key)
        self._tell(key, record, invalid=why)

    def _tell(self, key: str, record: PolicyRecord, *, invalid: str | None = None, degraded: str | None = None) -> None:
        sentence = invalid or degraded or ""
        if self._told.get(key) == (record.generation, sentence):
            return
        self._told[key] = (record.generation, sentence)
        self._log.warning("policy not obeyed", name=record.name, reason=sentence)
        if self._world.options.dry_run or not record.uid:
            return
        if invalid is not None:
            tell_invalid(self._world.events, record.name, record.uid, invalid)
        document = self._status(key, record)
        if document is not None:
            mode = None if record.document is None else record.document.spec.mode
            standing = Standing(record.generation, mode, invalid=invalid, degraded=degraded)
            document.show(standing, self._world.clock.now())
            self._world.book.changed(document, transition=True)

    def _status(self, key: str, record: PolicyRecord) -> PolicyDocument | None:
        """The document of its status, the same one as long as the policy is there."""
        if not record.uid:
            return None
        return self._documents.setdefault(key, PolicyDocument(record))

    # --- the end of a policy ---------------------------------------------------------------------------------

    def _end(self, key: str, record: PolicyRecord) -> None:
        """Give every pod what it came with, then let the policy go."""
        if FINALIZER not in record.finalizers or self._world.options.dry_run:
            return
        now = time.monotonic()
        ending = self._endings.get(key)
        if ending is None:
            deadline = now + self._world.options.restore_deadline_seconds
            ending = self._endings[key] = _Ending(deadline, now, GivenBack())
        if now < ending.try_at:
            return
        ending.try_at = now + TRY_AGAIN_SECONDS
        runner = self._stopped_runner(key, record)
        ending.last = runner.give_back_all()
        if not ending.last.settled and now < ending.give_up_at:
            return
        self._say_what_stays(record, ending.last)
        runner.retire()
        remove_finalizer(self._world.api, record.name)
        del self._endings[key]
        self._drop(key)

    def _stopped_runner(self, key: str, record: PolicyRecord) -> PolicyRunner:
        """Of a policy that is deleted: it runs no pass, and knows who has what. Also after a restart of ours."""
        runner = self._runners.get(key)
        if runner is None:
            document = record.document or TrainingPolicy()
            runner = self._runners[key] = PolicyRunner(self._world, record, document, None)
        runner.stop()
        return runner

    def _say_what_stays(self, record: PolicyRecord, given_back: GivenBack) -> None:
        stays: Mapping[str, str] = {**given_back.waiting, **given_back.failed, **given_back.impossible}
        if not stays:
            return
        first = next(iter(stays.values()))
        note = f"{len(stays)} pods do not have their original resources back, and the policy goes all the same: {first}"
        self._log.warning("policy deleted", name=record.name, reason=note)
        about = About.policy(record.name, record.uid)
        self._world.events.emit(Event(about, "RestoreFailed", note, warning=True, action="Restore"))

    def _count(self, policies: Mapping[str, PolicyRecord]) -> None:
        """For the metric: how many are obeyed, how many cannot be, how many are on their way out."""
        deleting = sum(record.deleting for record in policies.values())
        refused = sum(key in self._told for key, record in policies.items() if not record.deleting)
        for condition, count in (
            ("obeyed", len(policies) - deleting - refused),
            ("refused", refused),
            ("deleting", deleting),
        ):
            self._world.metrics.policies.labels(condition).set(count)


def _matters(pod: PodRecord | None) -> tuple[object, ...]:
    """What a decision may depend on; a status that our own resize has changed is not among it."""
    if pod is None:
        return ()
    running = tuple((each.ready, each.restarts_total, each.running_since_seconds) for each in pod.containers)
    return (pod.uid, pod.node, pod.phase, pod.deleting, pod.pending, pod.labels, pod.foreign_resizers, running)
