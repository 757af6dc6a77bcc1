import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.rendering import MANIFESTS, OVERLAYS, ROOT, Documents, mounted, only, render, render_mine
from typer.main import get_command

from slopewise.commands.app import app
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import validate
from slopewise.policies import find

UID = 65532
EVERYWHERE = [*["ConfigMap"] * 5, "Deployment", "NetworkPolicy", "Service", "ServiceAccount"]
IN_THE_CLUSTER = [
    *EVERYWHERE, "ClusterRole", "ClusterRole", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
    "CustomResourceDefinition", "CustomResourceDefinition", "Namespace", "Role", "RoleBinding",
    *["ValidatingAdmissionPolicy"] * 6, *["ValidatingAdmissionPolicyBinding"] * 6,
]  # fmt: skip
KINDS = {
    "minimal": IN_THE_CLUSTER,
    "high-availability": [*IN_THE_CLUSTER, "PodDisruptionBudget"],
    "moves": [
        *IN_THE_CLUSTER,
        "ClusterRole",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterRoleBinding",
        "CronJob",
        "NetworkPolicy",
        "ServiceAccount",
        *["ValidatingAdmissionPolicy"] * 4,
        *["ValidatingAdmissionPolicyBinding"] * 4,
    ],
    "prometheus-operator": [*IN_THE_CLUSTER, "PodMonitor", "PodMonitor", "PrometheusRule"],
    "namespaced": [*EVERYWHERE, "ConfigMap", "Role", "Role", "RoleBinding", "RoleBinding"],
}
OF_THE_CLUSTER = {
    "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding", "Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> Documents:
    return render(MANIFESTS / "overlays" / str(request.param))


@pytest.fixture
def deployment(overlay: Documents) -> dict[str, Any]:
    spec: dict[str, Any] = only(overlay, "Deployment")["spec"]
    return spec


@pytest.fixture
def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


@pytest.fixture(params=[*OVERLAYS, "the sweeper"])
def started(request: pytest.FixtureRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod of an overlay's controller, or of the sweeper, and its account."""
    name, sweeps = str(request.param), request.param == "the sweeper"
    documents = render(MANIFESTS / "overlays" / ("moves" if sweeps else name))
    spec = only(documents, "CronJob" if sweeps else "Deployment")["spec"]
    template = spec["jobTemplate"]["spec"]["template"] if sweeps else spec["template"]
    account = only(documents, "ServiceAccount", "slopewise-sweeper" if sweeps else "slopewise-controller")
    return template["spec"], account


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_has_what_it_needs_and_no_more(name: str) -> None:
    documents = render(MANIFESTS / "overlays" / name)

    assert sorted(document["kind"] for document in documents) == sorted(KINDS[name])


def test_everything_says_that_it_is_part_of_slopewise(overlay: Documents, deployment: dict[str, Any]) -> None:
    ours = {"app.kubernetes.io/name": "slopewise", "app.kubernetes.io/part-of": "slopewise"}

    for labelled in (*overlay, deployment["template"]):
        assert ours.items() <= labelled["metadata"]["labels"].items(), labelled["metadata"]


def test_the_pods_of_our_own_namespace_must_be_restricted(minimal: Documents) -> None:
    namespace = only(minimal, "Namespace")["metadata"]

    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert namespace["name"] == only(minimal, "Deployment")["metadata"]["namespace"]


def test_the_pod_passes_the_restricted_pod_security_standard(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["privileged"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {kind for volume in pod["volumes"] for kind in volume} <= {"name", "configMap", "emptyDir"}


def test_the_pod_runs_as_the_user_of_the_image(pod: dict[str, Any]) -> None:
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (UID, UID)
    assert f"USER {UID}:{UID}" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_only_tmp_can_be_written(pod: dict[str, Any], container: dict[str, Any]) -> None:
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}

    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert writable == {"/tmp"}
    assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume)


def test_the_token_is_in_its_pod_alone(started: tuple[dict[str, Any], dict[str, Any]]) -> None:
    pod, account = started

    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is True
    assert account["automountServiceAccountToken"] is False


def test_memory_is_bounded_and_cpu_is_not(container: dict[str, Any]) -> None:
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}


def test_the_command_line_knows_every_flag_that_a_pod_is_started_with(
    started: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    (container,) = started[0]["containers"]
    command = get_command(app).commands[container["args"][0]]  # type: ignore[attr-defined]
    known = {flag for parameter in command.params for flag in parameter.opts}

    assert {argument.split("=")[0] for argument in container["args"][1:]} <= known


def test_prometheus_and_the_lease_are_named_by_the_environment(overlay: Documents, container: dict[str, Any]) -> None:
    environment = {variable["name"]: variable["valueFrom"] for variable in container["env"]}
    settings = only(overlay, "ConfigMap", "slopewise-settings")

    assert environment["PROMETHEUS_URL"]["configMapKeyRef"]["name"] == settings["metadata"]["name"]
    assert settings["data"]["PROMETHEUS_URL"].startswith("http://")
    assert environment["POD_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert environment["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize(
    ("probe", "path"), [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")]
)
def test_a_probe_asks_the_port_that_is_served(container: dict[str, Any], probe: str, path: str) -> None:
    (port,) = container["ports"]

    assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert port["containerPort"] == 8080


def test_what_selects_the_controllers_pods_finds_them(overlay: Documents, deployment: dict[str, Any]) -> None:
    labels = deployment["template"]["metadata"]["labels"].items()
    selectors = [
        deployment["selector"]["matchLabels"],
        only(overlay, "Service")["spec"]["selector"],
        only(overlay, "NetworkPolicy", "slopewise-controller")["spec"]["podSelector"]["matchLabels"],
        *(d["spec"]["selector"]["matchLabels"] for d in overlay if d["kind"] == "PodDisruptionBudget"),
        *(d["spec"]["selector"]["matchLabels"] for d in overlay if d["metadata"]["name"] == "slopewise-controller"
          and d["kind"] == "PodMonitor"),
    ]  # fmt: skip

    assert all(selector and selector.items() <= labels for selector in selectors)


def test_the_service_leads_prometheus_to_the_controllers_port(overlay: Documents, container: dict[str, Any]) -> None:
    service = only(overlay, "Service")
    (port,) = service["spec"]["ports"]

    assert port["targetPort"] in {served["name"] for served in container["ports"]}
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(port["port"])


def test_the_network_policy_lets_out_no_more_than_the_api_server_prometheus_and_dns(minimal: Documents) -> None:
    spec = only(minimal, "NetworkPolicy")["spec"]
    ports = [[port["port"] for port in rule["ports"]] for rule in spec["egress"]]
    anywhere = [rule for rule in spec["egress"] if "to" not in rule]

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert sorted(ports) == [[53, 53], [443, 6443], [9090]]
    assert [[port["port"] for port in rule["ports"]] for rule in anywhere] == [[443, 6443]]


def test_a_rollout_starts_the_new_replica_before_the_old_one_ends(deployment: dict[str, Any]) -> None:
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_high_availability_is_two_replicas_apart_of_which_a_drain_takes_one() -> None:
    documents = render(MANIFESTS / "overlays/high-availability")
    spec = only(documents, "Deployment")["spec"]
    affinity = spec["template"]["spec"]["affinity"]["podAntiAffinity"]
    terms = [wish["podAffinityTerm"] for wish in affinity["preferredDuringSchedulingIgnoredDuringExecution"]]

    assert spec["replicas"] == 2
    assert [term["topologyKey"] for term in terms] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert all(term["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"] for term in terms)
    assert only(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_prometheus_scrapes_every_trainer_that_opted_in_and_believes_none_of_them() -> None:
    spec = only(render(MANIFESTS / "overlays/prometheus-operator"), "PodMonitor", "slopewise-trainers")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]

    assert spec["selector"]["matchLabels"] == {"slopewise.dev/managed": "true"}
    assert spec["namespaceSelector"] == {"any": True}
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "15s")
    assert endpoint["honorLabels"] is endpoint["honorTimestamps"] is False


def test_the_operators_alerts_are_those_of_the_rule_file() -> None:
    rule = only(render(MANIFESTS / "overlays/prometheus-operator"), "PrometheusRule")

    assert rule["spec"] == yaml.safe_load((MANIFESTS / "rules/slopewise.rules.yaml").read_text(encoding="utf-8"))


def test_the_namespaced_variant_reads_its_policy_from_the_file_that_is_mounted() -> None:
    documents = render(MANIFESTS / "overlays/namespaced")
    container, mount, volume = mounted(documents, "policy")
    policy = only(documents, "ConfigMap", "slopewise-policy")
    (key,) = policy["data"]

    assert f"--policy-file={mount['mountPath']}/{key}" in container["args"]
    assert "--namespace=$(POD_NAMESPACE)" in container["args"]
    assert volume["configMap"]["name"] == policy["metadata"]["name"]


@pytest.mark.parametrize(
    "path",
    [MANIFESTS / "overlays/namespaced/policy.yaml", *sorted((ROOT / "examples/cluster").glob("policy*.yaml"))],
    ids=lambda path: path.name,
)
def test_a_shipped_policy_is_valid_and_changes_nothing_until_someone_says_auto(path: Path) -> None:
    policy = validate(TrainingPolicy, yaml.safe_load(path.read_text(encoding="utf-8")), where=str(path))

    assert policy.spec.mode == "Recommend"
    validate(find(policy.spec.policy.name).parameters, policy.spec.policy.parameters, where=str(path))


def test_each_dashboard_travels_under_a_stable_name_with_the_label_that_grafana_looks_for(overlay: Documents) -> None:
    for file in (ROOT / "grafana/dashboards").glob("*.json"):
        dashboard = only(overlay, "ConfigMap", f"slopewise-dashboard-{file.stem}")

        assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert dashboard["data"] == {f"slopewise-{file.stem}.json": file.read_text(encoding="utf-8")}
        assert len(json.dumps(dashboard)) < 256 * 1024, "what `kubectl apply` keeps in an annotation"


def test_somebodys_own_overlay_combines_what_it_wants(tmp_path: Path) -> None:
    url = "http://prometheus.example.org:9090"
    documents = render_mine(
        tmp_path,
        "high-availability",
        images=[{"name": "slopewise", "newName": "registry.example.org/slopewise", "newTag": "9"}],
        configMapGenerator=[{"name": "slopewise-settings", "behavior": "merge", "literals": [f"PROMETHEUS_URL={url}"]}],
    )
    settings = only(documents, "ConfigMap", "slopewise-settings")
    (container,) = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]

    assert container["image"] == "registry.example.org/slopewise:9"
    assert settings["data"]["PROMETHEUS_URL"] == url
    assert settings["metadata"]["name"] == container["env"][0]["valueFrom"]["configMapKeyRef"]["name"]
    unchanged = only(render(MANIFESTS / "overlays/minimal"), "ConfigMap", "slopewise-settings")
    assert settings["metadata"]["name"] != unchanged["metadata"]["name"]


@pytest.mark.parametrize("name", ["moves", "namespaced"])
def test_another_namespace_takes_all_bindings_along(name: str, tmp_path: Path) -> None:
    documents = render_mine(tmp_path, name, namespace="elsewhere")
    subjects = [s for d in documents if d["kind"].endswith("RoleBinding") for s in d["subjects"]]

    assert len(subjects) >= 2
    assert {subject["namespace"] for subject in subjects} == {"elsewhere"}
    assert only(documents, "Deployment")["metadata"]["namespace"] == "elsewhere"


COMPONENTS = sorted(folder.name for folder in (MANIFESTS / "components").iterdir())


def nowhere(documents: Documents) -> list[str]:
    """Objects whose namespace is not the controller's, and Services that select no pod of a Deployment beside them."""
    namespace = only(documents, "Deployment")["metadata"]["namespace"]
    labels = [d["spec"]["template"]["metadata"]["labels"] for d in documents if d["kind"] == "Deployment"]
    found = []
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] not in OF_THE_CLUSTER and document["metadata"].get("namespace") != namespace:
            found.append(f"{name} lies in {document['metadata'].get('namespace', 'default')}")
        selector = document["spec"]["selector"] if document["kind"] == "Service" else {}
        if not any(selector.items() <= each.items() for each in labels):
            found.append(f"{name} selects no pod")
    return found


def test_every_object_lies_beside_the_controller_and_every_service_selects_it(overlay: Documents) -> None:
    assert nowhere(overlay) == []


@pytest.mark.parametrize("namespace", [None, "elsewhere"])
def test_so_do_those_of_all_components(tmp_path: Path, namespace: str | None) -> None:
    where = {} if namespace is None else {"namespace": namespace}
    components = [f"slopewise/manifests/components/{name}" for name in COMPONENTS if name != "policies"]
    documents = render_mine(tmp_path, "minimal", components=components, **where)
    assert only(documents, "Deployment")["metadata"]["namespace"] == (namespace or "slopewise-system")
    assert nowhere(documents) == []
