"""`slopewise restore --all`: restores every changed pod, and removes the finalizers of all policies.

A user runs it before the controller is removed. It takes the controllers' lease, so that none of them changes anything
meanwhile, and uses what is stored in the JobGrowths: no Prometheus, no policy, no pass. It resumes Jobs that a move has
suspended; `sweep` releases gated pods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.cache.records import FINALIZER
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import FencedApi, NotLeadingError
from slopewise.adapters.kube.connection import (
    LEASE_NAME,
    Connection,
    connect,
    lease_namespace_of,
    make_elector,
    own_identity,
    take_lease,
)
from slopewise.adapters.kube.leader_election import Elector, Terms
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, under_way
from slopewise.adapters.kube.moves.suspend.controller import SuspendedJobController
from slopewise.adapters.kube.moves.suspend.state_machine import MoveEnd
from slopewise.adapters.kube.restorer import Restorer
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.status_writer import StatusSender, StatusWriter
from slopewise.adapters.kube.state.training_policies import set_finalizer
from slopewise.adapters.kube.watches import Watches, make_watches, wait_for_watches
from slopewise.adapters.kube.workloads.owners import Owners
from slopewise.feedback.restore import RestoreReport
from slopewise.reports.columns import listing_of
from slopewise.signals import StopSignal
from slopewise.telemetry.metrics import configure_logging

TRY_AGAIN_SECONDS = 2.0
CONFIRM_SECONDS = 0.5
"""From an accepted restore to the check whether it is in effect: most kubelets need no longer."""

_FLUSH_SECONDS = 5.0


@dataclass(slots=True)
class Restoration:
    """The result for every changed pod (as `pod namespace/name`), and the policies whose finalizer was removed."""

    restored: dict[str, str] = field(default_factory=dict)
    """The detail names what could not be restored, such as a limit that was added and stays."""
    gone: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    """Accepted by the API server, and not reported in effect within the deadline."""
    pending: dict[str, str] = field(default_factory=dict)
    """Not restored within the deadline, and why: run it again."""
    impossible: dict[str, str] = field(default_factory=dict)
    """Not restored, and a retry does not help until a person changes something."""
    policies: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True when everything is in effect, and no state of ours remains."""
        return not (self.accepted or self.pending or self.impossible or self.problems)

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        return {
            "restored": self.restored,
            "gone": self.gone,
            "accepted": self.accepted,
            "pending": self.pending,
            "impossible": self.impossible,
            "finalizersRemoved": self.policies,
            "problems": self.problems,
            "complete": self.complete,
        }

    def add(self, given_back: RestoreReport, name_of: Callable[[str], str]) -> None:
        """Add one more try, whose result replaces a pod's former one."""
        kinds = (
            (self.restored, given_back.restored),
            (self.gone, given_back.gone),
            (self.accepted, given_back.accepted),
            (self.pending, {**given_back.waiting, **given_back.failed}),
            (self.impossible, given_back.impossible),
        )
        for kind, details in kinds:
            for uid, detail in details.items():
                name = f"pod {name_of(uid)}"
                for other, _ in kinds:
                    other.pop(name, None)
                kind[name] = detail


def listing(result: Restoration) -> Table:
    """A line for each pod and each policy."""
    of_pods = (
        ("restored", result.restored),
        ("gone", result.gone),
        ("accepted, NOT in effect yet", result.accepted),
        ("NOT restored yet", result.pending),
        ("NOT restored", result.impossible),
    )
    rows = [(name, became, detail) for became, details in of_pods for name, detail in details.items()]
    rows += [(f"TrainingPolicy {name}", "released", "its finalizer is removed") for name in result.policies]
    rows += [("", "problem", problem) for problem in result.problems]
    nothing = ("nothing", "", "no pod was changed, and no policy holds a finalizer")
    return listing_of(("object", "result", "detail"), rows or [nothing])


def restore_all(
    connection: Connection,
    lease_namespace: str | None,
    deadline_seconds: float,
    stop: StopSignal,
    announce: Callable[[str], None],
    terms: Terms | None = None,
) -> Restoration:
    """Try until everything is restored, the deadline has passed or a signal comes.

    SlopewiseError when a controller leads; ObservationError when the cluster cannot be read.
    """
    configure_logging()
    api = connect(connection)
    namespace = lease_namespace_of(connection, lease_namespace)
    elector = make_elector(api, connection, namespace, f"restore-{own_identity()}", terms or Terms())
    watches = make_watches(api, connection.namespace, lambda old, new: None).without_freezes()
    watches.start()
    try:
        wait_for_watches(watches, stop)
        announce(f"Taking the lease {namespace}/{LEASE_NAME}, so that no controller works against this.")
        take_lease(elector, namespace, stop)
        watches.catch_up()
        fenced = FencedApi(api, elector.may_write)
        return _Restorer(fenced, watches, elector, announce).run(time.monotonic() + deadline_seconds, stop)
    finally:
        elector.stop()
        watches.stop()
        api.close()


