"""What the API server refuses to the controller's account, and to tenants with every right in their namespace."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.accounts import ACCOUNT, GROUP, SYSTEM, a_growth, a_lease, an_event, api_of_account, growths, refusal
from support.cluster import Kubectl, PodShape
from support.waiting import wait_for

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Json, path_of

NOT_OURS = "a JobGrowth is the controller's memory"


def refused(kubectl: Kubectl, *arguments: str, stdin: str | None = None) -> str:
    """Why it was refused; empty when it was not."""
    done = kubectl.attempt(*arguments, stdin=stdin)
    return "" if done.returncode == 0 else done.stderr


@pytest.fixture
def tenant(installed: Kubectl, namespace: str) -> Kubectl:
    """kubectl as somebody who may do everything in the test's namespace, custom resources included."""
    user = {"kind": "User", "name": "tenant", "apiGroup": "rbac.authorization.k8s.io"}
    give_everything(installed, namespace, user)
    return dataclasses.replace(installed, arguments=("--as=tenant",))


def give_everything(kubectl: Kubectl, namespace: str, subject: dict[str, str]) -> None:
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "everything"}}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "everything"}
    kubectl.apply({**rbac, "kind": "Role", "rules": [rule]}, namespace=namespace)
    kubectl.apply({**rbac, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]}, namespace=namespace)


