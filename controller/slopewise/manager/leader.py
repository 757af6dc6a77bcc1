"""The leader's work: a runner for each TrainingPolicy, and the finalization of deleted ones.

`manager/replica.py` calls `tick` about twice a second while this replica leads; nothing here waits for a pass or for a
pod. A policy runs once its finalizer is set, so that its pods are restored before it is deleted. An invalid policy
changes nothing and reports the reason. `manager/finalization.py` handles deleted ones.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import structlog

from slopewise.adapters.kube.cache.records import FINALIZER, PodRecord
from slopewise.adapters.kube.reporting.pass_reporter import emit_invalid
from slopewise.adapters.kube.state.freezes import FreezeRecord
from slopewise.adapters.kube.state.training_policies import PolicyDocument, PolicyRecord
from slopewise.adapters.pauses import FINALIZER_SECONDS
from slopewise.config.training_policy import TrainingPolicy
from slopewise.crds.policy_status import PolicyFacts
from slopewise.errors import SlopewiseError
from slopewise.manager.finalization import Finalizations
from slopewise.manager.freezes import FreezeController
from slopewise.manager.move_loop import MoveController
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import SharedState
from slopewise.model import acts
from slopewise.tracking import OncePerChange, TtlMap


class PolicyManager:
    """All policies of the cluster. Called by one thread; `trigger` and `is_alive` by any."""

    def __init__(self, shared: SharedState, finalizations: Finalizations) -> None:
        self._shared = shared
        self._runners: dict[str, PolicyRunner] = {}
        """By the policy's uid: another policy of the same name is a different one."""
        self._documents: dict[str, PolicyDocument] = {}
        self._reported = OncePerChange[str, tuple[int, str]]()
        """Of each policy that is not applied: its generation, and the reason."""
        self._finalizer_tried = TtlMap[str, None](FINALIZER_SECONDS, time.monotonic)
        self._finalizations = finalizations
        self._moves = MoveController(shared)
        self._freezes = FreezeController(shared)
        self._caught_up = False
        self._log = structlog.get_logger("slopewise")

    def trigger(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Request an early pass of the policy that manages a pod, for a change that decisions depend on.

        A change of CPU in effect is shown, and the next regular pass decides on it.
        """
        if new is not None and _cpu(old) != _cpu(new):
            for runner in list(self._runners.values()):
                runner.note_cpu(new.uid)
        if _matters(old) == _matters(new):
            return
        self._moves.trigger()
        stores = self._shared.watches.stores
        pods = [pod for pod in (old, new) if pod is not None]
        for runner in list(self._runners.values()):
            if any(stores.selects(runner.spec.selector, pod) for pod in pods):
                runner.trigger()

    def note_freeze(self, old: FreezeRecord | None, new: FreezeRecord | None) -> None:
        """A Freeze has begun, changed or ended: an early pass shows it. Its status, which we write, is no change."""
        if old is None or new is None or (old.spec, old.deleting) != (new.spec, new.deleting):
            for runner in list(self._runners.values()):
                runner.trigger()

    def tick(self) -> None:
        """Reconcile the runners with the current policies."""
        if not self._caught_up:
            self._shared.watches.catch_up()
            self._caught_up = True
            self._moves.start()
        policies = {record.uid or record.name: record for record in self._shared.claims.policies()}
        self._forget_all_but(policies)  # first: a policy may have come in the place of one of the same name
        for key, record in policies.items():
            self._follow_safely(key, record)
        if self._sees_policies():
            self._finalizations.find_orphans({record.name for record in policies.values()})
        for runner in self._runners.values():
            runner.tick()
        self._freezes.tick()
        self._count(policies)

    def is_alive(self) -> bool:
        """False once a policy had no pass for three of its intervals, or the thread of moves hangs."""
        return self._moves.is_alive() and all(runner.is_alive() for runner in list(self._runners.values()))

    def stop(self, timeout_seconds: float) -> None:
        """No further pass. Every pod keeps its CPU: another replica takes over."""
        deadline = time.monotonic() + timeout_seconds
        for runner in self._runners.values():
            runner.stop()
        self._moves.stop(timeout_seconds)
        self._finalizations.stop_all(timeout_seconds)
        hanging = [
            runner.record.name
            for runner in self._runners.values()
            if not runner.stop(max(0.0, deadline - time.monotonic()))
        ]
        if hanging:
            self._log.warning("passes still running", names=hanging, reason="they write nothing more")

    def _sees_policies(self) -> bool:
        """Whether all policies are known: a controller with a policy from a file does not see others."""
        options = self._shared.options
        return self._shared.watches.policies is not None and options.policy_file is None

    def _forget_all_but(self, policies: Mapping[str, PolicyRecord]) -> None:
        for key in self._runners.keys() - policies.keys():
            self._drop(key)
        self._documents = {key: each for key, each in self._documents.items() if key in policies}
        self._reported.forget_all_but(policies)

    def _follow_safely(self, key: str, record: PolicyRecord) -> None:
        """An error about one policy must not stop the others."""
        try:
            self._follow(key, record)
        except SlopewiseError as error:
            self._report(key, record, degraded=f"{record.name}: {error}")
        except Exception as error:
            self._report(key, record, degraded=f"{record.name}: an error of the controller: {error!r}", cause=error)

    def _follow(self, key: str, record: PolicyRecord) -> None:
        if record.deleting:
            self._finalize(key, record)
        elif record.document is None:
            if self._drop(key):
                invalid = record.invalid or f"TrainingPolicy {record.name} cannot be read."
                self._report(key, record, invalid=invalid)
        else:
            self._apply(key, record, record.document)

    # --- obeying a policy ------------------------------------------------------------------------------------

    def _apply(self, key: str, record: PolicyRecord, document: TrainingPolicy) -> None:
        runner = self._runners.get(key)
        if runner is not None and runner.record.generation == record.generation and not runner.loop.stopping:
            if self._has_right_finalizer(key, record, runner):
                runner.trouble = None
                self._reported.forget(key)
            return
        if not (self._drop(key) and self._name_is_free(record)):
            return  # the pass that is under way ends first
        must_hold = acts(document.spec.mode) and not self._shared.effects.is_held(record)
        if must_hold and not self._try_finalizer(key, record, hold=True):
            return
        runner = PolicyRunner(self._shared, record, document, self._status(key, record))
        self._runners[key] = runner
        self._reported.forget(key)
        self._log.info("policy applied", name=record.name, mode=document.spec.mode, policy=document.spec.policy_name)
        runner.start()

    def _name_is_free(self, record: PolicyRecord) -> bool:
        """Whether nothing runs under this name: memory is stored by name."""
        others = (runner.record for runner in self._runners.values())
        return self._finalizations.stop(record.name) and all(other.name != record.name for other in others)

    def _has_right_finalizer(self, key: str, record: PolicyRecord, runner: PolicyRunner) -> bool:
        """Set a missing finalizer; remove that of a policy that changes nothing and has nothing to restore.

        False while there is something to correct.
        """
        if acts(runner.spec.mode):
            if not self._shared.effects.is_held(record):
                self._try_finalizer(key, record, hold=True)
                return False
        elif FINALIZER in record.finalizers and runner.loop.passes and not runner.holds_originals():
            self._try_finalizer(key, record, hold=False)
            return False
        return True

    def _try_finalizer(self, key: str, record: PolicyRecord, *, hold: bool) -> bool:
        """Set it or remove it, not more often than every few seconds; True when that is done."""
        if key in self._finalizer_tried:
            return False
        self._finalizer_tried.put(key, None)
        self._shared.effects.set_finalizer(record.name, wanted=hold)
        return True

    def _drop(self, key: str) -> bool:
        """No further pass of this runner; True once it has stopped."""
        runner = self._runners.get(key)
        if runner is None:
            return True
        if not runner.stop():
            return False
        runner.forget()
        del self._runners[key]
        return True

    # --- a policy that is not obeyed -------------------------------------------------------------------------

    def _finalize(self, key: str, record: PolicyRecord) -> None:
        """Stop its passes, then restore its pods."""
        self._reported.forget(key)
        if self._drop(key):
            self._finalizations.of(record)

    def _report(
        self,
        key: str,
        record: PolicyRecord,
        *,
        invalid: str | None = None,
        degraded: str | None = None,
        cause: Exception | None = None,
    ) -> None:
        message = invalid or degraded or ""
        if not self._reported.is_new(key, (record.generation, message)):
            return
        self._log.warning("policy not applied", name=record.name, reason=message, exc_info=cause)
        if not record.uid:
            return
        if invalid is not None:
            emit_invalid(self._shared.events, record.name, record.uid, invalid)
        if (runner := self._runners.get(key)) is not None:
            runner.trouble = degraded  # it writes the same status with each pass
            return
        document = self._status(key, record)
        if document is not None:
            mode = None if record.document is None else record.document.spec.mode
            document.show(
                PolicyFacts(record.generation, mode, invalid=invalid, degraded=degraded), self._shared.clock.now()
            )
            self._shared.job_growths.changed(document, transition=True)

    def _status(self, key: str, record: PolicyRecord) -> PolicyDocument | None:
        """The document of its status, the same one for the policy's lifetime."""
        if not record.uid:
            return None
        if key not in self._documents:
            self._documents[key] = PolicyDocument(record)
        return self._documents[key]

    def _count(self, policies: Mapping[str, PolicyRecord]) -> None:
        """For the metrics: how many policies are active, refused and being deleted."""
        deleting = sum(record.deleting for record in policies.values())
        refused = sum(key in self._reported for key, record in policies.items() if not record.deleting)
        for condition, count in (
            ("active", len(policies) - deleting - refused),
            ("refused", refused),
            ("deleting", deleting),
        ):
            self._shared.metrics.policies.labels(condition).set(count)
        if not self._runners:  # without policies an evaluation of none has just ended
            self._shared.instruments.last_pass.set(self._shared.clock.now())


def _cpu(pod: PodRecord | None) -> tuple[object, ...]:
    """The shown CPU of a pod."""
    return () if pod is None else (pod.unobserved, tuple((each.desired, each.reported) for each in pod.containers))


def _matters(pod: PodRecord | None) -> tuple[object, ...]:
    """The inputs of a decision; a status that our own resize has changed is none."""
    if pod is None:
        return ()
    running = tuple((each.ready, each.restarts_total, each.running_since_seconds) for each in pod.containers)
    return (pod.uid, pod.node, pod.phase, pod.deleting, pod.pending, pod.labels, pod.foreign_resizers, running)
