"""Jobs and their pods on the small API server, for tests of moves: gated, running, evicted, replaced by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.api_objects import Address, Selector
from support.api_server import ApiServer
from support.growths import GROWTHS, Listed, Pods
from support.growths import Replica as Memories
from support.managed_pods import NAMESPACE, PODS, UNSCHEDULABLE, a_raw_pod
from support.suspended_jobs import pins
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.parsing import parse_node, parse_object, parse_pod
from slopewise.adapters.kube.cache.records import MIGRATABLE, PLACE_GATE, ManagedPod
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.events import Event
from slopewise.adapters.kube.moves.evict.controller import EvictionController
from slopewise.adapters.kube.moves.gated_pods import GatedPodController
from slopewise.adapters.kube.moves.scheduling_gate import GateReleaser
from slopewise.adapters.kube.workloads.owners import Owners

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
STATEFUL_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
NODES = "/api/v1/nodes"
GATE = {"name": PLACE_GATE}
IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def a_raw_job(name: str = "train", *, uid: str = "", **spec: Any) -> dict[str, Any]:
    """A Job whose pods come back after an eviction: gated, never restarted in place, disruptions ignored."""
    template = {
        "metadata": {"labels": {"slopewise.dev/managed": "true"}},
        "spec": {"restartPolicy": "Never", "schedulingGates": [GATE], "containers": [{"name": "trainer"}]},
    }
    policy = {"rules": [IGNORE_DISRUPTION]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "uid": uid or f"uid-of-{name}"},
        "spec": {"template": template, "podFailurePolicy": policy, **spec},
        "status": {},
    }


class Stage:
    """A namespace on an API server, and the parts of a leader that move pods in it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.clock = FakeClock()
        self.leads = True
        self.leads_until: Callable[[], bool] = lambda: True
        self.events: list[Event] = []
        """What was reported to people."""
        self.wait: str | None = None
        """What the rate limit says."""
        self.moves_allowed = True
        """Whether the namespace opts in to moves."""
        self.api: Any = FencedApi(server.client(), lambda: self.leads and self.leads_until())
        self.pods = Listed(self.api, "/api/v1/pods", parse_pod)
        self.jobs = Listed(self.api, "/apis/batch/v1/jobs", parse_object)
        self.nodes = Listed(self.api, NODES, parse_node)
        for name in ("node-a", "node-b", "node-c"):
            self.put_node(name)
        self.restart()

    def restart(self) -> None:
        """Another controller process: everything that was only in memory is gone."""
        self.memories = Memories(self.api, Pods())
        self.owners = Owners(self.jobs, self.api, self.memories.job_growths.recorded)
        self.gate_releaser = GateReleaser(self.api, self.pods.observe)
        self.evictions = EvictionController(
            self.api, self.pods, self.nodes, self.owners, self.memories.job_growths, self.gate_releaser,
            lambda node, namespace: self.wait, self.clock, self.events.append,
        )  # fmt: skip
        self.gates = GatedPodController(
            self.api, self.pods, self.owners, self.gate_releaser,
            lambda node, namespace: self.wait, self.clock,
            reserved=self.evictions.reserved, on_stranded=self.evictions.give_up_node,
            may_evict_in=lambda _: self.moves_allowed, emit=self.events.append, act=self.memories.job_growths.act,
        )  # fmt: skip

    def history(self, name: str = "train") -> list[tuple[str, str]]:
        """The changes of a workload's history and their results, the oldest first."""
        self.memories.writer.write()
        status = self.server.get(f"{GROWTHS}/{name}")["status"]
        return [(each["change"], each["result"]) for each in status.get("history", ())]

    def tick(self, seconds: float = 0.5) -> None:
        """What the leader's keeper does, `seconds` later."""
        self.clock.seconds += seconds
        self.memories.writer.write()
        self.evictions.tick()
        self.gates.tick()
        self.memories.writer.write()

    # --- what others do ----------------------------------------------------------------------------------------

    def put_node(self, name: str, *taints: dict[str, str], ready: bool = True) -> None:
        """A node of two CPUs."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"allocatable": {"cpu": "2", "memory": "8Gi"}, "conditions": conditions}
        self.server.put(NODES, {"metadata": {"name": name}, "spec": {"taints": list(taints)}, "status": status})

    def put_job(self, name: str = "train", **more: Any) -> None:
        self.server.put(JOBS, a_raw_job(name, **more))

    def put_pod(
        self,
        name: str,
        *,
        owner: str | None = "train",
        kind: str = "Job",
        node: str | None = "node-a",
        gated: bool = False,
        phase: str = "",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        affinity: dict[str, Any] | None = None,
        created: str = "2026-01-01T00:00:00Z",
        conditions: tuple[dict[str, str], ...] = (),
    ) -> dict[str, Any]:
        """A pod of a Job; gated ones have no node. `owner` None: a bare pod."""
        raw = a_raw_pod(conditions=conditions)
        meta, spec = raw["metadata"], raw["spec"]
        meta |= {"name": name, "uid": f"uid-of-pod-{name}-{created}", "creationTimestamp": created}
        meta["annotations"] = {MIGRATABLE: "true", **(annotations or {})}
        meta["labels"] = {"slopewise.dev/managed": "true", **(labels or {})}
        if owner is not None:
            group = "batch/v1" if kind == "Job" else "apps/v1"
            reference = {"apiVersion": group, "kind": kind, "name": owner, "uid": f"uid-of-{owner}", "controller": True}
            meta["ownerReferences"] = [reference]
        if gated or node is None:
            del spec["nodeName"]
            raw["status"]["phase"] = "Pending"
            raw["status"]["containerStatuses"] = []
        else:
            spec["nodeName"] = node
        if gated:
            spec["schedulingGates"] = [GATE]
        if affinity is not None:
            spec["affinity"] = affinity
        raw["status"]["phase"] = phase or raw["status"]["phase"]
        return self.server.put(PODS, raw)

    def pod(self, name: str) -> dict[str, Any]:
        return self.server.get(f"{PODS}/{name}")

    def end(self, name: str, phase: str = "Failed") -> None:
        """The kubelet ends a pod that was signalled to end; it stays there, as a Job's does."""
        raw = self.pod(name)
        raw["status"]["phase"] = phase
        raw["metadata"].pop("deletionTimestamp", None)
        self.server.put(PODS, raw)

    def schedule(self, name: str, node: str) -> None:
        """The scheduler finds a node."""
        raw = self.pod(name)
        raw["spec"]["nodeName"] = node
        raw["status"]["phase"] = "Running"
        raw["status"]["conditions"] = []
        self.server.put(PODS, raw)

    def strand(self, name: str) -> None:
        """The scheduler finds none."""
        raw = self.pod(name)
        raw["status"]["conditions"] = [UNSCHEDULABLE]
        self.server.put(PODS, raw)

    def live(self) -> list[dict[str, Any]]:
        """The pods that have not ended."""
        found = self.server.objects.listed(Address.of(PODS), Selector())
        return [raw for raw in found if raw["status"]["phase"] not in ("Succeeded", "Failed")]

    def let_the_cluster_react(self, number: int) -> None:
        """Kubelets, the scheduler and the Job controller each do what is theirs; `number` names the next pod."""
        for raw in self.live():
            name = raw["metadata"]["name"]
            if "deletionTimestamp" in raw["metadata"]:
                self.end(name)
            elif "nodeName" not in raw["spec"] and not is_gated(raw):
                self.schedule(name, (pinned_nodes(raw) or ["node-c"])[0])
        if not self.live():
            self.put_pod(f"train-{number}", gated=True, created=f"2026-01-01T01:{number:02d}:00Z")

    # --- what is seen ------------------------------------------------------------------------------------------

    def find(self, job_uid: str) -> ManagedPod | None:
        """As a job index does."""
        found = self.owners.resolve(self.pods.items()).pods.get(job_uid)
        if found is None:
            return None
        identity, pod = found
        return ManagedPod(job_uid, identity.workload, identity.slot, pod, pod.containers[0])

    def evictions_sent(self, *, dry_run: bool = False) -> list[str]:
        """Names of the pods, in the order in which their evictions were sent."""
        return [
            request.body["metadata"]["name"]
            for request in self.server.asked("POST", "/eviction$")
            if bool(request.body["deleteOptions"].get("dryRun")) == dry_run
        ]

    def stored_move(self) -> dict[str, Any] | None:
        """`status.move` of the JobGrowth of `train`."""
        path = f"/apis/slopewise.dev/v1alpha1/namespaces/{NAMESPACE}/jobgrowths/train"
        move: dict[str, Any] | None = (self.server.get(path).get("status") or {}).get("move")
        return move


def is_gated(raw: dict[str, Any]) -> bool:
    return GATE in (raw["spec"].get("schedulingGates") or [])


def pinned_nodes(raw: dict[str, Any]) -> list[str]:
    """The nodes that required node affinity names, term by term."""
    return pins(raw["spec"].get("affinity"))


def wished_nodes(raw: dict[str, Any]) -> list[str]:
    """The nodes that preferred node affinity names, by us."""
    affinity = (raw["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    return [
        field["values"][0]
        for term in preferred
        for field in term["preference"].get("matchFields", [])
        if term["weight"] == 100
    ]