@pytest.fixture
def policy(installed: Kubectl) -> Iterator[str]:
    """The path of a TrainingPolicy that observes pods that do not exist."""
    document = {
        "apiVersion": "slopewise.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": "manifests-test"},
        "spec": {"mode": "Observe", "selector": {"pods": {"matchLabels": {"slopewise.dev/nobody": "true"}}}},
    }
    installed.apply(document)
    yield f"{GROUP}/trainingpolicies/manifests-test"
    installed.run("patch", "trainingpolicy", "manifests-test", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    installed.run("delete", "trainingpolicy", "manifests-test")


def resize(api: KubeApi, namespace: str, pod: str, **resources: dict[str, str]) -> str:
    """Why a resize of the pod's one container was refused; empty when it was not."""
    patch = {"spec": {"containers": [{"name": "trainer", "resources": resources}]}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/resize"
    return refusal(lambda: api.patch(path, patch, STRATEGIC_MERGE_PATCH))


@pytest.mark.parametrize("side", ["limits", "requests"])
def test_the_controller_cannot_add_a_memory_request_or_limit(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape, side: str
) -> None:
    pod = dataclasses.replace(idle, memory_request="48Mi").pod("managed")
    if side == "requests":
        (container,) = pod["spec"]["containers"]
        container["resources"]["requests"].pop("memory")
    installed.apply(pod, namespace=namespace)
    installed.wait_running(namespace, "managed")

    answer = resize(controller, namespace, "managed", **{side: {"memory": "56Mi"}})

    assert "adds none of memory" in answer


def test_the_controller_cannot_touch_a_pod_whose_owner_has_not_opted_in(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape
) -> None:
    installed.apply(dataclasses.replace(idle, labels={}).pod("private"), namespace=namespace)
    installed.wait_running(namespace, "private")

    answer = resize(controller, namespace, "private", limits={"cpu": "400m"})

    assert "only pods whose owner has labelled them slopewise.dev/managed" in answer


def test_an_account_of_the_same_name_elsewhere_is_held_to_the_same_purpose(
    installed: Kubectl, namespace: str, idle: PodShape, tmp_path: Path
) -> None:
    give_everything(installed, namespace, {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace})
    installed.run("create", "serviceaccount", ACCOUNT, "-n", namespace)
    namesake = api_of_account(installed, namespace, ACCOUNT, tmp_path)
    installed.apply(dataclasses.replace(idle, labels={}).pod("private"), namespace=namespace)
    installed.wait_running(namespace, "private")

    assert "has labelled them" in resize(namesake, namespace, "private", limits={"cpu": "400m"})


def test_the_controller_cannot_change_what_platform_engineers_have_written(controller: KubeApi, policy: str) -> None:
    answer = refusal(lambda: controller.patch(policy, {"spec": {"mode": "Auto"}}, MERGE_PATCH))

    assert "of a TrainingPolicy but its" in answer


@pytest.fixture
def job(installed: Kubectl, namespace: str, idle: PodShape) -> Json:
    """A Job `training`."""
    installed.apply(idle.job("training"), namespace=namespace)
    return dict(installed.get("job", "training", "-n", namespace))


def test_the_controller_writes_the_memory_of_a_job_and_a_tenant_with_every_right_does_not(
    installed: Kubectl, controller: KubeApi, tenant: Kubectl, namespace: str, job: Json
) -> None:
    ours, theirs = growths(namespace), ("jobgrowth", "a", "-n", namespace)
    status = {"status": {"state": "Training"}}
    forged = ("--subresource=status", "--type=merge", "-p", '{"status": {"state": "Finished"}}')

    assert NOT_OURS in refused(tenant, "create", "-n", namespace, "-f", "-", stdin=json.dumps(a_growth(job)))
    made = controller.create(ours, a_growth(job))
    controller.patch(f"{ours}/a/status", status, MERGE_PATCH)
    assert NOT_OURS in refused(tenant, "patch", *theirs, *forged)
    assert NOT_OURS in refused(tenant, "label", *theirs, "a=b")
    assert NOT_OURS in refused(tenant, "delete", *theirs)
    assert tenant.get(*theirs)["status"]["state"] == "Training"
    assert "by its uid" in refusal(lambda: controller.delete(f"{ours}/a"))
    meant = {"preconditions": {"uid": made["metadata"]["uid"]}}
    assert "by its uid" in refusal(lambda: controller.delete(f"{ours}/a", {**meant, "gracePeriodSeconds": 0}))
    assert refusal(lambda: controller.delete(f"{ours}/a", meant)) == ""


def test_an_administrator_deletes_a_jobs_memory(
    installed: Kubectl, controller: KubeApi, namespace: str, job: Json
) -> None:
    controller.create(growths(namespace), a_growth(job))

    assert refused(installed, "delete", "jobgrowth", "a", "-n", namespace) == ""


def test_the_controller_labels_a_jobs_memory_with_its_study_and_with_nothing_else(
    controller: KubeApi, namespace: str, job: Json
) -> None:
    labelled = a_growth(job, labels={"slopewise.dev/study": "sweep", "team": "a"})
    refused_for = refusal(lambda: controller.create(growths(namespace), labelled))
    assert "nothing else, not metadata.labels.team" in refused_for

    trial = a_growth(job, labels={"slopewise.dev/study": "sweep"})
    assert refusal(lambda: controller.create(growths(namespace), trial)) == ""


def test_a_jobs_memory_goes_with_the_job_that_owns_it(
    installed: Kubectl, controller: KubeApi, namespace: str, job: Json
) -> None:
    controller.create(growths(namespace), a_growth(job))

    installed.run("delete", "job", "training", "-n", namespace, "--cascade=foreground")

    installed.wait_gone("jobgrowth", "a", namespace)


def test_a_namespace_with_jobs_memories_can_be_deleted(installed: Kubectl, controller: KubeApi, idle: PodShape) -> None:
    leaving = "slopewise-test-leaving"
    installed.run("create", "namespace", leaving)
    installed.apply(dataclasses.replace(idle, node="nowhere").job("training"), namespace=leaving)
    controller.create(growths(leaving), a_growth(installed.get("job", "training", "-n", leaving)))

    installed.run("delete", "namespace", leaving, "--wait=false")

    installed.wait_gone("namespace", leaving, "default")


def test_the_controller_speaks_for_no_other_controller(installed: Kubectl, controller: KubeApi, namespace: str) -> None:
    events = path_of("events.k8s.io/v1", "events", namespace)
    theirs = {**an_event(namespace), "reportingController": "example.org/another"}
    installed.run("create", "-f", "-", stdin=json.dumps(theirs))
    kept = {"metadata": {"finalizers": ["example.org/for-ever"]}}

    for attempt in (
        lambda: controller.create(events, {**theirs, "metadata": {"name": "forged"}}),
        lambda: controller.patch(f"{events}/managed.1", kept, MERGE_PATCH),
    ):
        assert "only Events that say slopewise.dev/controller reports them" in refusal(attempt)


def test_the_controller_makes_no_lease_but_the_one_of_its_election(controller: KubeApi) -> None:
    leases = path_of("coordination.k8s.io/v1", "leases", SYSTEM)
    another = {**a_lease(), "metadata": {"name": "another"}}

    assert "one Lease, slopewise-controller" in refusal(lambda: controller.create(leases, another, {"dryRun": "All"}))


def test_tenants_see_how_their_jobs_fare(installed: Kubectl, namespace: str) -> None:
    installed.run("create", "rolebinding", "viewer", "-n", namespace, "--clusterrole=view", "--user=viewer")
    viewer = dataclasses.replace(installed, arguments=("--as=viewer",))

    wait_for("`view` has it", lambda: refused(viewer, "get", "growth", "-n", namespace), lambda reason: not reason)
    assert "cannot create resource" in refused(
        viewer, "create", "-n", namespace, "-f", "-", stdin=json.dumps(a_growth())
    )
