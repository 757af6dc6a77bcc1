"""`slopewise run --once`: runs one pass of each policy, logs it, and ends."""

from __future__ import annotations

import time
from collections.abc import Callable

from slopewise.adapters.kube.leader_election import Elector
from slopewise.adapters.kube.state.training_policies import PolicyDocument, PolicyRecord, add_finalizer
from slopewise.config.training_policy import TrainingPolicy
from slopewise.errors import ObservationError, SlopewiseError
from slopewise.manager.connect import LEASE_NAME
from slopewise.manager.informers import Watches
from slopewise.manager.move_loop import finish_moves
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import SharedState
from slopewise.manager.signals import StopSignal
from slopewise.model import acts

SYNC_SECONDS = 30.0
MOVES_SECONDS = 120.0
"""How long the process waits for the end of moves that this pass has begun: a checkpoint, and a start."""

HELD_EXIT_CODE = 4
REFUSED_EXIT_CODE = FAILED_EXIT_CODE = 1

_POLL_SECONDS = 0.05


class StoppedError(SlopewiseError):
    """A signal came during a wait."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__(f"stopped by {stop.name}; nothing was changed.")
        self.exit_code = stop.exit_code


def run_once(shared: SharedState, elector: Elector, stop: StopSignal, announce: Callable[[str], None]) -> int:
    """0 when every policy had its pass; 4 when one could not observe, 1 when one is invalid or has failed.

    Changes are carried out, unless it is a dry run.
    """
    wait_for_watches(shared.watches, stop)
    take_lease(elector, shared.options.lease_namespace, stop)
    shared.watches.catch_up()
    policies = [record for record in shared.claims.policies() if not record.deleting]
    if not policies:
        announce("There is no TrainingPolicy; apply one, or name one with --policy-file.")
    codes = []
    for record in policies:
        if stop.number is not None:
            return stop.exit_code
        codes.append(_one(shared, record, announce))
    if not shared.options.dry_run and not finish_moves(shared, MOVES_SECONDS, stop.wait):
        announce("Moves are under way; another controller, or `slopewise sweep`, continues them.")
    return max(codes, default=0)


def _one(shared: SharedState, record: PolicyRecord, announce: Callable[[str], None]) -> int:
    """One policy's pass."""
    if record.document is None:
        announce(f"slopewise: {record.invalid}")
        return REFUSED_EXIT_CODE
    runner = _runner(shared, record, record.document)
    try:
        report = runner.one_pass()
        runner.publish(report)
    finally:
        runner.stop()
    if report.held is None:
        return 0
    return FAILED_EXIT_CODE if report.policy_failed else HELD_EXIT_CODE


def _runner(shared: SharedState, record: PolicyRecord, document: TrainingPolicy) -> PolicyRunner:
    """As in `manager/leader.py`: a policy that changes pods gets its finalizer first."""
    if not record.uid:
        return PolicyRunner(shared, record, document, None)
    if acts(document.spec.mode) and not shared.effects.is_held(record):
        add_finalizer(shared.api, record.name)
    return PolicyRunner(shared, record, document, PolicyDocument(record))


def wait_for_watches(watches: Watches, stop: StopSignal) -> None:
    """Wait until every watch has been read once; ObservationError after a timeout."""
    deadline = time.monotonic() + SYNC_SECONDS
    while (waits_for := watches.waits_for()) is not None:
        if time.monotonic() > deadline:
            raise ObservationError(f"The cluster cannot be read: {waits_for}; nothing was changed.")
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(stop)


def take_lease(elector: Elector, namespace: str, stop: StopSignal) -> None:
    """Acquire the lease, since one controller changes a cluster at a time; SlopewiseError when another one holds it."""
    elector.start()
    deadline = time.monotonic() + 2 * elector.terms.lease_seconds
    while not elector.is_leader:
        if time.monotonic() > deadline:
            raise SlopewiseError(_not_ours(elector, namespace))
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(stop)


def _not_ours(elector: Elector, namespace: str) -> str:
    lease = f"the lease {namespace}/{LEASE_NAME}"
    if elector.failure is not None:
        return f"{lease} cannot be had ({elector.failure}); see to that, or name its namespace with --lease-namespace."
    return (
        f"{elector.holder or 'somebody else'} holds {lease}; stop that controller first (scale its Deployment to 0 "
        "replicas), or use a dry run (slopewise run --once --dry-run)."
    )
