"""`slopewise run --once`: runs one pass of each policy, logs it, and ends."""

from __future__ import annotations

from collections.abc import Callable

from slopewise.adapters.kube.connection import take_lease
from slopewise.adapters.kube.leader_election import Elector
from slopewise.adapters.kube.state.training_policies import PolicyDocument, PolicyRecord, add_finalizer
from slopewise.adapters.kube.watches import wait_for_watches
from slopewise.config.training_policy import TrainingPolicy
from slopewise.manager.move_loop import finish_moves
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.manager.shared import SharedState
from slopewise.model import acts
from slopewise.signals import StopSignal

MOVES_SECONDS = 120.0
"""How long the process waits for the end of moves that this pass has begun: a checkpoint, and a start."""

HELD_EXIT_CODE = 4
REFUSED_EXIT_CODE = FAILED_EXIT_CODE = 1


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
