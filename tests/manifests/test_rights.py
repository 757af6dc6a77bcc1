"""The roles allow what the controller and the sweeper send, as an API server receives it, and nothing else."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
from support.rendering import MANIFESTS, Documents, only, render
from support.requests_made import WRITES, Right, made_by_the_controller, made_by_the_sweeper

from slopewise.operate.doctor.rights import LEASE_NEEDS, MOVE_NEEDS, NEEDS, OF_THE_CLUSTER, Need

NOT_IN_A_NAMESPACE = {
    "nodes", "namespaces", "trainingpolicies", "trainingpolicies/status", "freezes", "freezes/status",
}  # fmt: skip


def rights(role: dict[str, Any]) -> set[Right]:
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_roles_allow_what_the_controller_sends(minimal: Documents) -> None:
    roles = only(minimal, "ClusterRole", "slopewise-controller"), only(minimal, "Role", "slopewise-lease")

    assert set().union(*map(rights, roles)) == made_by_the_controller(moves=False)


def test_doctor_checks_the_rights_that_the_roles_grant(minimal: Documents, moves: Documents) -> None:
    roles = only(minimal, "ClusterRole", "slopewise-controller"), only(minimal, "Role", "slopewise-lease")

    assert checked(NEEDS) == rights(roles[0])
    assert checked(LEASE_NEEDS) == rights(roles[1])
    assert checked(MOVE_NEEDS) == rights(only(moves, "ClusterRole", "slopewise-moves"))
    assert {each.resource for each in (*NEEDS, *MOVE_NEEDS)} & NOT_IN_A_NAMESPACE <= OF_THE_CLUSTER


def checked(needs: Iterable[Need]) -> set[Right]:
    return {(verb, need.group, need.resource) for need in needs for verb in need.verbs}


def test_moves_add_the_rights_that_they_need_and_change_none(minimal: Documents, moves: Documents) -> None:
    added = rights(only(moves, "ClusterRole", "slopewise-moves"))

    assert added == made_by_the_controller(moves=True) - made_by_the_controller(moves=False)
    assert rights(only(moves, "ClusterRole", "slopewise-sweeper")) == made_by_the_sweeper()
    assert [d for d in moves if d in minimal] == minimal


def test_every_right_to_write_is_one_that_the_tests_of_the_lease_know(moves: Documents) -> None:
    roles = (only(moves, "ClusterRole", name) for name in ("slopewise-controller", "slopewise-moves"))

    assert {right for role in roles for right in rights(role) if right[0] in OPERATIONS} == WRITES.keys()


def test_only_the_controller_and_the_sweeper_get_the_rights_of_moves(moves: Documents) -> None:
    bound = {d["roleRef"]["name"]: d["subjects"] for d in moves if d["kind"] == "ClusterRoleBinding"}

    assert [s["name"] for s in bound["slopewise-moves"]] == ["slopewise-controller"]
    assert [s["name"] for s in bound["slopewise-sweeper"]] == ["slopewise-sweeper"]
    assert {s["namespace"] for subjects in bound.values() for s in subjects} == {"slopewise-system"}


def test_the_namespaced_variant_has_the_same_rights_as_far_as_a_namespace_gives_them(minimal: Documents) -> None:
    documents = render(MANIFESTS / "overlays/namespaced")

    assert not [d for d in documents if d["kind"].startswith("Cluster")]
    assert rights(only(documents, "Role", "slopewise-controller")) == {
        right
        for right in rights(only(minimal, "ClusterRole", "slopewise-controller"))
        if right[2] not in NOT_IN_A_NAMESPACE
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
        "slopewise-freezes": {"slopewise-controller"},
        "slopewise-events": {"slopewise-controller"},
        "slopewise-leases": {"slopewise-controller"},
        "slopewise-gates": accounts,
        "slopewise-jobs": accounts,
        "slopewise-evictions": accounts,
    }


def test_a_resize_may_change_cpu_and_memory_and_add_no_memory(moves: Documents) -> None:
    expressions = [each["expression"] for each in admission(moves)["slopewise-resize"]["validations"]]
    lists = {found for each in expressions for found in re.findall(r"!\(key in \[([^]]*)\]\)", each)}

    assert lists == {"'limits', 'requests'", "'cpu', 'memory'"}
    assert "('memory' in old.?resources[?side].orValue({})) == ('memory' in new" in expressions[-1]


OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


def writes_of(roles: Documents) -> set[Right]:
    """What their holders may do to objects, as admission calls it."""
    return {
        (OPERATIONS[verb], group, resource)
        for role in roles
        for verb, group, resource in rights(role)
        if verb in OPERATIONS
    }


def narrowed_by(documents: Documents) -> set[Right]:
    """What the admission policies of an overlay look at."""
    return {
        (operation, group, resource)
        for spec in admission(documents).values()
        for rule in spec["matchConstraints"]["resourceRules"]
        for operation in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("variant", ["minimal", "moves"])
def test_every_right_to_write_has_its_admission_policy_where_it_is_installed(variant: str) -> None:
    documents = render(MANIFESTS / "overlays" / variant)
    ours = ("slopewise-controller", "slopewise-moves", "slopewise-sweeper", "slopewise-lease")
    roles = [d for d in documents if d["kind"] in ("Role", "ClusterRole") and d["metadata"]["name"] in ours]

    assert writes_of(roles) - narrowed_by(documents) == set()


def test_every_admission_policy_is_bound_and_refuses(moves: Documents) -> None:
    bindings = [d["spec"] for d in moves if d["kind"] == "ValidatingAdmissionPolicyBinding"]

    assert {binding["policyName"] for binding in bindings} == admission(moves).keys()
    assert all(binding["validationActions"] == ["Deny"] for binding in bindings)
    assert all(spec["failurePolicy"] == "Fail" for spec in admission(moves).values())
