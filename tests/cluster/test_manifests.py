"""What the API server of a real cluster says to manifests/: that all of it is valid, and what the controller may do."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.accounts import api_of_account, refusal
from support.cluster import Kubectl, PodShape, wait_for

from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.contracts import MERGE_PATCH, STRATEGIC_MERGE_PATCH

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
OVERLAYS = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())
SYSTEM = "slopewise-system"
ACCOUNT = "slopewise-controller"
GROUP = "/apis/slopewise.dev/v1alpha1"
OPERATOR_CRDS = Path(__file__).with_name("prometheus-operator-crds.yaml")
NOT_OURS = "a JobGrowth is the controller's memory"


def rendered(kubectl: Kubectl, folder: Path) -> list[dict[str, Any]]:
    result = subprocess.run([kubectl.program, "kustomize", folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(result.stdout))


def refused(kubectl: Kubectl, *arguments: str, stdin: str | None = None) -> str:
    """Why it was refused; empty when it was not."""
    done = kubectl.attempt(*arguments, stdin=stdin)
    return "" if done.returncode == 0 else done.stderr


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl, with all but the Deployment applied; left as it is where somebody had installed it."""
    was_there = bool(kubectl.run("get", "namespace", SYSTEM, "--ignore-not-found", "-o", "name"))
    objects = [d for d in rendered(kubectl, MANIFESTS / "overlays/minimal") if d["kind"] != "Deployment"]
    bundle = yaml.safe_dump_all(objects)
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=bundle)
    yield kubectl
    if not was_there:
        kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=bundle)


@pytest.fixture(scope="module")
def operators_kinds(kubectl: Kubectl) -> Iterator[None]:
    """PodMonitor and PrometheusRule, for a while where the cluster has no prometheus-operator."""
    was_there = not refused(kubectl, "get", "crd", "podmonitors.monitoring.coreos.com")
    if was_there:
        yield
        return
    kubectl.run("apply", "--server-side", "-f", str(OPERATOR_CRDS))
    kubectl.run("wait", "--for=condition=Established", "--timeout=30s", "-f", str(OPERATOR_CRDS))
    yield
    kubectl.run("delete", "-f", str(OPERATOR_CRDS))