class _Restorer:
    def __init__(self, api: FencedApi, watches: Watches, elector: Elector, announce: Callable[[str], None]) -> None:
        self._api = api
        self._watches = watches
        self._elector = elector
        self._announce = announce
        sender = StatusSender(api)
        self._writer = StatusWriter(sender.send)
        self._job_growths = JobGrowthStore(watches.growths, sender, self._writer)
        self._owners = Owners(watches.jobs, api, self._job_growths.recorded)
        self._messages: dict[str, str] = {}
        """The last message about each Job that is suspended for a move, by uid."""
        self._suspended_jobs = SuspendedJobController(
            api, watches.jobs, watches.pods, watches.nodes, SystemClock(), self._note,
            watches.jobs.observe,
        )  # fmt: skip

    def run(self, deadline: float, stop: StopSignal) -> Restoration:
        result = Restoration()
        with self._writing(result):
            self._job_growths.refresh()
            # No rate limit: nothing else is running.
            about = (self._api, self._watches, self._owners, self._job_growths, lambda node, namespace: None)
            restorers = [Restorer(policy, *about) for policy in self._job_growths.policies()]
            self._restore(restorers, result, deadline, stop)
        if unreadable := self._watches.growths.unreadable:
            result.problems.append(f"{unreadable} JobGrowths cannot be read; what their pods had is not known")
        self._remove_finalizers(result)
        return result

    @contextmanager
    def _writing(self, result: Restoration) -> Iterator[None]:
        self._writer.start()
        try:
            yield
        finally:
            self._writer.stop(_FLUSH_SECONDS)
        if waiting := self._writer.waiting:
            reason = self._writer.failure or "there was no time"
            result.problems.append(
                f"{waiting} JobGrowths still say that their pods are changed ({reason}); run it again"
            )

    def _restore(self, restorers: list[Restorer], result: Restoration, deadline: float, stop: StopSignal) -> None:
        """Every policy's pods in turn, again and again: none waits for another policy's."""
        accepted = set(result.accepted)
        while True:
            for each in tuple(restorers):
                given_back = each.restore()
                result.add(given_back, each.name_of)
                if given_back.settled:  # another try would do nothing more
                    restorers.remove(each)
            if not (self._some_are_suspended(result) or restorers) or time.monotonic() > deadline:
                return
            before, accepted = accepted, set(result.accepted)
            if waiting := {**result.pending, **(result.accepted if accepted == before else {})}:
                name, reason = next(iter(waiting.items()))
                self._announce(f"{len(waiting)} not back yet, for example {name}: {reason}")
            if stop.wait(TRY_AGAIN_SECONDS if accepted == before else CONFIRM_SECONDS):
                result.problems.append(f"stopped by {stop.name}")
                return
            if not self._elector.is_leader:
                reason = self._elector.failure or f"{self._elector.holder} has it"
                result.problems.append(f"the lease was lost ({reason}); run it again")
                return

    def _some_are_suspended(self, result: Restoration) -> bool:
        """Advance every suspended Job as far as possible; True while one is still suspended."""
        self._suspended_jobs.tick()
        waiting = [move for move in under_way(self._watches.jobs) if move.step in ("leaving", "unpinning")]
        names = {f"Job {move.namespace}/{move.name}": move for move in waiting}
        for name in [name for name in result.pending if name.startswith("Job ") and name not in names]:
            del result.pending[name]
        for name, move in names.items():
            result.pending[name] = self._messages.get(
                move.workload_uid, "suspended for a move, until its pods have ended"
            )
        return bool(names)

    def _note(self, move: JobMove, message: str, ended: MoveEnd | None, *, warning: bool) -> None:
        self._messages[move.workload_uid] = message

    def _remove_finalizers(self, result: Restoration) -> None:
        if self._watches.policies is None:
            return
        held = [record.name for record in self._watches.policies.items() if FINALIZER in record.finalizers]
        if held and (result.accepted or result.pending or result.problems):
            result.problems.append(f"the finalizer stays on {', '.join(held)}, as not everything is back")
            return
        for name in held:
            try:
                set_finalizer(self._api, name, wanted=False)
                result.policies.append(name)
            except (ApiError, NotLeadingError) as error:
                result.problems.append(f"the finalizer of TrainingPolicy {name} stays: {error}")
