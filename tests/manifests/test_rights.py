"""Each right of the controller has code that uses it, and each of these has its right."""

import re
from typing import Any

import pytest
from support.rendering import MANIFESTS, ROOT, Documents, only, render

Right = tuple[str, str, str]

KUBE, WATCHED = "controller/adapters/kube", "controller/cluster"
NEEDED: dict[Right, tuple[str, str]] = {
    ("get", "", "pods"): (f"{KUBE}/actuator.py", "self._api.get(_path(managed))"),
    ("list", "", "pods"): (WATCHED, '"pods"'),
    ("watch", "", "pods"): (WATCHED, '"pods"'),
    ("patch", "", "pods/resize"): (f"{KUBE}/actuator.py", "/resize"),
    ("list", "", "nodes"): (WATCHED, '"nodes"'),
    ("watch", "", "nodes"): (WATCHED, '"nodes"'),
    ("list", "", "namespaces"): (WATCHED, '"namespaces"'),
    ("watch", "", "namespaces"): (WATCHED, '"namespaces"'),
    ("list", "autoscaling", "horizontalpodautoscalers"): (WATCHED, '"horizontalpodautoscalers"'),
    ("watch", "autoscaling", "horizontalpodautoscalers"): (WATCHED, '"horizontalpodautoscalers"'),
    ("list", "", "limitranges"): (WATCHED, '"limitranges"'),
    ("watch", "", "limitranges"): (WATCHED, '"limitranges"'),
    ("list", "", "resourcequotas"): (WATCHED, '"resourcequotas"'),
    ("watch", "", "resourcequotas"): (WATCHED, '"resourcequotas"'),
    ("get", "batch", "jobs"): (f"{KUBE}/owners.py", '("batch", "Job"): "jobs"'),
    ("list", "batch", "jobs"): (WATCHED, '"jobs"'),
    ("watch", "batch", "jobs"): (WATCHED, '"jobs"'),
    ("get", "apps", "deployments"): (f"{KUBE}/owners.py", '"deployments"'),
    ("get", "apps", "replicasets"): (f"{KUBE}/owners.py", '"replicasets"'),
    ("get", "apps", "statefulsets"): (f"{KUBE}/owners.py", '"statefulsets"'),
    ("get", "jobset.x-k8s.io", "jobsets"): (f"{KUBE}/owners.py", '"jobsets"'),
    ("get", "trainer.kubeflow.org", "trainjobs"): (f"{KUBE}/owners.py", '"trainjobs"'),
    ("get", "kubeflow.org", "pytorchjobs"): (f"{KUBE}/owners.py", '"pytorchjobs"'),
    ("get", "slopewise.dev", "trainingpolicies"): (f"{KUBE}/policies.py", "api.get(policy_path(name))"),
    ("list", "slopewise.dev", "trainingpolicies"): (WATCHED, '"trainingpolicies"'),
    ("watch", "slopewise.dev", "trainingpolicies"): (WATCHED, '"trainingpolicies"'),
    ("patch", "slopewise.dev", "trainingpolicies"): (f"{KUBE}/policies.py", "api.patch(policy_path(name)"),
    ("patch", "slopewise.dev", "trainingpolicies/status"): (f"{KUBE}/status_writer.py", "/status"),
    ("get", "slopewise.dev", "jobgrowths"): (f"{KUBE}/growth_objects.py", "api.get("),
    ("list", "slopewise.dev", "jobgrowths"): (WATCHED, '"jobgrowths"'),
    ("watch", "slopewise.dev", "jobgrowths"): (WATCHED, '"jobgrowths"'),
    ("create", "slopewise.dev", "jobgrowths"): (f"{KUBE}/status_writer.py", "document.create(self._api)"),
    ("delete", "slopewise.dev", "jobgrowths"): (f"{KUBE}/status_writer.py", "self._api.delete(document.path"),
    ("patch", "slopewise.dev", "jobgrowths/status"): (f"{KUBE}/status_writer.py", "/status"),
    ("create", "events.k8s.io", "events"): (f"{KUBE}/events.py", "self._api.create(collection"),
    ("patch", "events.k8s.io", "events"): (f"{KUBE}/events.py", "self._api.patch(series.path"),
}
AT_HOME: dict[Right, tuple[str, str]] = {
    ("get", "coordination.k8s.io", "leases"): (f"{KUBE}/election.py", "self._api.get(self._path)"),
    ("create", "coordination.k8s.io", "leases"): (f"{KUBE}/election.py", "self._api.create(self._collection"),
    ("update", "coordination.k8s.io", "leases"): (f"{KUBE}/election.py", "self._api.replace(self._path"),
}
TO_MOVE: dict[Right, tuple[str, str]] = {
    ("patch", "", "pods"): (f"{KUBE}/opening.py", "self._api.patch("),
    ("create", "", "pods/eviction"): (f"{KUBE}/evicting.py", "/eviction"),
    ("patch", "batch", "jobs"): (f"{KUBE}/suspending.py", "self._api.patch("),
    ("list", "policy", "poddisruptionbudgets"): (f"{KUBE}/budgets.py", '"poddisruptionbudgets"'),
    ("get", "", "persistentvolumeclaims"): (f"{KUBE}/owner_reading.py", '"persistentvolumeclaims"'),
    ("get", "", "persistentvolumes"): (f"{KUBE}/owner_reading.py", '"persistentvolumes"'),
}
TO_SWEEP: dict[Right, tuple[str, str]] = {
    ("get", "", "pods"): (f"{KUBE}/opening.py", "self._api.get("),
    ("list", "", "pods"): (f"{WATCHED}/sweep.py", 'path_of("v1", "pods"'),
    ("patch", "", "pods"): (f"{KUBE}/opening.py", "self._api.patch("),
    ("create", "", "pods/eviction"): (f"{WATCHED}/sweep.py", "evict(self._api"),
    ("get", "batch", "jobs"): (f"{WATCHED}/sweep.py", "job = self._api.get("),
    ("list", "batch", "jobs"): (f"{WATCHED}/sweep.py", 'path_of("batch/v1", "jobs"'),
    ("patch", "batch", "jobs"): (f"{WATCHED}/sweep.py", "self._api.patch("),
    ("list", "", "nodes"): (f"{WATCHED}/sweep.py", 'path_of("v1", "nodes")'),
}
NOT_IN_A_NAMESPACE = {"nodes", "namespaces", "trainingpolicies", "trainingpolicies/status"}


