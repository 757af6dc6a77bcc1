"""A Job, its controller, a scheduler and kubelets on the small API server, for tests of moves that suspend Jobs.

    with ApiServer() as server:
        yard = Yard(server)
        yard.put_job()
        yard.work()                      # what Kubernetes does on its own, once
        yard.mover().begin(...)
        yard.settle(yard.follower())     # both in turn, until nothing changes any more

Everything happens when a test says so, and the clock stands still in between. `Yard.violations` holds what Kubernetes
would refuse and what no client may do: another template while the Job runs, two pods of one slot at the same time (on
nodes that are there).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from support.api_objects import Address, RefusedError, Selector
from support.api_server import ApiServer
from support.managed_pods import NAMESPACE, PODS, UNSCHEDULABLE, a_raw_pod
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.parsing import parse_node, parse_object, parse_pod
from slopewise.adapters.kube.cache.records import MOVE, ManagedPod, OwnerRef
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.moves.eviction import OnRefused, as_it_is
from slopewise.adapters.kube.moves.suspend.annotation import JobMove, move_on
from slopewise.adapters.kube.moves.suspend.begin import CONTROLLER_UID, JobMover
from slopewise.adapters.kube.moves.suspend.controller import SuspendedJobController
from slopewise.adapters.kube.moves.suspend.state_machine import MoveEnd
from slopewise.model import Migrate

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
NODES = "/api/v1/nodes"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
NAME = "train"
UID = "uid-of-train"
_SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
WISH: Json = {
    "podAntiAffinity": {"x": []},
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [_SSD]}}],
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [_SSD]}]},
    },
}
"""What an owner may have written."""

Parsed = TypeVar("Parsed")


class Stored(Generic[Parsed]):
    """A store that knows at once what the API server has; the same list as long as nothing has changed."""

    def __init__(self, server: ApiServer, collection: str, parse: Callable[[Json], Parsed]) -> None:
        self._server, self._at, self._parse = server, Address.of(collection), parse
        self._seen: tuple[int, Sequence[Parsed]] = (-1, ())
        self.synced = True
        self.silent = 0.0

    def silent_seconds(self) -> float:
        return self.silent

    def observe(self, obj: Json) -> None:
        """It knows that."""

    def items(self) -> Sequence[Parsed]:
        objects = self._server.objects
        with objects.changed:
            if self._seen[0] != objects.version:
                self._seen = (
                    objects.version,
                    tuple(self._parse(each) for each in objects.listed(self._at, Selector())),
                )
            return self._seen[1]

    def get(self, namespace: str, name: str) -> Parsed | None:
        at = Address(self._at.group, self._at.resource, namespace, name)
        try:
            return self._parse(self._server.objects.get(at))
        except RefusedError:
            return None


class Yard:
    """Two nodes, a namespace, and what Kubernetes does in them."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.leads = True
        self.api: Api = FencedApi(server.client(), lambda: self.leads)
        self.clock = FakeClock()
        self.wait: str | None = None
        """What the rate limit says."""
        self.full: set[str] = set()
        """Nodes without room for another pod."""
        self.lingering = False
        """Pods that are signalled to end take their time: a checkpoint, or a kubelet that is silent."""
        self.violations: list[str] = []
        self.reported: list[tuple[str, bool]] = []
        self.ended: list[MoveEnd] = []
        """What is kept in the Job's history."""
        self._templates: dict[str, Json] = {}
        self._pods_made = 0
        self.jobs = Stored(server, JOBS, parse_object)
        self.pods = Stored(server, PODS, parse_pod)
        self.nodes = Stored(server, NODES, parse_node)
        for name in ("node-a", "node-b"):
            self.put_node(name)

    # --- the parts under test --------------------------------------------------------------------------------

    def mover(self, api: Api | None = None, on_refused: OnRefused = as_it_is) -> JobMover:
        return JobMover(
            api or self.api, self.jobs, self.nodes, lambda node, namespace: self.wait, self.clock, self.jobs.observe,
            on_refused,
        )  # fmt: skip

    def follower(self, api: Api | None = None) -> SuspendedJobController:
        """As a new leader has it: nothing is remembered."""
        return SuspendedJobController(
            api or self.api, self.jobs, self.pods, self.nodes, self.clock, self._keep_reported, self.jobs.observe
        )  # fmt: skip

    def _keep_reported(self, move: JobMove, sentence: str, ended: MoveEnd | None, *, warning: bool) -> None:
        self.reported.append((sentence, warning))
        if ended is not None:
            self.ended.append(ended)

    def begin(
        self, mover: JobMover | None = None, to: str = "node-b", slot: str = "0", members: Sequence[str] = ()
    ) -> Any:
        """Ask for a move of the Job's pod in that slot."""
        managed = self.managed(slot)
        move = Migrate(managed.job_uid, managed.pod.node or "", to, "why")
        return (mover or self.mover()).begin(move, managed, "policy", members)

    def settle(self, follower: SuspendedJobController, seconds: float, step_seconds: float = 0.5) -> None:
        """Kubernetes and the follower in turn, for so long."""
        until = self.clock.seconds + seconds
        while self.clock.seconds < until:
            self.work()
            follower.tick()
            self.clock.seconds += step_seconds

    # --- what users and machines do --------------------------------------------------------------------------

    def put_node(self, name: str, **spec: Any) -> None:
        status = {"allocatable": {"cpu": "2", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}
        self.server.put(NODES, {"metadata": {"name": name, "labels": {"disk": "ssd"}}, "spec": spec, "status": status})

    def lose_node(self, name: str) -> None:
        if self.nodes.get("", name) is not None:
            self.server.remove(f"{NODES}/{name}")

    def put_job(
        self,
        *,
        affinity: Json | None = None,
        parallelism: int = 1,
        meta: Json | None = None,
        asks: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """`asks`: annotations of its template."""
        pod_spec: Json = {"restartPolicy": "OnFailure", "containers": [{"name": "trainer"}]}
        if affinity is not None:
            pod_spec["affinity"] = affinity
        template_meta: Json = {"labels": {"slopewise.dev/managed": "true"}, **({"annotations": asks} if asks else {})}
        template = {"metadata": template_meta, "spec": pod_spec}
        self.server.put(
            JOBS,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": NAME, "uid": UID, **(meta or {})},
                "spec": {"parallelism": parallelism, "template": template, **spec},
                "status": {},
            },
        )
        self.work()

    def change_job(self, change: Callable[[Json], object]) -> None:
        """What somebody else writes."""
        job = self.job
        change(job)
        self.server.put(JOBS, job)

    def end_pods(self) -> None:
        """Pods that linger have ended, and are gone."""
        for pod in self._raw_pods():
            if pod["metadata"].get("deletionTimestamp"):
                self.server.remove(f"{PODS}/{pod['metadata']['name']}")

    # --- what Kubernetes does --------------------------------------------------------------------------------

    def work(self) -> None:
        """The Job controller, the scheduler and the kubelets, once."""
        for job in self.server.objects.listed(Address.of(JOBS), Selector()):
            self._check_template(job)
            if not any(each["type"] == "Complete" for each in job["status"].get("conditions", ())):
                self._control(job)
        self._schedule()

    def _control(self, job: Json) -> None:
        live = [pod for pod in self._raw_pods() if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        suspended = bool(job["spec"].get("suspend"))
        for pod in live if suspended else ():
            self._delete(pod)
        if not suspended:
            staying = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
            for slot in range(len(staying), job["spec"]["parallelism"]):
                self._create(job, slot)
            alive = [pod for pod in live if self.nodes.get("", pod["spec"].get("nodeName", "node-a")) is not None]
            if len(alive) > job["spec"]["parallelism"]:
                self.violations.append(f"{len(alive)} pods at once")
        conditions = [{"type": "Suspended", "status": str(suspended)}]
        if job["status"].get("conditions") != conditions:
            self.server.put(JOBS, {**job, "status": {"conditions": conditions}})

    def _delete(self, pod: Json) -> None:
        if pod["spec"].get("nodeName") is None or not self.lingering:
            self.server.remove(f"{PODS}/{pod['metadata']['name']}")
        elif not pod["metadata"].get("deletionTimestamp"):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
            self.server.put(PODS, pod)

    def _create(self, job: Json, slot: int) -> None:
        self._pods_made += 1
        raw = a_raw_pod()
        uid = job["metadata"]["uid"]
        labels = {"slopewise.dev/managed": "true", CONTROLLER_UID: uid, "app": "training"}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": uid,
            "controller": True,
        }
        raw["metadata"] = {"name": f"{NAME}-{slot}-{self._pods_made}", "labels": labels, "ownerReferences": [owner]}
        raw["spec"] = {**copy.deepcopy(job["spec"]["template"]["spec"]), "containers": raw["spec"]["containers"]}
        raw["status"] = {"phase": "Pending"}
        self.server.put(PODS, raw)

    def _schedule(self) -> None:
        nodes = [node["metadata"]["name"] for node in self.server.objects.listed(Address.of(NODES), Selector())]
        for pod in self._raw_pods():
            if pod["spec"].get("nodeName") is not None:
                continue
            allowed = pins(pod["spec"].get("affinity")) or nodes
            fitting = [node for node in nodes if node in allowed and node not in self.full]
            if fitting:
                pod["spec"]["nodeName"] = fitting[0]
                pod["status"] = {"phase": "Running"}
            else:
                pod["status"]["conditions"] = [UNSCHEDULABLE]
            self.server.put(PODS, pod)

    def _check_template(self, job: Json) -> None:
        """It is frozen unless the Job had been seen to be suspended."""
        uid, template = job["metadata"]["uid"], job["spec"]["template"]
        before = self._templates.get(uid)
        stopped = {"type": "Suspended", "status": "True"} in job["status"].get("conditions", ())
        if before not in (None, template) and not stopped:
            self.violations.append("another template in a Job that runs")
        self._templates[uid] = copy.deepcopy(template)

    # --- what is seen ----------------------------------------------------------------------------------------

    @property
    def job(self) -> Json:
        return self.server.get(f"{JOBS}/{NAME}")

    @property
    def move(self) -> JobMove | None:
        return move_on(self.job)

    @property
    def annotated(self) -> bool:
        return MOVE in (self.job["metadata"].get("annotations") or {})

    @property
    def affinity(self) -> Json | None:
        found: Json | None = self.job["spec"]["template"]["spec"].get("affinity")
        return found

    @property
    def suspended(self) -> bool:
        return bool(self.job["spec"].get("suspend"))

    def running_on(self) -> list[str]:
        """Where its pods run."""
        return [pod["spec"]["nodeName"] for pod in self._raw_pods() if pod["status"]["phase"] == "Running"]

    def managed(self, slot: str = "0") -> ManagedPod:
        pod = next(pod for pod in self.pods.items() if pod.name.startswith(f"{NAME}-{slot}-"))
        return ManagedPod(f"{UID}:{slot}", OwnerRef("batch/v1", "Job", NAME, UID), slot, pod, pod.containers[0])

    def patches(self) -> list[Json]:
        """Of the Job, in the order in which they came."""
        return [request.body for request in self.server.asked("PATCH", f"/jobs/{NAME}$")]

    def _raw_pods(self) -> list[Json]:
        return self.server.objects.listed(Address.of(PODS), Selector())


def left_behind(to_node: str) -> Json:
    """A Job on its way to a node, whose controller was killed when its last pod had ended."""
    move = JobMove(
        workload_uid=UID, namespace=NAMESPACE, name=NAME, step="leaving", from_node="node-b", to_node=to_node,
        since_seconds=1.0, step_since_seconds=1.0, policy="p", job_uids=(f"{UID}:0",),
    )  # fmt: skip
    return {
        "metadata": {"name": NAME, "uid": UID, "annotations": {MOVE: move.written()}},
        "spec": {"suspend": True, "template": {"spec": {"containers": []}}},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }


def pins(affinity: Json | None) -> list[str]:
    """The nodes that required node affinity names, if it does."""
    required = ((affinity or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return [
        field["values"][0] for term in required.get("nodeSelectorTerms", ()) for field in term.get("matchFields", ())
    ]


class Frozen:
    """An API server that never takes another template."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def patch(self, path: str, body: Any, content_type: str, params: Any = None) -> Json:
        if "template" in body.get("spec", {}):
            raise ApiError(422, "Invalid", "spec.template: Invalid value: field is immutable")
        return self._api.patch(path, body, content_type, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)
