"""Every kind of request that the controller and the sweeper make, each made by the part that makes it.

`Office` has the parts of a leader as `make_world` wires them, over a town in which there is something to do for each.
`WRITES` names what it may write by the right that it needs, and does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from support.api_server import ApiServer, refusal
from support.gated_pods import Stage
from support.managed_pods import NAMESPACE, PODS, UNSCHEDULABLE
from support.replicas import Json, Town, shared_parts
from support.suspended_jobs import JOBS, left_behind
from support.waiting import eventually

from slopewise.adapters.kube.cache.records import PLACED, ManagedPod
from slopewise.adapters.kube.connection import Connection, make_elector
from slopewise.adapters.kube.events import About, Event, EventRecorder
from slopewise.adapters.kube.leader_election import Terms
from slopewise.adapters.kube.moves.node_predicates import pinned
from slopewise.adapters.kube.moves.suspend.begin import CONTROLLER_UID
from slopewise.adapters.kube.restorer import Restorer
from slopewise.adapters.kube.state.freezes import FreezeDocument, freeze_path
from slopewise.adapters.kube.state.training_policies import PolicyDocument, set_finalizer
from slopewise.crds.policy_status import PolicyFacts
from slopewise.manager.policy_runner import PolicyRunner
from slopewise.model import Migrate, Place
from slopewise.operate.sweep import Sweeper

Right = tuple[str, str, str]
"""Verb, group and resource, as a role names them."""

_CHAINS = (
    (("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment")),
    (("apps/v1", "StatefulSet"),),
    (("jobset.x-k8s.io/v1alpha2", "JobSet"), ("trainer.kubeflow.org/v1alpha1", "TrainJob")),
    (("kubeflow.org/v1", "PyTorchJob"),),
    (("batch/v1", "Job"),),
)
"""Who may own a pod, from below."""

_TRAIN, _GATED = "uid-of-train", "uid-of-gated:0"
_CONFLICT = refusal(409, "Conflict", "the object has been modified")


class Office(AbstractContextManager["Office"]):
    """A leader's parts, while `leads`. Nothing runs by itself but the watches. `moves`: there are pods to move."""

    def __init__(self, *, moves: bool = True) -> None:
        self.leads = True
        self.town = Town()
        self.server = self.town.server
        self.town.policy()
        self.town.pod()
        if moves:
            put_movable(Stage(self.server))
        self._parts = shared_parts(self.server.client(), self.town.prometheus.url, lambda: self.leads)
        self.shared = self._parts.__enter__()
        [self.policy] = self.shared.claims.policies()

    def __exit__(self, *_: object) -> None:
        self._parts.__exit__(None, None, None)
        self.town.__exit__()

    def writes(self) -> set[Right]:
        """The rights that the writes so far have needed."""
        return {request.right for request in self.server.requests if request.method != "GET"}

    def change(self) -> None:
        """One pass, in which originals are stored and CPU is changed."""
        assert self.policy.document is not None
        runner = PolicyRunner(self.shared, self.policy, self.policy.document, None)
        runner.one_pass()
        runner.stop()

    def restore_originals(self) -> None:
        shared = self.shared
        Restorer("p", shared.api, shared.watches, shared.owners, shared.job_growths, shared.rate_limiter.take).restore()

    def retire(self) -> None:
        for document in self.shared.job_growths.of("p"):
            document.retired = True
            self.shared.job_growths.write_now(document)

    def show_policy(self) -> None:
        document = PolicyDocument(self.policy)
        document.show(PolicyFacts(1, "Auto"), 1.0)
        self.shared.job_growths.write_now(document)

    def show_freeze(self) -> None:
        self.server.put(freeze_path(), {"metadata": {"name": "f"}, "spec": {"scope": "node", "name": "no-such"}})
        assert self.shared.watches.freezes is not None
        assert eventually(self.shared.watches.freezes.items)
        [record] = self.shared.watches.freezes.items()
        self.shared.job_growths.write_now(FreezeDocument(record, "InForce", 1.0))

    def hold_policy(self) -> None:
        set_finalizer(self.shared.fail_fast, "p", wanted=True)

    def report(self) -> None:
        """The same event twice: the second time it is counted in the first. Returns when both are sent, or not."""
        recorder = EventRecorder(self.shared.api, instance="test", events_per_second=1000.0)
        recorder.start()
        for _ in range(2):
            recorder.emit(Event(About.policy("p", "u"), "Reported", "x"))
        recorder.stop()

    def release(self) -> None:
        self.shared.gates.place(Place(_GATED, "node-b", "why"))

    def evict(self) -> None:
        move, managed = self._migration()
        self.shared.evictions.begin(move, managed, "p")

    def suspend(self) -> None:
        move, managed = self._migration()
        self.shared.job_moves.begin(move, managed, "p", ())

    def _migration(self) -> tuple[Migrate, ManagedPod]:
        found = self.shared.owners.resolve(self.shared.watches.pods.items()).pods
        identity, pod = found[f"{_TRAIN}:0"]
        managed = ManagedPod(identity.job_uid, identity.workload, identity.slot, pod, pod.containers[0])
        return Migrate(managed.job_uid, "node-a", "node-b", "why"), managed