def rights(role: dict[str, Any]) -> set[Right]:
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.fixture
def minimal() -> Documents:
    return render(MANIFESTS / "overlays/minimal")


@pytest.fixture
def moves() -> Documents:
    return render(MANIFESTS / "overlays/moves")


def test_the_controllers_rights_are_the_ones_that_are_needed(minimal: Documents) -> None:
    assert rights(only(minimal, "ClusterRole", "slopewise-controller")) == NEEDED.keys()
    assert rights(only(minimal, "Role", "slopewise-lease")) == AT_HOME.keys()


def test_moves_add_the_rights_that_they_need_and_change_none(minimal: Documents, moves: Documents) -> None:
    assert rights(only(moves, "ClusterRole", "slopewise-moves")) == TO_MOVE.keys()
    assert rights(only(moves, "ClusterRole", "slopewise-sweeper")) == TO_SWEEP.keys()
    assert not TO_MOVE.keys() & NEEDED.keys()
    assert [d for d in moves if d in minimal] == minimal


def test_only_the_controller_and_the_sweeper_get_the_rights_of_moves(moves: Documents) -> None:
    bound = {d["roleRef"]["name"]: d["subjects"] for d in moves if d["kind"] == "ClusterRoleBinding"}

    assert [s["name"] for s in bound["slopewise-moves"]] == ["slopewise-controller"]
    assert [s["name"] for s in bound["slopewise-sweeper"]] == ["slopewise-sweeper"]
    assert {s["namespace"] for subjects in bound.values() for s in subjects} == {"slopewise-system"}


