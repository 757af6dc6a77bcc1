"""`slopewise restore --all`: every changed pod gets its original resources back, and no policy waits for us any more.

What one runs before the controller is removed. It takes the controllers' lease, so that none of them changes anything
meanwhile, and works on what is stored in the JobGrowths: no Prometheus, no policy, no pass. Jobs that a move has
suspended are resumed, since nobody would do so afterwards; what waits behind our gate is for `sweep`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from controller.adapters.clock import SystemClock
from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.election import Elector, Terms
from controller.adapters.kube.following import JobFollower
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.job_moves import JobMove, under_way
from controller.adapters.kube.job_steps import MoveEnd
from controller.adapters.kube.owners import Owners
from controller.adapters.kube.policies import remove_finalizer
from controller.adapters.kube.records import FINALIZER
from controller.adapters.kube.status_writer import StatusSender, StatusWriter
from controller.cluster.connecting import LEASE_NAME, connect, make_elector
from controller.cluster.once import take_lease, wait_for_watches
from controller.cluster.options import Connection, lease_namespace_of, own_identity
from controller.cluster.signals import StopSignal
from controller.cluster.undoing import Undoing
from controller.cluster.watches import Watches, make_watches
from controller.errors import ActuationError
from controller.restoring import GivenBack
from controller.telemetry import configure_logging

TRY_AGAIN_SECONDS = 2.0
CONFIRM_SECONDS = 0.5
"""From what was just accepted to the look at whether it is in effect: most kubelets need no longer."""

_FLUSH_SECONDS = 5.0


class NoTurns:
    """Nobody waits for a turn: this is the one thing that is being done."""

    def take(self, node: str, namespace: str) -> str | None:
        """Go ahead."""
        return None


@dataclass(slots=True)
class Restoration:
    """What became of every changed pod (as `pod namespace/name`), and which policies were let go."""

    restored: dict[str, str] = field(default_factory=dict)
    """The detail says what could not come back with the rest, such as a limit that was added and stays."""
    gone: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    """Taken by the API server, and not in effect within the deadline, as their kubelets report."""
    left: dict[str, str] = field(default_factory=dict)
    """Not restored within the deadline, and why: run it again."""
    impossible: dict[str, str] = field(default_factory=dict)
    """Not restored, and no other try helps until somebody changes something."""
    policies: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True when everything is in effect, and nothing of ours is left."""
        return not (self.accepted or self.left or self.impossible or self.problems)

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        return {
            "restored": self.restored,
            "gone": self.gone,
            "accepted": self.accepted,
            "left": self.left,
            "impossible": self.impossible,
            "policiesLetGo": self.policies,
            "problems": self.problems,
            "complete": self.complete,
        }

    def add(self, given_back: GivenBack, name: Callable[[str], str]) -> None:
        """One more try: what it says of a pod counts, and no longer what the one before said."""
        kinds = (
            (self.restored, given_back.restored),
            (self.gone, given_back.gone),
            (self.accepted, given_back.accepted),
            (self.left, {**given_back.waiting, **given_back.failed}),
            (self.impossible, given_back.impossible),
        )
        for kind, told in kinds:
            for uid, detail in told.items():
                for other, _ in kinds:
                    other.pop(name(uid), None)
                kind[name(uid)] = detail


def listing(result: Restoration) -> Table:
    """A line for each pod and each policy."""
    table = Table("what", "became of it", "detail", box=None, pad_edge=False)
    for became, told in (
        ("restored", result.restored),
        ("gone", result.gone),
        ("accepted, NOT in effect yet", result.accepted),
        ("NOT restored yet", result.left),
        ("NOT restored", result.impossible),
    ):
        for name, detail in told.items():
            table.add_row(name, became, detail)
    for name in result.policies:
        table.add_row(f"TrainingPolicy {name}", "let go", "its finalizer is removed")
    for problem in result.problems:
        table.add_row("", "problem", problem)
    if not table.row_count:
        table.add_row("nothing", "", "no pod was changed, and no policy holds a finalizer")
    return table


def restore_all(
    connection: Connection,
    lease_namespace: str | None,
    deadline_seconds: float,
    stop: StopSignal,
    announce: Callable[[str], None],
    terms: Terms | None = None,
) -> Restoration:
    """Try until everything is back, the deadline has passed or a signal comes.

    SlopewiseError when a controller is at work; ObservationError when the cluster cannot be read.
    """
    configure_logging()
    api = connect(connection)
    namespace = lease_namespace_of(connection, lease_namespace)
    elector = make_elector(api, connection, namespace, f"restore-{own_identity()}", terms or Terms())
    watches = make_watches(api, connection.namespace, lambda old, new: None)
    watches.start()
    try:
        wait_for_watches(watches, stop)
        announce(f"Taking the lease {namespace}/{LEASE_NAME}, so that no controller works against this.")
        take_lease(elector, namespace, stop)
        watches.catch_up()
        return _Restorer(api, watches, elector, announce).run(time.monotonic() + deadline_seconds, stop)
    finally:
        elector.stop()
        watches.stop()
        api.close()