def put_movable(stage: Stage) -> None:
    """A Job of two pods with a volume, and one whose pod waits behind our gate."""
    stage.server.put("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": {"nfs": {}}})
    claims = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    stage.server.put(claims, {"metadata": {"name": "c"}, "spec": {"volumeName": "v"}})
    stage.put_job()
    for index in ("0", "1"):
        labels = {CONTROLLER_UID: _TRAIN, "batch.kubernetes.io/job-completion-index": index}
        raw = stage.put_pod(f"train-{index}", labels=labels)
        raw["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        stage.server.put(PODS, raw)
    stage.put_job("gated")
    stage.put_pod("gated-x", owner="gated", gated=True)


def nothing(office: Office) -> None:
    """Where nothing has to have happened before."""


_OURS = "slopewise.dev"
Act = Callable[[Office], None]
WRITES: Mapping[Right, tuple[Act, Act]] = {
    ("create", _OURS, "jobgrowths"): (nothing, Office.change),
    ("patch", _OURS, "jobgrowths/status"): (nothing, Office.change),
    ("delete", _OURS, "jobgrowths"): (Office.change, Office.retire),
    ("patch", "", "pods/resize"): (Office.change, Office.restore_originals),
    ("patch", _OURS, "trainingpolicies"): (nothing, Office.hold_policy),
    ("patch", _OURS, "trainingpolicies/status"): (nothing, Office.show_policy),
    ("patch", _OURS, "freezes/status"): (nothing, Office.show_freeze),
    ("create", "events.k8s.io", "events"): (nothing, Office.report),
    ("patch", "events.k8s.io", "events"): (nothing, Office.report),
    ("patch", "", "pods"): (nothing, Office.release),
    ("create", "", "pods/eviction"): (nothing, Office.evict),
    ("patch", "batch", "jobs"): (nothing, Office.suspend),
}
"""By the right that each needs: what has to have happened before, and what makes it."""


@cache
def made_by_the_controller(*, moves: bool) -> frozenset[Right]:
    """What every request needs that a controller makes; with `moves`, also those that moves make."""
    with Office(moves=moves) as office:
        for number, chain in enumerate(_CHAINS):
            _put_owned(office, number, chain)
        owned = {f"owned-{number}" for number in range(len(_CHAINS))}
        assert eventually(lambda: owned <= {pod.name for pod in office.shared.watches.pods.items() if pod.owner})
        if moves:
            office.suspend()
        office.server.fault(refusal(409, "AlreadyExists", "there is one"), method="POST", path="/jobgrowths$")
        office.server.fault(_CONFLICT, method="PATCH", path="/resize$")
        office.change()
        shown = (Office.show_policy, Office.show_freeze)
        for act in (Office.restore_originals, *shown, Office.hold_policy, Office.report, Office.retire):
            act(office)
        if moves:
            office.release()
        _hold_lease(office.server)
        sent = _sent(office.server)
    if not moves:
        return sent
    with Office() as office:
        office.evict()
        return sent | _sent(office.server)


@cache
def made_by_the_sweeper() -> frozenset[Right]:
    """What every request needs that a sweep makes."""
    seconds = [1e9]

    def wait(pause: float) -> bool:
        seconds[0] += pause
        return False

    with ApiServer() as server:
        stage = Stage(server)
        stage.put_pod("gated", gated=True)
        pin: dict[str, Any] = {"annotations": {PLACED: "node-b"}, "affinity": pinned(None, "node-b")}
        stage.put_pod("stranded", node=None, conditions=(UNSCHEDULABLE,), **pin)
        server.put(JOBS, left_behind("node-a"))
        server.fault(_CONFLICT, method="PATCH", path="/pods/gated$")
        Sweeper(server.client(), None, 60.0, wait, lambda: time.time() + seconds[0], lambda: seconds[0]).run()
        return _sent(server)


def _sent(server: ApiServer) -> frozenset[Right]:
    return frozenset(request.right for request in server.requests if request.path != "/version")


def _put_owned(office: Office, number: int, chain: tuple[tuple[str, str], ...]) -> None:
    """A pod and its owners; a Job that no watch shows yet is not there."""
    refs = [
        {"apiVersion": version, "kind": kind, "name": f"o{number}", "uid": f"{kind}-uid", "controller": True}
        for version, kind in chain
    ]
    for index, (version, kind) in enumerate(chain):
        meta: Json = {"name": f"o{number}", "uid": f"{kind}-uid", "ownerReferences": refs[index + 1 : index + 2]}
        if kind != "Job":
            office.server.put(f"/apis/{version}/namespaces/{NAMESPACE}/{kind.lower()}s", {"metadata": meta})
    raw = office.town.pod(f"owned-{number}")
    raw["metadata"]["ownerReferences"] = refs[:1]
    office.server.put(PODS, raw)


def _hold_lease(server: ApiServer) -> None:
    elector = make_elector(server.client(), Connection(), "controllers", "me", Terms.within(1.5))
    elector.start()
    assert eventually(lambda: server.asked("PUT", "/leases/"))
    elector.stop()
