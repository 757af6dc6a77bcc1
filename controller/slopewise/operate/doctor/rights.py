"""Checks the rights of the controller's account, by access reviews; nothing is changed.

Where the caller may create SubjectAccessReviews, as an administrator may, the account is the controller's. Elsewhere it
is the caller's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import COMPONENT, Api, Json
from slopewise.adapters.kube.connection import LEASE_NAME
from slopewise.operate.doctor.findings import Finding
from slopewise.reports.wording import listed

ACCOUNT = "slopewise-controller"
_REVIEWS = "/apis/authorization.k8s.io/v1"
_APPLY = "apply manifests/cluster and manifests/base"
_OURS = "slopewise.dev"
_LEASES = "leases"


class Need(NamedTuple):
    """Rights on one resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    without: str = ""
    """What is lost without them; empty: the controller does not work."""


NEEDS = (
    Need("", "pods", ("get", "list", "watch")),
    Need("", "pods/resize", ("patch",)),
    Need("", "nodes", ("list", "watch")),
    Need("", "namespaces", ("list", "watch")),
    Need("autoscaling", "horizontalpodautoscalers", ("list", "watch"), "jobs that are scaled by CPU are resized too"),
    Need("batch", "jobs", ("get", "list", "watch")),
    Need("apps", "deployments", ("get",), "the chain of owners ends there"),
    Need("apps", "replicasets", ("get",), "the chain of owners ends there"),
    Need("apps", "statefulsets", ("get",), "the chain of owners ends there"),
    Need("jobset.x-k8s.io", "jobsets", ("get",), "the chain of owners ends there"),
    Need("trainer.kubeflow.org", "trainjobs", ("get",), "the chain of owners ends there"),
    Need("kubeflow.org", "pytorchjobs", ("get",), "the chain of owners ends there"),
    Need(_OURS, "trainingpolicies", ("get", "list", "watch", "patch")),
    Need(_OURS, "trainingpolicies/status", ("patch",)),
    Need(_OURS, "jobgrowths", ("get", "list", "watch", "create", "delete")),
    Need(_OURS, "jobgrowths/status", ("patch",)),
    Need(_OURS, "freezes", ("list", "watch")),
    Need(_OURS, "freezes/status", ("patch",), "a Freeze shows no state"),
    Need("events.k8s.io", "events", ("create", "patch"), "no events are written"),
)
"""As manifests/cluster/controller-role.yaml grants them, which tests/manifests compares."""

LEASE_NEEDS = (Need("coordination.k8s.io", _LEASES, ("create", "get", "update")),)

MOVE_NEEDS = (
    Need("", "pods", ("patch",)),
    Need("", "pods/eviction", ("create",)),
    Need("batch", "jobs", ("patch",)),
    Need("policy", "poddisruptionbudgets", ("list",)),
    Need("", "persistentvolumeclaims", ("get",)),
    Need("", "persistentvolumes", ("get",)),
)

OF_THE_CLUSTER = frozenset(
    {
        "nodes", "namespaces", "trainingpolicies", "trainingpolicies/status", "freezes", "freezes/status",
        "persistentvolumes",
    }
)  # fmt: skip
"""They belong to no namespace: a controller of one namespace has no right to them, and does without."""


@dataclass(slots=True)
class Reviewer:
    """Reviews what an account may do."""

    api: Api
    account: str
    """A user's full name, such as `system:serviceaccount:slopewise-system:slopewise-controller`."""
    is_own: bool = False
    """The account of the caller is reviewed, because they may not review others."""

    @property
    def subject(self) -> str:
        """Whose rights these are."""
        return "your own account" if self.is_own else self.account

    def may(self, verb: str, need: Need, namespace: str | None) -> bool:
        """Whether the account has this right; ApiError where that is not reviewed."""
        resource, _, subresource = need.resource.partition("/")
        attributes = {"verb": verb, "group": need.group, "resource": resource, "subresource": subresource}
        if namespace is not None and need.resource not in OF_THE_CLUSTER:
            attributes["namespace"] = namespace
        if need.resource == _LEASES and verb != "create":  # an object that does not exist yet has no name to compare
            attributes["name"] = LEASE_NAME
        answer = self._review({name: value for name, value in attributes.items() if value})
        return (answer.get("status") or {}).get("allowed") is True

    def _review(self, attributes: dict[str, str]) -> Json:
        if not self.is_own:
            try:
                return self._create("SubjectAccessReview", {**_subject(self.account), "resourceAttributes": attributes})
            except ApiError as error:
                if not error.is_forbidden:
                    raise
                self.is_own = True
        return self._create("SelfSubjectAccessReview", {"resourceAttributes": attributes})

    def _create(self, kind: str, spec: Json) -> Json:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        return self.api.create(f"{_REVIEWS}/{kind.lower()}s", body)


def account_in(namespace: str) -> str:
    """The user name of the controller's service account."""
    return f"system:serviceaccount:{namespace}:{ACCOUNT}"


def check_rights(api: Api, namespace: str | None, lease_namespace: str, *, moves: bool) -> Iterator[Finding]:
    """`namespace`: the only one that is managed; `moves`: a policy moves running jobs."""
    reviewer = Reviewer(api, account_in(lease_namespace))
    needs = [each for each in NEEDS if namespace is None or each.resource not in OF_THE_CLUSTER]
    try:
        denied = [*_denied(reviewer, needs, namespace), *_denied(reviewer, LEASE_NEEDS, lease_namespace)]
        denied_moves = list(_denied(reviewer, MOVE_NEEDS, namespace)) if moves else []
    except ApiError as error:
        yield Finding("rights", "unchecked", f"the API server reviews no rights: {error}")
        return
    vital = [each for each in denied if not each.without]
    if vital:
        yield Finding("rights", "failed", f"{reviewer.subject} may not {_named(vital)}", _APPLY)
    for loss in dict.fromkeys(each.without for each in denied if each.without):
        lost = [each for each in denied if each.without == loss]
        yield Finding("rights", "note", f"{reviewer.subject} may not {_named(lost)}, so {loss}", _APPLY)
    if denied_moves:
        text = f"{reviewer.subject} may not {_named(denied_moves)}, so jobs are not moved"
        yield Finding("rights", "failed", text, COMPONENT)
    if not denied and not denied_moves:
        count = sum(len(each.verbs) for each in (*needs, *LEASE_NEEDS, *(MOVE_NEEDS if moves else ())))
        yield Finding("rights", "ok", f"{reviewer.subject} has all {count} rights")


def _denied(reviewer: Reviewer, needs: Iterable[Need], namespace: str | None) -> Iterator[Need]:
    """The needs with the verbs that are missing."""
    for need in needs:
        verbs = tuple(verb for verb in need.verbs if not reviewer.may(verb, need, namespace))
        if verbs:
            yield need._replace(verbs=verbs)


def _named(needs: Iterable[Need]) -> str:
    return listed((f"{', '.join(each.verbs)} {each.resource}" for each in needs), at_most=6)


def _subject(account: str) -> Json:
    _, _, namespace, _ = account.split(":")
    return {
        "user": account,
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
    }
