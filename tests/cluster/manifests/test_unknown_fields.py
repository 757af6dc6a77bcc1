"""That the admission policies refuse what they do not name, also fields that no Kubernetes knows yet.

The same policies are put over a kind without a schema, whose objects take any field and any change: what is refused
there is refused by the policies alone. Each object is changed in each place, one change at a time beside what Slopewise
sends.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.accounts import ACCOUNT, SYSTEM, a_growth, refusal
from support.cluster import Kubectl
from support.field_changes import JSON_PATCH, Change, add, applied, of_unknown_fields, remove, replace
from support.rendering import MANIFESTS, Documents, render
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import AT_TARGET, FINALIZER, MANAGED_LABEL, MOVE, PLACE_GATE, STOP
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.protocol import Json, path_of
from slopewise.adapters.kube.events import REPORTING_CONTROLLER
from slopewise.adapters.kube.moves.node_predicates import pinned

GROUP = "tomorrow.slopewise.dev"
VERSION = f"{GROUP}/v1"
PLURAL = "anythings"
DRY = {"dryRun": "All"}

_NEAR = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}]}
_LIKES = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
_PIN = pinned({"nodeAffinity": _LIKES}, "a")["nodeAffinity"]


def _container(name: str, **more: Any) -> Json:
    cpu_and_memory = {"cpu": "1", "memory": "64Mi"}
    return {"name": name, "image": "a:1", "resources": {"limits": cpu_and_memory, "requests": cpu_and_memory}, **more}


def _trainer() -> Json:
    made = _container(
        "trainer",
        command=["a", "b"],
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        livenessProbe={"httpGet": {"port": 1}},
        securityContext={"privileged": False},
    )
    made["resources"]["claims"] = [{"name": "gpu"}]
    return made


def _pod_spec(**more: Any) -> Json:
    return {
        "containers": [_trainer(), _container("beside")],
        "initContainers": [_container("first"), _container("sidecar", restartPolicy="Always")],
        "ephemeralContainers": [{"name": "debugger"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "affinity": {"podAffinity": _NEAR, "nodeAffinity": _LIKES},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a"}],
        "serviceAccountName": "default",
        "activeDeadlineSeconds": 10,
        **more,
    }


def _metadata(name: str, **more: Any) -> Json:
    # Of a kind that is not there, or the garbage collector would take the object with its owner.
    owner = {"apiVersion": "example.org/v1", "kind": "Nothing", "name": "a", "uid": "1"}
    labels = {MANAGED_LABEL: "true", "example.org/a": "b"}
    annotations = {"example.org/a": "b"}
    return {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": [owner], **more}


def _anything(metadata: Json, **parts: Any) -> Json:
    return {"apiVersion": VERSION, "kind": "Anything", "metadata": metadata, **parts}


_JOB = {
    "parallelism": 1,
    "suspend": True,
    "selector": {"matchLabels": {"a": "b"}},
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
    "template": {"metadata": {"labels": {MANAGED_LABEL: "true"}, "annotations": {"a": "b"}}, "spec": _pod_spec()},
}
_STOPPING_JOB = {
    **_JOB,
    "suspend": False,
    "template": {
        "metadata": {"labels": {MANAGED_LABEL: "true"}, "annotations": {AT_TARGET: STOP}},
        "spec": _pod_spec(),
    },
}
_POD_STATUS = {"phase": "Running", "containerStatuses": [{"name": "trainer", "resources": {"limits": {"cpu": "1"}}}]}


@dataclass(frozen=True)
class Case:
    """A policy, an object that it watches over, what Slopewise sends and what else it may. Nothing sent: it is made."""

    policy: str
    document: Json
    sends: tuple[Change, ...] = ()
    may: str = "nothing else"
    metadata: tuple[Change, ...] = field(default_factory=lambda: METADATA)

    @property
    def makes(self) -> bool:
        return not self.sends

    def changes(self) -> Iterator[Change]:
        """What is tried: everything but what names the object itself."""
        after = applied(self.document, *self.sends)
        parts = {key: value for key, value in after.items() if key not in ("apiVersion", "kind", "metadata")}
        allowed = re.compile(self.may)
        yield from (each for each in of_unknown_fields(parts) if not allowed.fullmatch(str(each)))
        yield from self.metadata


METADATA: tuple[Change, ...] = (
    add("/metadata/labels/example.org~1tomorrow", "b"),
    replace("/metadata/labels/example.org~1a", "c"),
    remove("/metadata/labels/example.org~1a"),
    remove("/metadata/labels/slopewise.dev~1managed"),
    remove("/metadata/labels"),
    add("/metadata/annotations/example.org~1tomorrow", "b"),
    replace("/metadata/annotations/example.org~1a", "c"),
    remove("/metadata/annotations/example.org~1a"),
    remove("/metadata/ownerReferences"),
    replace("/metadata/ownerReferences/0/uid", "2"),
    add("/metadata/ownerReferences/0/blockOwnerDeletion", True),
    add("/metadata/finalizers", ["example.org/tomorrow"]),
    add("/metadata/generateName", "tomorrow-"),
)
"""Metadata has one schema for all kinds; these are the parts of it that a write may change."""

NEW_METADATA = (
    add("/metadata/labels", {"a": "b"}),
    add("/metadata/annotations", {"a": "b"}),
    add("/metadata/finalizers", ["example.org/tomorrow"]),
    add("/metadata/ownerReferences", [{"apiVersion": "example.org/v1", "kind": "Nothing", "name": "a", "uid": "2"}]),
    add("/metadata/generateName", "tomorrow-"),
)

_RESIZED = r"replace /spec/(containers/\d|initContainers/1)/resources/(limits|requests)/(cpu|memory)"
_NODE_AFFINITY = r"\w+ {}/affinity/nodeAffinity(/.*)?"
_GATED = _pod_spec(schedulingGates=[{"name": "example.org/quota"}, {"name": PLACE_GATE}])
_EVENT = {
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": REPORTING_CONTROLLER,
    "reportingInstance": "a",
    "action": "Resize",
    "reason": "Resized",
    "note": "a",
    "type": "Normal",
    "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "b", "uid": "1"},
}
_SAID = "|".join(key for key in _EVENT if key != "reportingController")
_LEADS = {"holderIdentity": "a", "leaseDurationSeconds": 1, "acquireTime": "a", "renewTime": "a", "leaseTransitions": 1}
_LEADS_MAY = rf"(replace|remove) /spec(/({'|'.join(_LEADS)}))?"

CASES = {
    "resize": Case(
        "slopewise-resize",
        _anything(_metadata("resize"), spec=_pod_spec(), status=_POD_STATUS),
        (replace("/spec/containers/0/resources/limits/cpu", "2"),),
        _RESIZED,
    ),
    "gate": Case(
        "slopewise-gates",
        _anything(_metadata("gate"), spec=_GATED, status={"phase": "Pending"}),
        (
            remove("/spec/schedulingGates/1"),
            replace("/spec/affinity/nodeAffinity", _PIN),
            add("/metadata/annotations/slopewise.dev~1placed", "a"),
        ),
        _NODE_AFFINITY.format("/spec"),
    ),
    "Job that runs": Case(
        "slopewise-jobs",
        _anything(_metadata("runs", ownerReferences=[]), spec={**_JOB, "suspend": False}, status={"active": 1}),
        (replace("/spec/suspend", True), add("/metadata/annotations/slopewise.dev~1move", "{}")),
        _NODE_AFFINITY.format("/spec/template/spec"),
        tuple(each for each in METADATA if "ownerReferences" not in each.path),
    ),
    "Job that stops": Case(
        "slopewise-jobs",
        _anything(_metadata("stops", ownerReferences=[]), spec=_STOPPING_JOB, status={"active": 1}),
        (replace("/spec/suspend", True), add("/metadata/annotations/slopewise.dev~1stopped", "{}")),
        metadata=tuple(each for each in METADATA if "ownerReferences" not in each.path),
    ),
    "Job that moves": Case(
        "slopewise-jobs",
        _anything(_metadata("moves", annotations={"example.org/a": "b", MOVE: "{}"}), spec=_JOB, status={"active": 0}),
        (replace("/spec/suspend", False), replace("/spec/template/spec/affinity/nodeAffinity", _PIN)),
        rf"{_NODE_AFFINITY.format('/spec/template/spec')}|(replace|remove) /spec/suspend",
    ),
    "finalizer": Case(
        "slopewise-policies",
        _anything(_metadata("policy"), spec={"mode": "Observe", "policy": {"name": "a"}}, status={"state": "a"}),
        (add("/metadata/finalizers", [FINALIZER]),),
        metadata=(
            *(each for each in METADATA if "finalizers" not in each.path),
            add("/metadata/finalizers/-", "example.org/tomorrow"),
        ),
    ),
    "JobGrowth": Case(
        "slopewise-growths",
        {**a_growth(), **_anything({"name": "growth", "ownerReferences": a_growth()["metadata"]["ownerReferences"]})},
        metadata=NEW_METADATA,
    ),
    "Event": Case(
        "slopewise-events",
        _anything({"name": "event"}, **_EVENT),
        may=rf"(replace|remove) /({_SAID})|(replace|remove) /regarding/\w+",
        metadata=NEW_METADATA,
    ),
    "Event again": Case(
        "slopewise-events",
        _anything(_metadata("again"), **_EVENT),
        (add("/series", {"count": 1, "lastObservedTime": "a"}),),
        r"(replace|remove) /series(/(count|lastObservedTime))?",
    ),
    "new Lease": Case(
        "slopewise-leases", _anything({"name": ACCOUNT}, spec=_LEADS), may=_LEADS_MAY, metadata=NEW_METADATA
    ),
    "Lease": Case(
        "slopewise-leases",
        _anything(_metadata(ACCOUNT), spec=_LEADS),
        (replace("/spec/holderIdentity", "b"),),
        _LEADS_MAY,
    ),
    "eviction": Case(
        "slopewise-evictions",
        _anything({"name": "eviction"}, deleteOptions={"preconditions": {"uid": "1"}, "dryRun": ["All"]}),
        may=r"replace /deleteOptions/preconditions/uid|\w+ /deleteOptions/dryRun(/.*)?",
        metadata=NEW_METADATA,
    ),
}


_MANY = [_container(f"c{n}", env=[{"name": f"E{m}", "value": "a" * 100} for m in range(40)]) for n in range(60)]
_CROWD = _pod_spec(containers=_MANY, initContainers=[{**each, "name": f"i{each['name']}"} for each in _MANY])
LARGE = {
    "resize": Case(
        "slopewise-resize",
        _anything(_metadata("resize"), spec=_CROWD),
        (replace("/spec/containers/59/resources/limits/cpu", "2"),),
    ),
    "gate": Case(
        "slopewise-gates",
        _anything(_metadata("gate"), spec={**_CROWD, "schedulingGates": [{"name": PLACE_GATE}]}),
        (remove("/spec/schedulingGates/0"),),
    ),
    "Job": Case(
        "slopewise-jobs",
        _anything(_metadata("moves", annotations={MOVE: "{}"}), spec={**_JOB, "template": {"spec": _CROWD}}),
        (replace("/spec/suspend", False),),
    ),
}
"""640 KB each, of the 1.5 MB that an API server stores: an expression may cost only so much."""


# --- the same policies over a kind without a schema -------------------------------------------------------------------

_SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "Anything", "plural": PLURAL},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": _SCHEMA}],
    },
}
_RIGHTS = {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["create", "patch"]}
_RBAC = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": f"{PLURAL}.{GROUP}"}}


def _moved_to_tomorrow() -> Documents:
    """Copies of the policies that watch over the kind without a schema, each over the objects of its cases."""
    names: dict[str, list[str]] = {}
    for case in CASES.values():
        names.setdefault(case.policy, []).append(case.document["metadata"]["name"])
    copies = []
    for document in render(MANIFESTS / "overlays/moves"):
        spec = copy.deepcopy(document.get("spec", {}))
        name = document["metadata"]["name"]
        if document["kind"] == "ValidatingAdmissionPolicy" and name in names:
            (rule,) = spec["matchConstraints"]["resourceRules"]
            rule |= {"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": [PLURAL]}
            of_a_case = {"name": "of-a-case", "expression": f"request.name in {names[name]}"}
            spec["matchConditions"] = [*spec.get("matchConditions", []), of_a_case]
        elif document["kind"] == "ValidatingAdmissionPolicyBinding" and name in names:
            spec["policyName"] = f"{name}-tomorrow"
        else:
            continue
        copies.append({**document, "metadata": {"name": f"{name}-tomorrow"}, "spec": spec})
    return copies


@pytest.fixture(scope="module")
def tomorrow(installed: Kubectl) -> Iterator[str]:
    """A namespace for objects without a schema, of a kind that the controller's account may write to."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{PLURAL}.{GROUP}"}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
    bundle = [
        {**_RBAC, "kind": "ClusterRole", "rules": [_RIGHTS]},
        {**_RBAC, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]},
        *_moved_to_tomorrow(),
    ]
    try:
        installed.apply(_DEFINITION)
        installed.run("wait", "--for=condition=Established", "--timeout=30s", "crd", f"{PLURAL}.{GROUP}")
        installed.apply(*bundle)
        with installed.own_namespace() as namespace:
            yield namespace
    finally:
        for document in (*bundle, _DEFINITION):
            installed.attempt("delete", "--ignore-not-found", document["kind"], document["metadata"]["name"])


