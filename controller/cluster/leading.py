"""What the one leader does: a runner for each TrainingPolicy, from its creation until its pods have their originals.

`process.py` calls `tick` about twice a second while this replica leads; nothing here waits for a pass or for a pod. A
policy is obeyed from the moment its finalizer is set, so that it cannot go before its pods are what they were; one that
cannot be obeyed changes nothing and says why; for one that is deleted see `endings.py`.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from typing import Any

import structlog

from controller.adapters.kube.namespace_limits import LimitKind
from controller.adapters.kube.policies import PolicyDocument, PolicyRecord, add_finalizer, remove_finalizer
from controller.adapters.kube.records import FINALIZER, PodRecord
from controller.adapters.kube.reporting import tell_invalid
from controller.bounds import acts
from controller.cluster.endings import Endings
from controller.cluster.moves import MoveKeeper
from controller.cluster.runner import PolicyRunner
from controller.cluster.world import World
from controller.errors import SlopewiseError
from controller.policy_status import Standing
from controller.settings import TrainingPolicy

TRY_AGAIN_SECONDS = 3.0
"""Between two tries to set or remove a finalizer."""


class Leadership:
    """All policies of the cluster. Called by one thread; `stir` and `is_alive` by any."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runners: dict[str, PolicyRunner] = {}
        """By the policy's uid: another policy of the same name is not the same policy."""
        self._documents: dict[str, PolicyDocument] = {}
        self._told: dict[str, tuple[int, str]] = {}
        """Of each policy that is not obeyed: its generation, and the sentence that was told."""
        self._finalizer_at: dict[str, float] = {}
        self._endings = Endings(world)
        self._moves = MoveKeeper(world)
        self._caught_up = False
        self._log = structlog.get_logger("slopewise")

    def stir(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A pod changed: whoever manages it looks again soon, when it is a change that a decision may depend on.

        What its kubelet has made of a resize is shown, and decided on by the next pass in its time.
        """
        if new is not None and _cpu(old) != _cpu(new):
            for runner in list(self._runners.values()):
                runner.note_cpu(new.uid)
        if _matters(old) == _matters(new):
            return
        self._moves.wake()
        stores = self._world.watches.stores
        pods = [pod for pod in (old, new) if pod is not None]
        for runner in list(self._runners.values()):
            if any(stores.selects(runner.spec.selector, pod) for pod in pods):
                runner.stir()

    def note_limit(self, kind: LimitKind, namespace: str) -> None:
        """A LimitRange or ResourceQuota of a namespace has changed."""
        for runner in list(self._runners.values()):
            runner.note_limit(kind, namespace)

    def tick(self) -> None:
        """Bring the runners in line with the policies as they are now."""
        if not self._caught_up:
            self._world.watches.catch_up()
            self._caught_up = True
            if not self._world.options.dry_run:
                self._moves.start()
        policies = {record.uid or record.name: record for record in self._world.claims.policies()}
        self._forget_all_but(policies)  # first: a policy may have come in the place of one of the same name
        for key, record in policies.items():
            self._follow_safely(key, record)
        if self._sees_policies():
            self._endings.look_for_orphans({record.name for record in policies.values()})
        for runner in self._runners.values():
            runner.tick()
        self._count(policies)

    def is_alive(self) -> bool:
        """False once a policy had no pass for three of its intervals, or moves are not seen through any more."""
        return self._moves.is_alive() and all(runner.is_alive() for runner in list(self._runners.values()))

    def stop(self, patience_seconds: float) -> None:
        """No further pass. Every pod keeps what it has: another replica takes over."""
        deadline = time.monotonic() + patience_seconds
        for runner in self._runners.values():
            runner.stop()
        self._moves.stop(patience_seconds)
        self._endings.stop_all(patience_seconds)
        hanging = [
            runner.record.name
            for runner in self._runners.values()
            if not runner.stop(max(0.0, deadline - time.monotonic()))
        ]
        if hanging:
            self._log.warning("passes left hanging", names=hanging, reason="they write nothing more")

    def _sees_policies(self) -> bool:
        """Whether it is known which policies there are: one that came as a file may have brothers elsewhere."""
        options = self._world.options
        return self._world.watches.policies is not None and options.policy_file is None and not options.dry_run

    def _forget_all_but(self, policies: Mapping[str, PolicyRecord]) -> None:
        for key in self._runners.keys() - policies.keys():
            self._drop(key)
        _keep_only(self._documents, policies)
        _keep_only(self._told, policies)
        _keep_only(self._finalizer_at, policies)

    def _follow_safely(self, key: str, record: PolicyRecord) -> None:
        """A mistake of ours about one policy is no reason to neglect the others."""
        try:
            self._follow(key, record)
        except SlopewiseError as error:
            self._tell(key, record, degraded=f"{record.name}: {error}")
        except Exception as error:
            self._tell(key, record, degraded=f"{record.name}: an error of the controller: {error!r}", cause=error)

    def _follow(self, key: str, record: PolicyRecord) -> None:
        if record.deleting:
            self._end(key, record)
        elif record.document is None:
            self._refuse(key, record, record.invalid or f"TrainingPolicy {record.name} cannot be read.")
        else:
            self._obey(key, record, record.document)

    # --- obeying a policy ------------------------------------------------------------------------------------

    def _obey(self, key: str, record: PolicyRecord, document: TrainingPolicy) -> None:
        runner = self._runners.get(key)
        if runner is not None and runner.record.generation == record.generation and not runner.loop.stopping:
            if self._has_right_finalizer(key, record, runner):
                runner.trouble = None
                self._told.pop(key, None)
            return
        if not (self._drop(key) and self._name_is_free(record)):
            return  # the pass that is under way ends first
        if acts(document.spec.mode) and not self._is_held(record) and not self._try_finalizer(key, record, hold=True):
            return
        runner = PolicyRunner(self._world, record, document, self._status(key, record))
        self._runners[key] = runner
        self._told.pop(key, None)
        self._log.info("policy", name=record.name, mode=document.spec.mode, policy=document.spec.policy.name)
        runner.start()

    def _name_is_free(self, record: PolicyRecord) -> bool:
        """Whether nobody acts under this name any more: what is remembered is remembered by name."""
        others = (runner.record for runner in self._runners.values())
        return self._endings.stop(record.name) and all(other.name != record.name for other in others)

    def _is_held(self, record: PolicyRecord) -> bool:
        """Whether it cannot go before its pods are what they were; a file cannot be deleted, a dry run changes none."""
        return FINALIZER in record.finalizers or not record.uid or self._world.options.dry_run

    def _has_right_finalizer(self, key: str, record: PolicyRecord, runner: PolicyRunner) -> bool:
        """Mend what somebody has taken off, and let go of a policy that changes nothing and has nothing to give back.

        False while there is something to mend.
        """
        if acts(runner.spec.mode):
            if not self._is_held(record):
                self._try_finalizer(key, record, hold=True)
                return False
        elif FINALIZER in record.finalizers and runner.loop.passes and not runner.holds_originals():
            self._try_finalizer(key, record, hold=False)
            return False
        return True

    def _try_finalizer(self, key: str, record: PolicyRecord, *, hold: bool) -> bool:
        """Set it or take it off, not more often than every few seconds; True when that is done."""
        now = time.monotonic()
        if now < self._finalizer_at.get(key, 0.0) or self._world.options.dry_run:
            return False
        self._finalizer_at[key] = now + TRY_AGAIN_SECONDS
        if hold:
            add_finalizer(self._world.impatient, record.name, self._world.may_write)
        else:
            remove_finalizer(self._world.impatient, record.name, self._world.may_write)
        return True

    def _drop(self, key: str) -> bool:
        """No further pass of this runner; True once it is gone."""
        runner = self._runners.get(key)
        if runner is None:
            return True
        if not runner.stop():
            return False
        runner.forget()
        del self._runners[key]
        return True

    # --- a policy that is not obeyed -------------------------------------------------------------------------

    def _end(self, key: str, record: PolicyRecord) -> None:
        """It is being deleted: no further pass, and then its pods get their originals."""
        self._told.pop(key, None)
        if self._drop(key) and not self._world.options.dry_run:
            self._endings.of(record)

    def _refuse(self, key: str, record: PolicyRecord, why: str) -> None:
        """Change nothing under it, and say why where people look: its condition, an event, the log."""
        if self._drop(key):
            self._tell(key, record, invalid=why)

    def _tell(
        self,
        key: str,
        record: PolicyRecord,
        *,
        invalid: str | None = None,
        degraded: str | None = None,
        cause: Exception | None = None,
    ) -> None:
        sentence = invalid or degraded or ""
        if self._told.get(key) == (record.generation, sentence):
            return
        self._told[key] = (record.generation, sentence)
        self._log.warning("policy not obeyed", name=record.name, reason=sentence, exc_info=cause)
        if self._world.options.dry_run or not record.uid:
            return
        if invalid is not None:
            tell_invalid(self._world.events, record.name, record.uid, invalid)
        if (runner := self._runners.get(key)) is not None:
            runner.trouble = degraded  # it writes the same status with each pass
            return
        document = self._status(key, record)
        if document is not None:
            mode = None if record.document is None else record.document.spec.mode
            document.show(
                Standing(record.generation, mode, invalid=invalid, degraded=degraded), self._world.clock.now()
            )
            self._world.book.changed(document, transition=True)

    def _status(self, key: str, record: PolicyRecord) -> PolicyDocument | None:
        """The document of its status, the same one as long as the policy is there."""
        if not record.uid:
            return None
        if key not in self._documents:
            self._documents[key] = PolicyDocument(record)
        return self._documents[key]

    def _count(self, policies: Mapping[str, PolicyRecord]) -> None:
        """For the metrics: how many are obeyed, how many cannot be, how many are on their way out."""
        deleting = sum(record.deleting for record in policies.values())
        refused = sum(key in self._told for key, record in policies.items() if not record.deleting)
        for condition, count in (
            ("obeyed", len(policies) - deleting - refused),
            ("refused", refused),
            ("deleting", deleting),
        ):
            self._world.metrics.policies.labels(condition).set(count)
        if not self._runners:  # nobody is to be looked at, and that was seen just now
            self._world.instruments.last_pass.set(self._world.clock.now())


def _keep_only(known: dict[str, Any], keys: Container[str]) -> None:
    for key in [key for key in known if key not in keys]:
        del known[key]


def _cpu(pod: PodRecord | None) -> tuple[object, ...]:
    """What is shown of a pod's CPU."""
    return () if pod is None else (pod.unobserved, tuple((each.wished, each.in_effect) for each in pod.containers))


def _matters(pod: PodRecord | None) -> tuple[object, ...]:
    """What a decision may depend on; a status that our own resize has changed is not among it."""
    if pod is None:
        return ()
    running = tuple((each.ready, each.restarts_total, each.running_since_seconds) for each in pod.containers)
    return (pod.uid, pod.node, pod.phase, pod.deleting, pod.pending, pod.labels, pod.foreign_resizers, running)