@pytest.fixture(scope="module")
def controller(installed: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> KubeApi:
    """The API server as the controller sees it."""
    return api_of_account(installed, SYSTEM, ACCOUNT, tmp_path_factory.mktemp("account"))


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
    """The path of a TrainingPolicy that observes pods nobody has."""
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


def growths(namespace: str) -> str:
    return f"{GROUP}/namespaces/{namespace}/jobgrowths"


def growth(**metadata: Any) -> dict[str, Any]:
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1"}
    metadata = {"name": "a", **metadata}
    return {"apiVersion": "slopewise.dev/v1alpha1", "kind": "JobGrowth", "metadata": metadata,
            "spec": {"workload": workload}}  # fmt: skip


def resize(api: KubeApi, namespace: str, pod: str, **resources: dict[str, str]) -> str:
    """Why a resize of the pod's one container was refused; empty when it was not."""
    patch = {"spec": {"containers": [{"name": "trainer", "resources": resources}]}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/resize"
    return refusal(lambda: api.patch(path, patch, STRATEGIC_MERGE_PATCH))


@pytest.mark.usefixtures("operators_kinds")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_object_and_knows_every_field(
    installed: Kubectl, namespace: str, tmp_path: Path, overlay: str
) -> None:
    (tmp_path / "repository").symlink_to(MANIFESTS.parent)
    (tmp_path / "mine").mkdir()
    customisation = {"namespace": namespace, "resources": [f"../repository/manifests/overlays/{overlay}"]}
    (tmp_path / "mine/kustomization.yaml").write_text(yaml.safe_dump(customisation))
    objects = rendered(installed, tmp_path / "mine")

    validated = installed.run(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-",
        stdin=yaml.safe_dump_all(objects),
    )  # fmt: skip

    assert len(validated.splitlines()) == len(objects) >= 10


def test_the_server_finds_no_fault_in_the_expressions_of_the_admission_policies(installed: Kubectl) -> None:
    names = [
        document["metadata"]["name"]
        for document in rendered(installed, MANIFESTS / "cluster")
        if document["kind"] == "ValidatingAdmissionPolicy"
    ]

    def statuses() -> list[dict[str, Any]]:
        return [installed.get("validatingadmissionpolicy", name).get("status", {}) for name in names]

    checked = wait_for("types are checked", statuses, lambda found: all("typeChecking" in one for one in found))

    assert len(checked) == 3
    assert not any(status["typeChecking"].get("expressionWarnings") for status in checked)


def test_the_controller_changes_the_cpu_of_a_managed_pod(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape
) -> None:
    installed.apply(dataclasses.replace(idle, memory_limit="64Mi").pod("managed"), namespace=namespace)
    installed.wait_running(namespace, "managed")

    assert resize(controller, namespace, "managed", limits={"cpu": "400m"}) == ""
    assert resize(controller, namespace, "managed", requests={"cpu": "200m"}) == ""
    (container,) = installed.get("pod", "managed", "-n", namespace)["spec"]["containers"]
    assert (container["resources"]["limits"]["cpu"], container["resources"]["requests"]["cpu"]) == ("400m", "200m")


def test_the_controller_cannot_change_memory(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape
) -> None:
    shape = dataclasses.replace(idle, memory_request="48Mi", memory_limit="64Mi")
    installed.apply(shape.pod("managed"), namespace=namespace)
    installed.wait_running(namespace, "managed")
    changed = {"memory": "56Mi", "cpu": "300m"}

    for side in ("limits", "requests"):
        assert "the controller changes CPU and nothing else" in resize(
            controller, namespace, "managed", **{side: changed}
        )


def test_the_controller_cannot_add_a_memory_limit(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape
) -> None:
    installed.apply(idle.pod("managed"), namespace=namespace)
    installed.wait_running(namespace, "managed")

    answer = resize(controller, namespace, "managed", limits={"memory": "16Mi"})

    assert "the controller changes CPU and nothing else" in answer


def test_the_controller_cannot_touch_a_pod_whose_owner_has_not_opted_in(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape
) -> None:
    installed.apply(dataclasses.replace(idle, labels={}).pod("private"), namespace=namespace)
    installed.wait_running(namespace, "private")

    answer = resize(controller, namespace, "private", limits={"cpu": "400m"})

    assert 'only pods whose owner has labelled them slopewise.dev/managed: "true"' in answer


def test_an_account_of_the_same_name_elsewhere_is_held_to_the_same_purpose(
    installed: Kubectl, namespace: str, idle: PodShape, tmp_path: Path
) -> None:
    give_everything(installed, namespace, {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace})
    installed.run("create", "serviceaccount", ACCOUNT, "-n", namespace)
    namesake = api_of_account(installed, namespace, ACCOUNT, tmp_path)
    installed.apply(dataclasses.replace(idle, labels={}).pod("private"), namespace=namespace)
    installed.wait_running(namespace, "private")

    assert "has labelled them" in resize(namesake, namespace, "private", limits={"cpu": "400m"})


def test_the_controller_puts_its_finalizer_on_a_policy_and_takes_it_off(controller: KubeApi, policy: str) -> None:
    for finalizers in (["slopewise.dev/restore"], []):
        answer = controller.patch(policy, {"metadata": {"finalizers": finalizers}}, MERGE_PATCH)

        assert answer["metadata"].get("finalizers", []) == finalizers


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"mode": "Auto"}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.org/for-ever"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "1"}]}},
    ],
    ids=["spec", "labels", "annotations", "finalizers", "owners"],
)
def test_the_controller_cannot_change_what_platform_engineers_have_written(
    controller: KubeApi, policy: str, patch: dict[str, Any]
) -> None:
    answer = refusal(lambda: controller.patch(policy, patch, MERGE_PATCH))

    assert "the controller changes nothing of a TrainingPolicy but its finalizer" in answer


def test_the_controller_tells_how_a_policy_fares(controller: KubeApi, policy: str) -> None:
    answer = controller.patch(f"{policy}/status", {"status": {"observedGeneration": 1}}, MERGE_PATCH)

    assert answer["status"]["observedGeneration"] == 1