@contextmanager
def _there(kubectl: Kubectl, namespace: str, case: Case) -> Iterator[None]:
    """The object that is changed, from entry to exit; none where one is made."""
    if case.makes:
        yield
        return
    kubectl.run("create", "-n", namespace, "-f", "-", stdin=json.dumps(case.document))
    yield
    kubectl.run("delete", PLURAL, case.document["metadata"]["name"], "-n", namespace)


def _refusal(api: KubeApi, namespace: str, case: Case, *more: Change) -> str:
    """What is said to what Slopewise sends with these changes beside it; empty where it is let through."""
    changes, collection = (*case.sends, *more), path_of(VERSION, PLURAL, namespace)
    if case.makes:
        return refusal(lambda: api.create(collection, applied(case.document, *changes), DRY))
    path = f"{collection}/{case.document['metadata']['name']}"
    return refusal(lambda: api.patch(path, [change.operation for change in changes], JSON_PATCH, DRY))


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_a_policy_refuses_each_field_that_it_does_not_name(
    installed: Kubectl, controller: KubeApi, tomorrow: str, case: Case
) -> None:
    a_change = case.metadata[0]

    def said() -> list[str]:
        return [_refusal(controller, tomorrow, case), _refusal(controller, tomorrow, case, a_change)]

    with _there(installed, tomorrow, case):
        wait_for("the copies are in force", said, lambda both: not both[0] and case.policy in both[1])
        answers = {str(change): _refusal(controller, tomorrow, case, change) for change in case.changes()}

    assert {change: answer for change, answer in answers.items() if f"'{case.policy}-tomorrow'" not in answer} == {}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in LARGE.items()])
def test_a_pod_of_120_containers_is_within_what_an_expression_may_cost(
    installed: Kubectl, controller: KubeApi, tomorrow: str, case: Case
) -> None:
    with _there(installed, tomorrow, case):
        wait_for("it is let through", lambda: _refusal(controller, tomorrow, case), lambda said: not said)
        refused = _refusal(controller, tomorrow, case, case.metadata[0])

    assert f"'{case.policy}-tomorrow'" in refused
    assert "metadata.labels" in refused
