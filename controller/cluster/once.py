"""`slopewise run --once`: one pass of each policy, told in the log, then the end."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.adapters.kube.election import Elector
from controller.adapters.kube.policies import PolicyDocument, PolicyRecord, add_finalizer
from controller.adapters.kube.records import FINALIZER
from controller.bounds import acts
from controller.cluster.connecting import LEASE_NAME
from controller.cluster.moves import see_through
from controller.cluster.runner import PolicyRunner
from controller.cluster.signals import StopSignal
from controller.cluster.watches import Watches
from controller.cluster.world import World
from controller.errors import ObservationError, SlopewiseError
from controller.settings import TrainingPolicy

SYNC_SECONDS = 30.0
MOVES_SECONDS = 120.0
"""How long the end of a move that this pass has begun is waited for: a checkpoint, and a start."""

HELD_EXIT_CODE = 4
REFUSED_EXIT_CODE = FAILED_EXIT_CODE = 1

_POLL_SECONDS = 0.05


class StoppedError(SlopewiseError):
    """A signal came while there was still something to wait for."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__(f"stopped by {stop.name}; nothing was changed.")
        self.exit_code = stop.exit_code


def run_once(world: World, elector: Elector, stop: StopSignal, announce: Callable[[str], None]) -> int:
    """0 when every policy had its pass; 4 when one could not observe, 1 when one cannot be obeyed or has failed.

    What would change is changed, unless it is a dry run.
    """
    wait_for_watches(world.watches, stop)
    if not world.options.dry_run:
        take_lease(elector, world.options.lease_namespace, stop)
    world.watches.catch_up()
    policies = [record for record in world.claims.policies() if not record.deleting]
    if not policies:
        announce("There is no TrainingPolicy; apply one, or name one with --policy-file.")
    codes = []
    for record in policies:
        if stop.number is not None:
            return stop.exit_code
        codes.append(_one(world, record, announce))
    if not world.options.dry_run and not see_through(world, MOVES_SECONDS, stop.wait):
        announce("Moves are under way; another controller, or `slopewise sweep`, goes on with them.")
    return max(codes, default=0)


def _one(world: World, record: PolicyRecord, announce: Callable[[str], None]) -> int:
    """One policy's pass."""
    if record.document is None:
        announce(f"slopewise: {record.invalid}")
        return REFUSED_EXIT_CODE
    runner = _runner(world, record, record.document)
    try:
        report = runner.one_pass()
        runner.tell(report)
    finally:
        runner.stop()
    if report.held is None:
        return 0
    return FAILED_EXIT_CODE if report.policy_failed else HELD_EXIT_CODE


def _runner(world: World, record: PolicyRecord, document: TrainingPolicy) -> PolicyRunner:
    """As `leading.py` makes it: a policy that changes pods is held before it changes any."""
    if not record.uid:
        return PolicyRunner(world, record, document, None)
    if acts(document.spec.mode) and not world.options.dry_run and FINALIZER not in record.finalizers:
        add_finalizer(world.api, record.name, world.may_write)
    return PolicyRunner(world, record, document, PolicyDocument(record))


def wait_for_watches(watches: Watches, stop: StopSignal) -> None:
    """Until everything that is watched has been read once; ObservationError when that takes too long."""
    deadline = time.monotonic() + SYNC_SECONDS
    while (waits_for := watches.waits_for()) is not None:
        if time.monotonic() > deadline:
            raise ObservationError(f"The cluster cannot be read: {waits_for}; nothing was changed.")
        if stop.wait(_POLL_SECONDS):
            raise StoppedError(stop)


def take_lease(elector: Elector, namespace: str, stop: StopSignal) -> None:
    """Only one controller changes a cluster at a time, also for one pass; SlopewiseError when another one holds it."""
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
        "replicas), or only look (slopewise run --once --dry-run)."
    )
