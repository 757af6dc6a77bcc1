"""That the controller's account changes what Slopewise sends, and no other field that this API server knows.

Each field of the server's own schema is tried, so that those of a later Kubernetes are tried with it. All writes are
dry runs, which admission judges like any other.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from support.accounts import ACCOUNT, EARLIER, GROUP, SYSTEM, a_growth, a_lease, an_event, growths
from support.cluster import Kubectl, PodShape
from support.field_changes import JSON_PATCH, Change, Schemas, add, applied, changed_paths, remove, replace

from slopewise.adapters.kube.cache.records import API_VERSION, FINALIZER, MOVE, PLACE_GATE, PLACED
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Json, path_of
from slopewise.adapters.kube.moves.node_predicates import pinned

DRY = {"dryRun": "All"}
NOWHERE = "a-node-that-is-not-there"
OF_THE_SERVER = r"/apiVersion|/kind|/metadata/(managedFields|resourceVersion|generation|uid|creationTimestamp)"
"""What the API server itself says of a write, or of an object that a dry run has made."""

NODE_AFFINITY = r"/spec/affinity|/spec/affinity/nodeAffinity/.*"


@dataclass(frozen=True)
class Write:
    """One kind of write: how it is sent, and of what. `base`: what is changed, or made."""

    path: str
    base: Json
    sends: tuple[Change, ...]
    """What Slopewise sends, as far as it is said here: more than nothing, so that the rest is tried beside it."""
    may: str
    """Pointers of what may differ afterwards, as a regular expression."""
    kind: str
    schemas: str = "/api/v1"
    send: str = "patch"


def sent(api: KubeApi, write: Write, *more: Change) -> Json:
    """What the API server would make of it."""
    changes = (*write.sends, *more)
    if write.send == "patch":
        return api.patch(write.path, [change.operation for change in changes], JSON_PATCH, DRY)
    body = applied(write.base, *changes)
    return api.replace(write.path, body, DRY) if write.send == "replace" else api.create(write.path, body, DRY)


def let_through(api: KubeApi, write: Write, change: Change) -> Json | None:
    """What comes of it; None: it is refused, by whatever."""
    try:
        return sent(api, write, change)
    except ApiError as error:
        if error.status in (400, 403, 409, 422):
            return None
        raise


def slipped_through(api: KubeApi, schemas: Schemas, write: Write) -> dict[str, set[str]]:
    """Each change that was let through although more than what may differ does, and what that is."""
    allowed = re.compile(f"({write.may}|{OF_THE_SERVER})(/.*)?")
    expected = sent(api, write)
    found = {}
    for change in schemas.of_every_field(schemas.of_kind(write.kind), applied(write.base, *write.sends)):
        answer = None if allowed.fullmatch(change.path) else let_through(api, write, change)
        if answer is None:
            continue
        # An eviction's answer does not say what was sent: it counts as done.
        done = answer if answer["kind"] == write.kind else applied(write.base, *write.sends, change)
        before = expected if answer["kind"] == write.kind else applied(write.base, *write.sends)
        if beyond := {path for path in changed_paths(before, done) if not allowed.fullmatch(path)}:
            found[str(change)] = beyond
    return found


# --- what is written to -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage(installed: Kubectl, idle: PodShape) -> Iterator[str]:
    """A namespace with a running pod `managed`, a pod `gated`, and the Jobs `running` and `moving`."""
    shape = dataclasses.replace(idle, memory_request="48Mi", memory_limit="64Mi")
    nowhere = dataclasses.replace(shape, node=NOWHERE)
    sidecar = {**shape.pod("a")["spec"]["containers"][0], "name": "sidecar", "restartPolicy": "Always"}
    managed, gated, moving = shape.pod("managed"), shape.pod("gated"), nowhere.job("moving")
    managed["spec"]["initContainers"] = [sidecar]
    gated["spec"]["schedulingGates"] = [{"name": "example.org/quota"}, {"name": PLACE_GATE}]
    moving["metadata"]["annotations"] = {MOVE: "{}"}
    moving["spec"]["suspend"] = True
    for spec in (gated["spec"], moving["spec"]["template"]["spec"]):
        near = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
        preferred = [{"weight": 1, "podAffinityTerm": near}]
        spec["affinity"] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    with installed.own_namespace() as namespace:
        installed.apply(managed, gated, nowhere.job("running"), moving, namespace=namespace)
        installed.wait_running(namespace, "managed")
        yield namespace


@pytest.fixture(scope="module")
def training_policy(installed: Kubectl) -> Iterator[str]:
    """The name of a TrainingPolicy that observes pods that do not exist."""
    selector = {"pods": {"matchLabels": {"slopewise.dev/nobody": "true"}}}
    spec = {"mode": "Observe", "selector": selector}
    metadata = {"name": "known-fields-test"}
    installed.apply({"apiVersion": API_VERSION, "kind": "TrainingPolicy", "metadata": metadata, "spec": spec})
    yield "known-fields-test"
    installed.run("delete", "trainingpolicy", "known-fields-test")


Made = Callable[[KubeApi, str, str], Write]
"""Of the API as the controller sees it, the namespace and the policy's name."""