@pytest.mark.parametrize(
    ("right", "use"), [*NEEDED.items(), *AT_HOME.items(), *TO_MOVE.items(), *TO_SWEEP.items()], ids=str
)
def test_each_right_is_used_by_code(right: Right, use: tuple[str, str]) -> None:
    where, text = use
    files = (ROOT / where).glob("*.py") if (ROOT / where).is_dir() else [ROOT / where]

    assert any(text in file.read_text(encoding="utf-8") for file in files), f"who still needs {' '.join(right)}?"


def test_the_namespaced_variant_has_the_same_rights_as_far_as_a_namespace_gives_them() -> None:
    documents = render(MANIFESTS / "overlays/namespaced")

    assert not [d for d in documents if d["kind"].startswith("Cluster")]
    assert rights(only(documents, "Role", "slopewise-controller")) == {
        right for right in NEEDED if right[2] not in NOT_IN_A_NAMESPACE
    }


def test_no_rule_says_everything(moves: Documents) -> None:
    roles = [document for document in moves if document["kind"] in ("Role", "ClusterRole")]

    assert len(roles) == 6
    assert not [role["metadata"]["name"] for role in roles if "*" in str(role["rules"])]


def test_only_one_lease_can_be_changed(minimal: Documents) -> None:
    rules = only(minimal, "Role", "slopewise-lease")["rules"]

    assert [rule.get("resourceNames") for rule in rules if rule["verbs"] != ["create"]] == [["slopewise-controller"]]


def test_tenants_may_look_and_only_platform_engineers_may_write(minimal: Documents) -> None:
    view, admin = (only(minimal, "ClusterRole", name) for name in ("slopewise-view", "slopewise-admin"))

    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert {verb for verb, *_ in rights(view)} == {"get", "list", "watch"}
    assert not [label for label in admin["metadata"]["labels"] if "aggregate" in label]
    assert ("create", "slopewise.dev", "trainingpolicies") in rights(admin)


def admission(documents: Documents) -> dict[str, dict[str, Any]]:
    """The specs of the admission policies, by name."""
    return {d["metadata"]["name"]: d["spec"] for d in documents if d["kind"] == "ValidatingAdmissionPolicy"}


def test_the_admission_policies_know_the_accounts_that_the_pods_run_as(moves: Documents) -> None:
    accounts = {d["metadata"]["name"] for d in moves if d["kind"] == "ServiceAccount"}
    about_us = {
        name: re.compile(expression)
        for name, spec in admission(moves).items()
        for condition in spec.get("matchConditions", [])
        for expression in re.findall(r"matches\('(.*)'\)", condition["expression"])
    }
    bound = {
        name: {account for account in accounts if pattern.search(f"system:serviceaccount:anywhere:{account}")}
        for name, pattern in about_us.items()
    }

    assert accounts == {"slopewise-controller", "slopewise-sweeper"}
    assert bound == {
        "slopewise-resize": {"slopewise-controller"},
        "slopewise-policies": {"slopewise-controller"},
        "slopewise-gates": accounts,
        "slopewise-jobs": accounts,
        "slopewise-evictions": accounts,
    }


def test_every_right_that_rbac_cannot_narrow_has_an_admission_policy(moves: Documents) -> None:
    narrowed = {
        resource
        for spec in admission(moves).values()
        for rule in spec["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    changes = {resource for verb, _, resource in TO_MOVE.keys() | TO_SWEEP.keys() if verb in ("patch", "create")}

    assert changes == {"pods", "pods/eviction", "jobs"}
    assert changes <= narrowed


def test_every_admission_policy_is_bound_and_refuses(moves: Documents) -> None:
    bindings = [d["spec"] for d in moves if d["kind"] == "ValidatingAdmissionPolicyBinding"]

    assert {binding["policyName"] for binding in bindings} == admission(moves).keys()
    assert all(binding["validationActions"] == ["Deny"] for binding in bindings)
    assert all(spec["failurePolicy"] == "Fail" for spec in admission(moves).values())
