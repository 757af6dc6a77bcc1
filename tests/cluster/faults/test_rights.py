"""A right is taken away from the controller's account: nothing is half done, it is said, and it goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fault_stage import Stage
from support.waiting import wait_for

ACCOUNT = "controller"
MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
RBAC = "rbac.authorization.k8s.io/v1"


class Account:
    """A service account with the rights of `manifests/`, some of which can be taken away."""

    def __init__(self, stage: Stage) -> None:
        self._kubectl, self._namespace = stage.kubectl, stage.namespace
        self._rules = _rules(MANIFESTS / "cluster" / "controller-role.yaml", "ClusterRole")
        lease_rules = _rules(MANIFESTS / "base" / "lease-role.yaml", "Role")
        who = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": self._namespace}]
        self._kubectl.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}},
            {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": ACCOUNT}, "rules": lease_rules},
            _binding("RoleBinding", "Role", ACCOUNT, who),
            _binding("ClusterRoleBinding", "ClusterRole", self._namespace, who),
            namespace=self._namespace,
        )
        self.give_back()
        self.token = self._kubectl.run("create", "token", ACCOUNT, "-n", self._namespace, "--duration=10m").strip()

    def take_away(self, resource: str, *verbs: str) -> None:
        """These verbs on this resource."""
        rules = deepcopy(self._rules)
        for rule in rules:
            if resource in rule["resources"]:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb not in verbs]
        assert rules != self._rules
        self._apply([rule for rule in rules if rule["verbs"]])
        self._wait(resource, verbs, "no")

    def give_back(self) -> None:
        """All that the manifests give."""
        self._apply(self._rules)
        self._wait("pods/resize", ["patch"], "yes")

    def remove(self) -> None:
        """What does not go with the namespace."""
        for kind in ("clusterrolebinding", "clusterrole"):
            self._kubectl.run("delete", kind, self._namespace, "--ignore-not-found")

    def _apply(self, rules: list[dict[str, Any]]) -> None:
        metadata = {"name": self._namespace}
        self._kubectl.apply({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules})

    def _wait(self, resource: str, verbs: Sequence[str], answer: str) -> None:
        """Until the API server acts by it."""
        for verb in verbs:
            wait_for(f"can-i {verb} {resource}", partial(self._can_i, verb, resource), answer.__eq__)

    def _can_i(self, verb: str, resource: str) -> str:
        account = self._kubectl.as_account(self._namespace, ACCOUNT)
        return account.attempt("auth", "can-i", verb, *_words(resource), "-n", self._namespace).stdout.strip()


def _words(resource: str) -> list[str]:
    main, _, sub = resource.partition("/")
    return [main, f"--subresource={sub}"] if sub else [main]


def _rules(path: Path, kind: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return list(next(each for each in documents if each["kind"] == kind)["rules"])


def _binding(kind: str, role: str, name: str, who: list[dict[str, str]]) -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name}
    return {"apiVersion": RBAC, "kind": kind, "metadata": {"name": name}, "roleRef": reference, "subjects": who}


@pytest.fixture
def account(stage: Stage) -> Iterator[Account]:
    made = Account(stage)
    yield made
    made.remove()


def test_without_the_right_to_resize_it_says_so_and_goes_on_when_it_is_back(stage: Stage, account: Account) -> None:
    stage.pods("a", "b")
    controller = stage.controller(token=account.token)
    account.take_away("pods/resize", "patch")
    stage.policy()
    stage.wait_for_event("a", "ResizeFailed", "our account may not resize it")
    wait_for("it is shown", lambda: stage.growth("a").get("reason", ""), lambda it: "grant it patch" in it)
    assert controller.metric("slopewise_resizes_total", outcome="failed") >= 2
    stage.wait_for_condition("Degraded", "CannotDoAll")
    assert stage.limits() == {"a": 300, "b": 300}
    account.give_back()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    stage.wait_for_condition("Degraded", "AsExpected")
    account.take_away("pods/resize", "patch")
    stage.kubectl.run("delete", "trainingpolicy", stage.name("policy"), "--wait=false")
    stage.wait_for_event(stage.name("policy"), "RestoreFailed", "2 jobs")
    assert stage.limits() == {"a": 1000, "b": 1000}
    assert stage.originals().keys() == {"a", "b"}
    account.give_back()
    stage.wait_for_no_policy()
    assert stage.limits() == {"a": 300, "b": 300}
