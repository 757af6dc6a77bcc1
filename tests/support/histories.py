"""Histories told in a few lines, one second a line, for tests of what finds contradictions in them.

told = Told()
told.pod()
told.policy()
told.store()
told.resize("2")
assert contradictions(told.events) == []
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from support.managed_pods import NAMESPACE, a_raw_pod

from slopewise.adapters.kube.cache.records import FINALIZER, MANAGED_LABEL, MIGRATABLE, MOVES_ALLOWED, MOVES_LABEL
from slopewise.adapters.kube.moves.suspend.annotation import JobMove
from slopewise.crds.conditions import timestamp
from testbed.histories.events import Decided, Event, Sample, Step, Write

Json = dict[str, Any]

US, OTHER, CLUSTER = "replica-1", "replica-2", "cluster"
BEGIN_SECONDS = 1_800_000_000.0


def cpu(limit: str, request: str = "100m", memory: Json | None = None) -> Json:
    """`memory`: limit and request, by `limits` and `requests`."""
    both = {"limits": {"cpu": limit}, "requests": {"cpu": request}}
    return {side: amounts | {"memory": memory[side]} if memory else amounts for side, amounts in both.items()}


@dataclass
class Told:
    """What has happened so far, and the objects as they are."""

    events: list[Event] = field(default_factory=list)
    now: float = BEGIN_SECONDS
    version: int = 95
    deleted_at: int = 0
    """The version with which the policy was deleted."""
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)

    # --- what anybody does -----------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def write(self, kind: str, name: str, obj: Json, by: str = US, verb: str = "patch", code: int = 200) -> None:
        """The object is stored so, a tenth of a second after the request, and a second passes."""
        self.version += 1
        resource = kind.partition("/")[0]
        wide = resource in ("trainingpolicies", "freezes", "nodes", "namespaces")
        namespace = "" if wide else NAMESPACE
        stored = copy.deepcopy(obj)
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **stored.get("metadata", {})}
        stored["metadata"] = {**meta, "resourceVersion": str(self.version)}
        after = stored if 200 <= code < 300 else {}
        ours = by in (US, OTHER)
        self.events.append(Write(self.now, self.now + 0.1, by, verb, kind, namespace, name, code, None, after, ours))
        if after:
            self.objects[resource, name] = after
        self.now += 1.0

    def change(self, kind: str, name: str, by: str = US, **parts: Any) -> None:
        """Parts of an object that is there, by their names, e.g. `spec={...}`."""
        old = self.objects[kind.partition("/")[0], name]
        merged = {part: {**old.get(part, {}), **values} for part, values in parts.items()}
        self.write(kind, name, {**old, **merged}, by)

    def remove(self, kind: str, name: str) -> None:
        self.write(kind, name, {}, CLUSTER, verb="delete")

    # --- what is there ---------------------------------------------------------------------------------------

    def pod(
        self, name: str = "a", limit: str = "300m", owner: str = "", memory: Json | None = None, **spec: Any
    ) -> None:
        """`owner`: the Job that it is of."""
        raw = a_raw_pod(cpu(limit, memory=memory))
        raw["metadata"] = {"labels": {MANAGED_LABEL: "true"}, "annotations": {MIGRATABLE: "true"}}
        if owner:
            raw["metadata"]["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": f"uid-{owner}"}]
        raw["spec"] |= spec
        self.write("pods", name, raw, CLUSTER, "create")

    def policy(self, mode: str = "Auto", **resources: Any) -> None:
        spec = {"mode": mode, "resources": {"control": "limits", "cpu": {"min": "250m", "max": "4"}, **resources}}
        self.write("trainingpolicies", "p", {"metadata": {"finalizers": [FINALIZER]}, "spec": spec}, CLUSTER)

    def delete_policy(self) -> None:
        old = copy.deepcopy(self.objects["trainingpolicies", "p"])  # the writes before are as they were
        old["metadata"]["deletionTimestamp"] = timestamp(self.now).isoformat()
        self.write("trainingpolicies", "p", old, CLUSTER, verb="delete")
        self.deleted_at = self.version

    def let_policy_go(self, by: str = US) -> None:
        """The answer has the version of the write before, as an API server has it."""
        self.change("trainingpolicies", "p", by, metadata={"finalizers": []})
        self.objects["trainingpolicies", "p"]["metadata"]["resourceVersion"] = str(self.deleted_at)

    def namespace(self, moves: str = MOVES_ALLOWED) -> None:
        self.write("namespaces", NAMESPACE, {"metadata": {"labels": {MOVES_LABEL: moves}}}, CLUSTER, "create")

    def freeze(self, scope: str = "all", **spec: Any) -> None:
        self.write("freezes", "f", {"spec": {"scope": scope, "effect": "Freeze", **spec}}, CLUSTER, "create")

    def lease(self, by: str = US, holder: str | None = None) -> None:
        spec = {"holderIdentity": by if holder is None else holder}
        self.write("leases", "slopewise-controller", {"spec": spec}, by)

    def job(self, suspend: bool = False, **metadata: Any) -> None:
        template = {"metadata": {"annotations": {MIGRATABLE: "true"}}, "spec": {"containers": [{"name": "trainer"}]}}
        self.write("jobs", "train", {"metadata": metadata, "spec": {"suspend": suspend, "template": template}}, CLUSTER)

    # --- what the controller does ----------------------------------------------------------------------------

    def store(
        self, limit: str | None = "300m", pod: str = "a", by: str = US, memory: Json | None = None, **status: Any
    ) -> None:
        """The JobGrowth of a pod, with this original; None: without one."""
        entry: Json = {"slot": "0", "name": pod, "uid": f"uid-{pod}", "container": "trainer"}
        if limit is not None:
            entry["original"] = {"cpuLimit": limit, "cpuRequest": "100m"}
        if memory is not None:
            entry["original"] |= {"memoryLimit": memory["limits"], "memoryRequest": memory["requests"]}
        status = {"policy": "p", "pods": [entry], **status}
        workload = {"kind": "Pod", "name": pod, "uid": f"uid-{pod}"}
        self.write("jobgrowths/status", pod, {"spec": {"workload": workload}, "status": status}, by)

    def resize(self, limit: str, pod: str = "a", by: str = US, code: int = 200, memory: Json | None = None) -> None:
        """And its kubelet reports it a second later."""
        raw = copy.deepcopy(self.objects["pods", pod])
        raw["spec"]["containers"][0]["resources"] = cpu(limit, memory=memory)
        self.write("pods/resize", pod, raw, by, code=code)
        if code == 200:
            raw["status"]["containerStatuses"][0]["resources"] = cpu(limit, memory=memory)
            self.write("pods/status", pod, raw, CLUSTER)

    def suspend(self) -> None:
        move = JobMove(
            workload_uid="uid-train", namespace=NAMESPACE, name="train", step="leaving", from_node="node-a",
            to_node="node-b", since_seconds=1.0, step_since_seconds=1.0, policy="p", job_uids=("uid-train:0",),
        )  # fmt: skip
        annotations = {"slopewise.dev/move": move.written()}
        self.change("jobs", "train", metadata={"annotations": annotations}, spec={"suspend": True})

    def place(self, pod: str, node: str) -> None:
        """Take the gate of a pod, which prefers this node from then on."""
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        wish = [{"weight": 100, "preference": {"matchFields": [field]}}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}
        self.change("pods", pod, spec={"schedulingGates": [], "affinity": affinity})

    def evict(self, pod: str = "a") -> None:
        self.events.append(
            Write(self.now, self.now + 0.1, US, "create", "pods/eviction", NAMESPACE, pod, 201, ours=True)
        )
        self.now += 1.0

    def managed(self) -> None:
        """A pod that was resized from 300m to 2 by the one replica that leads."""
        self.namespace()
        self.pod()
        self.policy()
        self.lease()
        self.store()
        self.resize("2")

    # --- what is measured ------------------------------------------------------------------------------------

    def sample(self, millicores: int, pod: str = "a") -> None:
        self.events.append(Sample(self.now, f"uid-{pod}", millicores))
        self.now += 1.0

    def decided(self, millicores: int, since: float = 0.0) -> None:
        """By a pass that observed then, as applied."""
        self.events.append(Decided(self.now, "p", "uid-a:0", millicores, "applied", since))
        self.now += 1.0

    def life(self, name: str, begin: int, end: int, saved: int | None = None) -> None:
        """One process trains from one step to another, and has saved after a step of these."""
        self.events.append(Step(self.now, "t", name, "goes on", begin))
        for step in range(begin + 1, end + 1):
            self.events.append(Step(self.now + step, "t", name, "step", step))
            if step == saved:
                self.events.append(Step(self.now + step + 0.5, "t", name, "saved", step))
        self.now += end + 1.0