class _Restorer:
    def __init__(self, api: KubeApi, watches: Watches, elector: Elector, announce: Callable[[str], None]) -> None:
        self._api = api
        self._watches = watches
        self._elector = elector
        self._announce = announce
        sender = StatusSender(api, elector.may_write)
        self._writer = StatusWriter(sender.send)
        self._book = GrowthBook(watches.growths, sender, self._writer)
        self._owners = Owners(watches.jobs, api, self._book.recorded)
        self._told: dict[str, str] = {}
        """Of Jobs that are suspended for a move: what was last said of them, by uid."""
        self._follower = JobFollower(
            api, watches.jobs, watches.pods, watches.nodes, elector.may_write, SystemClock(), self._note,
            watches.jobs.observe,
        )  # fmt: skip

    def run(self, deadline: float, stop: StopSignal) -> Restoration:
        result = Restoration()
        with self._writing(result):
            self._book.refresh()
            undoings = [self._undoing(name) for name in self._book.policies()]
            self._give_back(undoings, result, deadline, stop)
        if unreadable := self._watches.growths.unreadable:
            result.problems.append(f"{unreadable} JobGrowths cannot be read; what their pods had is not known")
        self._let_policies_go(result)
        return result

    def _undoing(self, policy: str) -> Undoing:
        may_write = self._elector.may_write
        return Undoing(
            policy, self._api, self._watches, self._owners, self._book, may_write, NoTurns(), by_a_person=True
        )

    @contextmanager
    def _writing(self, result: Restoration) -> Iterator[None]:
        self._writer.start()
        try:
            yield
        finally:
            self._writer.stop(_FLUSH_SECONDS)
        if waiting := self._writer.waiting:
            why = self._writer.failure or "there was no time"
            result.problems.append(f"{waiting} JobGrowths still say that their pods are changed ({why}); run it again")

    def _give_back(self, undoings: list[Undoing], result: Restoration, deadline: float, stop: StopSignal) -> None:
        """Every policy's in turn, again and again: none waits for the pods of another one."""
        accepted = set(result.accepted)
        while True:
            undoings = [each for each in undoings if not self._once(each, result)]
            if not (self._some_are_suspended(result) or undoings) or time.monotonic() > deadline:
                return
            before, accepted = accepted, set(result.accepted)
            if waiting := {**result.left, **(result.accepted if accepted == before else {})}:
                self._announce(f"{len(waiting)} not back yet, for example {_first(waiting)}")
            if stop.wait(TRY_AGAIN_SECONDS if accepted == before else CONFIRM_SECONDS):
                result.problems.append(f"stopped by {stop.name}")
                return
            if not self._elector.is_leader:
                why = self._elector.failure or f"{self._elector.holder} has it"
                result.problems.append(f"the lease was lost ({why}); run it again")
                return

    def _once(self, undoing: Undoing, result: Restoration) -> bool:
        """One try of one policy's; True when another one would do nothing more."""
        given_back = undoing.give_back()
        result.add(given_back, lambda uid: f"pod {undoing.name_of(uid)}")
        return given_back.settled

    def _some_are_suspended(self, result: Restoration) -> bool:
        """Take every move that has suspended its Job on by what can be done now; True while one is still suspended."""
        self._follower.tick()
        waiting = [move for move in under_way(self._watches.jobs) if move.step in ("leaving", "unpinning")]
        names = {f"Job {move.namespace}/{move.name}": move for move in waiting}
        for name in [name for name in result.left if name.startswith("Job ") and name not in names]:
            del result.left[name]
        for name, move in names.items():
            result.left[name] = self._told.get(move.workload_uid, "suspended for a move, until its pods have ended")
        return bool(names)

    def _note(self, move: JobMove, sentence: str, warning: bool, ended: MoveEnd | None) -> None:
        self._told[move.workload_uid] = sentence

    def _let_policies_go(self, result: Restoration) -> None:
        if self._watches.policies is None:
            return
        held = [record.name for record in self._watches.policies.items() if FINALIZER in record.finalizers]
        if held and (result.accepted or result.left or result.problems):
            result.problems.append(f"the finalizer stays on {', '.join(held)}, as not everything is back")
            return
        for name in held:
            try:
                remove_finalizer(self._api, name, self._elector.may_write)
                result.policies.append(name)
            except (ApiError, ActuationError) as error:
                result.problems.append(f"the finalizer of TrainingPolicy {name} stays: {error}")


def _first(left: dict[str, str]) -> str:
    return next((f"{name}: {why}" for name, why in left.items()), "")
