"""`slopewise run --once`: one pass of each policy, told in the log, then the end."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.adapters.kube.election import Elector
from controller.adapters.kube.policies import PolicyRecord
from controller.cluster.runner import PolicyRunner
from controller.cluster.watches import Watches
from controller.cluster.world import World
from controller.errors import ObservationError, SlopewiseError

SYNC_SECONDS = 30.0
HELD_EXIT_CODE = 4


def run_once(world: World, elector: Elector, announce: Callable[[str], None]) -> int:
    """0 when every policy had its pass; 4 when one could not observe. What would change is changed, unless dry-run."""
    wait_for_watches(world.watches)
    if not world.options.dry_run:
        take_lease(elector, world.options.lease_namespace)
    policies = [record for record in world.claims.policies() if not record.deleting]
    if not policies:
        announce("There is no TrainingPolicy; apply one, or name one with --policy-file.")
    held = [record.name for record in policies if _one(world, record, announce)]
    return HELD_EXIT_CODE if held else 0


def _one(world: World, record: PolicyRecord, announce: Callable[[str], None]) -> bool:
    """One policy's pass; True when it was held."""
    if record.document is None:
        announce(f"{record.invalid}")
        return False
    runner = PolicyRunner(world, record, record.document, None)
    try:
        report = runner.one_pass()
        runner.tell(report)
    finally:
        runner.stop()
    return report.held is not None


def wait_for_watches(watches: Watches) -> None:
    """Until everything that is watched has been read once; ObservationError when that takes too long."""
    deadline = time.monotonic() + SYNC_SECONDS
    while (waits_for := watches.waits_for()) is not None:
        if time.monotonic() > deadline:
            raise ObservationError(f"The cluster cannot be read: {waits_for}; nothing was changed.")
        time.sleep(0.05)


def take_lease(elector: Elector, namespace: str) -> None:
    """Only one controller changes a cluster at a time, also for one pass; SlopewiseError when another one holds it."""
    elector.start()
    deadline = time.monotonic() + 2 * elector.terms.lease_seconds
    while not elector.is_leader:
        if time.monotonic() > deadline:
            raise SlopewiseError(
                f"{elector.holder or 'Somebody else'} holds the lease {namespace}/slopewise-controller"
                f"{f' ({elector.failure})' if elector.failure else ''}; stop that controller first (scale its "
                "Deployment to 0 replicas), or only look (slopewise run --once --dry-run)."
            )
        time.sleep(0.05)
