"""`slopewise restore --all`: every changed pod gets its original resources back, and no policy waits for us any more.

What one runs before the controller is removed. It takes the controllers' lease, so that none of them changes anything
meanwhile, and works on what is stored in the JobGrowths: no Prometheus, no policy, no pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from controller.adapters.clock import SystemClock
from controller.adapters.kube.actuator import KubeActuator
from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.election import Elector, Terms
from controller.adapters.kube.growth_book import GrowthBook
from controller.adapters.kube.memory import KubeMemory
from controller.adapters.kube.owners import Identity, Owners
from controller.adapters.kube.policies import remove_finalizer
from controller.adapters.kube.records import FINALIZER, ManagedPod
from controller.adapters.kube.status_writer import StatusSender, StatusWriter
from controller.cluster.once import take_lease, wait_for_watches
from controller.cluster.options import Connection, own_identity, own_namespace
from controller.cluster.process import LEASE_NAME
from controller.cluster.watches import Watches, make_watches
from controller.restoring import GivenBack, give_back
from controller.settings import ResourceSettings

TRY_AGAIN_SECONDS = 2.0


class NoTurns:
    """Nobody waits for a turn: this is the one thing that is being done."""

    def take(self, node: str, namespace: str) -> str | None:
        """Go ahead."""
        return None


@dataclass(slots=True)
class Restoration:
    """What became of every changed pod, and which policies were let go."""

    restored: dict[str, str] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    """Not restored, and why."""
    policies: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True when nothing of ours is left."""
        return not self.left and not self.problems

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        return {
            "restored": self.restored, "gone": self.gone, "left": self.left,
            "policiesLetGo": self.policies, "problems": self.problems, "complete": self.complete,
        }  # fmt: skip

    def add(self, given_back: GivenBack, name: Callable[[str], str]) -> None:
        """One more try: what is back now is not left any more."""
        self.restored |= {name(uid): detail for uid, detail in given_back.restored.items()}
        self.gone |= {name(uid): detail for uid, detail in given_back.gone.items()}
        left: Mapping[str, str] = {**given_back.waiting, **given_back.failed, **given_back.impossible}
        self.left |= {name(uid): why for uid, why in left.items()}
        for done in (*self.restored, *self.gone):
            self.left.pop(done, None)


def listing(result: Restoration) -> Table:
    """A line for each pod and each policy."""
    table = Table("what", "became of it", "detail", box=None, pad_edge=False)
    for became, told in (("restored", result.restored), ("gone", result.gone), ("NOT restored", result.left)):
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
    connection: Connection, lease_namespace: str | None, deadline_seconds: float, announce: Callable[[str], None]
) -> Restoration:
    """Try until everything is back or the deadline has passed. SlopewiseError when a controller is at work."""
    api = KubeApi.connect(
        kubeconfig=None if connection.kubeconfig is None else str(connection.kubeconfig),
        context=connection.context,
        timeout_seconds=connection.timeout_seconds,
    )
    namespace = lease_namespace or own_namespace()
    elector = Elector(api, namespace, LEASE_NAME, f"restore-{own_identity()}", terms=Terms())
    watches = make_watches(api, connection.namespace, lambda old, new: None)
    watches.start()
    try:
        wait_for_watches(watches)
        announce(f"Waiting for the lease {namespace}/{LEASE_NAME}, so that no controller works against this.")
        take_lease(elector, namespace)
        return _Restorer(api, watches, elector, announce).run(time.monotonic() + deadline_seconds)
    finally:
        elector.stop()
        watches.stop()
        api.close()


class _Restorer:
    def __init__(self, api: KubeApi, watches: Watches, elector: Elector, announce: Callable[[str], None]) -> None:
        self._api = api
        self._watches = watches
        self._announce = announce
        self._may_write = elector.may_write
        sender = StatusSender(api, elector.may_write)
        self._writer = StatusWriter(sender.send)
        self._book = GrowthBook(watches.growths, sender, self._writer)
        self._owners = Owners(watches.jobs, api, self._book.recorded)
        self._names: dict[str, str] = {}

    def run(self, deadline: float) -> Restoration:
        self._writer.start()
        result = Restoration()
        try:
            self._book.refresh()
            for policy in self._book.policies():
                self._restore(policy, result, deadline)
        finally:
            self._writer.stop(max(1.0, deadline - time.monotonic()))
        self._let_policies_go(result)
        return result

    def _restore(self, policy: str, result: Restoration, deadline: float) -> None:
        roster = _Roster(self._watches, self._owners, self._book)
        memory = KubeMemory(policy, self._book, roster, intervals={})
        # Whether requests were lowered is told by each original: what it says is what comes back.
        settings = ResourceSettings(lower_requests=True, add_limits=True)
        actuator = KubeActuator(
            self._api, roster, settings, self._may_write, NoTurns(), SystemClock(), memory.original,
            self._watches.pods.observe,
        )  # fmt: skip
        while True:
            given_back = give_back(memory, actuator)
            result.add(given_back, lambda uid: self._name(uid, roster))
            if given_back.settled or time.monotonic() > deadline:
                return
            waiting = {**given_back.waiting, **given_back.failed}
            self._announce(f"{len(waiting)} not back yet: {next(iter(waiting.values()))}")
            time.sleep(TRY_AGAIN_SECONDS)

    def _name(self, uid: str, roster: _Roster) -> str:
        """Of a pod that may be gone by the time it is told."""
        managed = roster.find(uid)
        if managed is not None:
            self._names[uid] = f"pod {managed.pod.namespace}/{managed.pod.name}"
        return self._names.get(uid, uid)

    def _let_policies_go(self, result: Restoration) -> None:
        if result.left or self._watches.policies is None:
            return
        for record in self._watches.policies.items():
            if FINALIZER in record.finalizers:
                try:
                    remove_finalizer(self._api, record.name)
                    result.policies.append(record.name)
                except ApiError as error:
                    result.problems.append(f"the finalizer of TrainingPolicy {record.name} stays: {error}")


class _Roster:
    """Who a job is, without a policy: the container is the one whose original is stored."""

    def __init__(self, watches: Watches, owners: Owners, book: GrowthBook) -> None:
        self._pods = watches.pods
        self._owners = owners
        self._book = book

    def find(self, job_uid: str) -> ManagedPod | None:
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