def _of_resize(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("v1", "pods", stage, "managed")
    cpu = replace("/spec/containers/0/resources/limits/cpu", "400m")
    may = r"/spec/(containers/0|initContainers/0)/resources/(limits|requests)/(cpu|memory)"
    return Write(f"{path}/resize", api.get(path), (cpu,), may, "Pod")


def _of_gate(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("v1", "pods", stage, "gated")
    pin = add("/spec/affinity/nodeAffinity", pinned(None, NOWHERE)["nodeAffinity"])
    sends = (remove("/spec/schedulingGates/1"), pin, add("/metadata/annotations", {PLACED: NOWHERE}))
    may = rf"{NODE_AFFINITY}|/metadata/annotations/slopewise.dev~1placed|/metadata/annotations"
    return Write(path, api.get(path), sends, may, "Pod")


def _of_job_that_runs(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("batch/v1", "jobs", stage, "running")
    sends = (replace("/spec/suspend", True), add("/metadata/annotations", {MOVE: "{}"}))
    return Write(path, api.get(path), sends, r"/metadata/annotations/slopewise.dev~1move", "Job", "/apis/batch/v1")


def _of_job_that_moves(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("batch/v1", "jobs", stage, "moving")
    pin = add("/spec/template/spec/affinity/nodeAffinity", pinned(None, NOWHERE)["nodeAffinity"])
    may = r"/spec/suspend|/metadata/annotations/slopewise.dev~1move|/metadata/annotations"
    may += r"|/spec/template/spec/affinity/nodeAffinity(/.*)?"
    return Write(path, api.get(path), (replace("/spec/suspend", False), pin), may, "Job", "/apis/batch/v1")


def _of_finalizer(api: KubeApi, _: str, name: str) -> Write:
    path = path_of(API_VERSION, "trainingpolicies", name=name)
    return Write(path, api.get(path), (add("/metadata/finalizers", [FINALIZER]),), "", "TrainingPolicy", GROUP)


def _of_policy_status(api: KubeApi, _: str, name: str) -> Write:
    path = path_of(API_VERSION, "trainingpolicies", name=name)
    sends = (add("/status", {"observedGeneration": 1}),)
    return Write(f"{path}/status", api.get(path), sends, "/status", "TrainingPolicy", GROUP)


def _of_growth(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("batch/v1", "jobs", stage, "running")
    return Write(
        growths(stage), a_growth(api.get(path)), (), "/spec/workload|/metadata/name", "JobGrowth", GROUP, "create"
    )


def _of_growth_status(api: KubeApi, stage: str, _: str) -> Write:
    body = a_growth(api.get(path_of("batch/v1", "jobs", stage, "running")), name="stored")
    made = api.create(growths(stage), body)
    sends = (add("/status", {"state": "Training"}),)
    return Write(f"{growths(stage)}/stored/status", made, sends, "/status", "JobGrowth", GROUP)


EVENTS = "/apis/events.k8s.io/v1"
WHAT_IS_SAID = "/(action|note|reason|reportingInstance|type|eventTime|metadata/name|regarding/.*)"


def _of_event(_: KubeApi, stage: str, __: str) -> Write:
    path = path_of("events.k8s.io/v1", "events", stage)
    return Write(path, an_event(stage), (), WHAT_IS_SAID, "Event", EVENTS, "create")


def _of_event_again(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("events.k8s.io/v1", "events", stage)
    made = api.create(path, an_event(stage))
    series = add("/series", {"count": 2, "lastObservedTime": EARLIER})
    return Write(f"{path}/managed.1", made, (series,), "/series", "Event", EVENTS)


LEASES = "coordination.k8s.io/v1"
WHO_LEADS = "/spec/(holderIdentity|leaseDurationSeconds|acquireTime|renewTime|leaseTransitions)"


def _of_new_lease(_: KubeApi, __: str, ___: str) -> Write:
    return Write(path_of(LEASES, "leases", SYSTEM), a_lease(), (), WHO_LEADS, "Lease", f"/apis/{LEASES}", "create")


def _of_lease(api: KubeApi, _: str, __: str) -> Write:
    made = api.create(path_of(LEASES, "leases", SYSTEM), a_lease())
    sends = (replace("/spec/holderIdentity", "b"),)
    return Write(
        path_of(LEASES, "leases", SYSTEM, ACCOUNT), made, sends, WHO_LEADS, "Lease", f"/apis/{LEASES}", "replace"
    )


def _of_eviction(api: KubeApi, stage: str, _: str) -> Write:
    path = path_of("v1", "pods", stage, "gated")
    options = {"preconditions": {"uid": api.get(path)["metadata"]["uid"]}, "dryRun": ["All"]}
    metadata = {"name": "gated", "namespace": stage}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
    # What the server takes off whatever is made does not show in its answer.
    taken_off = "/metadata/(namespace|selfLink|deletionTimestamp|deletionGracePeriodSeconds)"
    may = f"{taken_off}|/deleteOptions/(dryRun|preconditions/uid)"
    return Write(f"{path}/eviction", body, (), may, "Eviction", send="create")


WRITES: Mapping[str, Made] = {
    "resize": _of_resize,
    "gate": _of_gate,
    "Job that runs": _of_job_that_runs,
    "Job that moves": _of_job_that_moves,
    "finalizer": _of_finalizer,
    "status of a policy": _of_policy_status,
    "JobGrowth": _of_growth,
    "status of a JobGrowth": _of_growth_status,
    "Event": _of_event,
    "Event again": _of_event_again,
    "new Lease": _of_new_lease,
    "Lease": _of_lease,
    "eviction": _of_eviction,
}


@pytest.fixture(params=WRITES)
def write(
    request: pytest.FixtureRequest, installed: Kubectl, controller: KubeApi, stage: str, training_policy: str
) -> Iterator[Write]:
    """Each way in which the controller writes, one after the other."""
    had_lease = installed.attempt("get", "lease", ACCOUNT, "-n", SYSTEM).returncode == 0
    if had_lease and "Lease" in request.param:
        pytest.skip("a controller leads here, and its Lease is left alone")
    yield WRITES[request.param](controller, stage, training_policy)
    if not had_lease:
        installed.run("delete", "lease", ACCOUNT, "-n", SYSTEM, "--ignore-not-found")


def test_the_controller_changes_what_it_sends_and_no_other_field_that_the_server_knows(
    kubectl: Kubectl, controller: KubeApi, write: Write
) -> None:
    schemas = Schemas.read(_openapi(kubectl, write.schemas))

    assert slipped_through(controller, schemas, write) == {}


def _openapi(kubectl: Kubectl, group: str) -> Any:
    api = KubeApi.connect(kubeconfig=str(kubectl.kubeconfig))
    try:
        return api.get(f"/openapi/v3{group}")
    finally:
        api.close()