def test_the_controller_writes_the_memory_of_a_job_and_a_tenant_with_every_right_does_not(
    installed: Kubectl, controller: KubeApi, tenant: Kubectl, namespace: str
) -> None:
    ours, theirs = growths(namespace), ("jobgrowth", "a", "-n", namespace)
    status = {"status": {"state": "Training"}}
    forged = ("--subresource=status", "--type=merge", "-p", '{"status": {"state": "Finished"}}')

    assert NOT_OURS in refused(tenant, "create", "-n", namespace, "-f", "-", stdin=json.dumps(growth()))
    controller.create(ours, growth())
    controller.patch(f"{ours}/a/status", status, MERGE_PATCH)
    assert NOT_OURS in refused(tenant, "patch", *theirs, *forged)
    assert NOT_OURS in refused(tenant, "label", *theirs, "a=b")
    assert NOT_OURS in refused(tenant, "delete", *theirs)
    assert tenant.get(*theirs)["status"]["state"] == "Training"
    assert refused(installed, "delete", *theirs) == ""


def test_no_finalizer_of_the_controller_keeps_a_namespace_from_being_deleted(
    controller: KubeApi, namespace: str
) -> None:
    blocking = growth(finalizers=["example.org/for-ever"])

    assert "gives a JobGrowth no finalizers" in refusal(lambda: controller.create(growths(namespace), blocking))


def test_a_jobs_memory_goes_with_the_job_that_owns_it(
    installed: Kubectl, controller: KubeApi, namespace: str, idle: PodShape
) -> None:
    installed.apply(idle.job("training"), namespace=namespace)
    uid = installed.get("job", "training", "-n", namespace)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "training", "uid": uid, "blockOwnerDeletion": False}
    controller.create(growths(namespace), growth(ownerReferences=[owner]))

    installed.run("delete", "job", "training", "-n", namespace, "--cascade=foreground")

    installed.wait_gone("jobgrowth", "a", namespace)


def test_a_namespace_with_jobs_memories_can_be_deleted(installed: Kubectl, controller: KubeApi) -> None:
    installed.run("create", "namespace", "slopewise-test-leaving")
    controller.create(growths("slopewise-test-leaving"), growth())

    installed.run("delete", "namespace", "slopewise-test-leaving", "--wait=false")

    installed.wait_gone("namespace", "slopewise-test-leaving", "default")


def test_tenants_see_how_their_jobs_fare(installed: Kubectl, namespace: str) -> None:
    installed.run("create", "rolebinding", "viewer", "-n", namespace, "--clusterrole=view", "--user=viewer")
    viewer = dataclasses.replace(installed, arguments=("--as=viewer",))

    wait_for("`view` has it", lambda: refused(viewer, "get", "growth", "-n", namespace), lambda reason: not reason)
    assert "cannot create resource" in refused(viewer, "create", "-n", namespace, "-f", "-", stdin=json.dumps(growth()))


def rights(rules: list[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    """Each right by itself: verb, API group, resource, name (empty: any)."""
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        for name in rule.get("resourceNames", [""])
    }


def test_the_account_has_the_rights_that_are_written_down_and_no_other(
    installed: Kubectl, controller: KubeApi, namespace: str, tmp_path: Path
) -> None:
    installed.run("create", "serviceaccount", "anybody", "-n", namespace)
    everybodys = rights_in("default", api_of_account(installed, namespace, "anybody", tmp_path))
    roles = {
        (document["kind"], document["metadata"]["name"]): rights(document["rules"])
        for document in rendered(installed, MANIFESTS / "overlays/minimal")
        if document["kind"] in ("Role", "ClusterRole")
    }
    everywhere, at_home = roles["ClusterRole", ACCOUNT], roles["Role", "slopewise-lease"]

    assert rights_in("default", controller) - everybodys == everywhere
    assert rights_in(SYSTEM, controller) - everybodys == everywhere | at_home


def rights_in(namespace: str, api: KubeApi) -> set[tuple[str, str, str, str]]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    return rights(answer["status"]["resourceRules"])
