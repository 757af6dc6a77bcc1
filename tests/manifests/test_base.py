import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller import __version__
from controller.policies import find
from controller.settings import TrainingPolicy, validate

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "manifests/base"
UID = 65532
KNOWN_TO_KUSTOMIZE_2 = {
    "apiVersion", "kind", "namespace", "resources", "bases", "images", "generatorOptions", "configMapGenerator"
}  # fmt: skip
"""What we use of the fields that kustomize 2.0.3 has, the one in kubectl up to 1.20; it refuses any other."""

Documents = list[dict[str, Any]]


def render(folder: Path) -> Documents:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH; it renders the manifests")
    result = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def only(documents: Documents, kind: str, name: str = "") -> dict[str, Any]:
    found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


@pytest.fixture(scope="module")
def base() -> Documents:
    return render(BASE)


@pytest.fixture(scope="module")
def deployment(base: Documents) -> dict[str, Any]:
    spec: dict[str, Any] = only(base, "Deployment")["spec"]
    return spec


@pytest.fixture(scope="module")
def pod(deployment: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = deployment["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


def test_the_base_renders_what_the_controller_needs_and_gives_it_no_rights(base: Documents) -> None:
    kinds = sorted(document["kind"] for document in base)

    assert kinds == ["ConfigMap", "ConfigMap", "Deployment", "Namespace", "Service", "ServiceAccount"]


@pytest.mark.parametrize("folder", [BASE, ROOT / "grafana"], ids=lambda folder: str(folder.name))
def test_an_old_kubectl_knows_every_field_and_finds_folders_only_where_it_looks_for_them(folder: Path) -> None:
    customisation = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))

    assert customisation.keys() <= KNOWN_TO_KUSTOMIZE_2
    assert all((folder / resource).is_file() for resource in customisation.get("resources", ()))
    assert all(generator.keys() <= {"name", "files"} for generator in customisation["configMapGenerator"])
    assert customisation["generatorOptions"].keys() <= {"labels", "disableNameSuffixHash"}


def test_everything_says_that_it_is_part_of_slopewise(base: Documents, deployment: dict[str, Any]) -> None:
    ours = {"app.kubernetes.io/name": "slopewise", "app.kubernetes.io/part-of": "slopewise"}

    for labelled in (*base, deployment["template"]):
        assert ours.items() <= labelled["metadata"]["labels"].items(), labelled["metadata"]


def test_everything_is_in_one_namespace_whose_pods_must_be_restricted(base: Documents) -> None:
    namespace = only(base, "Namespace")["metadata"]

    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {d["metadata"]["namespace"] for d in base if d["kind"] != "Namespace"} == {namespace["name"]}


def test_the_pod_passes_the_restricted_pod_security_standard(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["privileged"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {kind for volume in pod["volumes"] for kind in volume} == {"name", "configMap", "emptyDir"}


def test_the_pod_runs_as_the_user_of_the_image(pod: dict[str, Any]) -> None:
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (UID, UID)
    assert f"USER {UID}:{UID}" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_only_tmp_can_be_written(pod: dict[str, Any], container: dict[str, Any]) -> None:
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}

    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert writable == {"/tmp"}
    assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume)


def test_no_token_of_the_api_server_is_in_the_pod(base: Documents, pod: dict[str, Any]) -> None:
    account = only(base, "ServiceAccount")

    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is account["automountServiceAccountToken"] is False


def test_memory_is_bounded_and_cpu_is_not(container: dict[str, Any]) -> None:
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}


def test_two_controllers_never_run_at_once(deployment: dict[str, Any]) -> None:
    assert deployment["replicas"] == 1
    assert deployment["strategy"]["type"] == "Recreate"


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_a_probe_asks_the_health_endpoint_of_the_port_that_is_served(container: dict[str, Any], probe: str) -> None:
    (port,) = container["ports"]

    assert container[probe]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert port["containerPort"] == 8080


def test_the_service_leads_prometheus_to_the_controllers_pods(
    base: Documents, deployment: dict[str, Any], container: dict[str, Any]
) -> None:
    service = only(base, "Service")
    (port,) = service["spec"]["ports"]

    assert service["spec"]["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert port["targetPort"] in {served["name"] for served in container["ports"]}
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(port["port"])


def test_the_deployment_selects_its_own_pods(deployment: dict[str, Any]) -> None:
    selector = deployment["selector"]["matchLabels"]

    assert selector
    assert selector.items() <= deployment["template"]["metadata"]["labels"].items()


def test_the_command_reads_the_policy_file_that_is_mounted(
    base: Documents, pod: dict[str, Any], container: dict[str, Any]
) -> None:
    policy = only(base, "ConfigMap", "slopewise-policy")
    mount = next(mount for mount in container["volumeMounts"] if mount["name"] == "policy")
    volume = next(volume for volume in pod["volumes"] if volume["name"] == "policy")
    (key,) = policy["data"]

    assert container["args"] == ["run", "--policy-file", f"{mount['mountPath']}/{key}"]
    assert volume["configMap"]["name"] == policy["metadata"]["name"]


def test_the_shipped_policy_is_valid_and_changes_nothing_until_someone_says_auto(base: Documents) -> None:
    (text,) = only(base, "ConfigMap", "slopewise-policy")["data"].values()
    policy = validate(TrainingPolicy, yaml.safe_load(text), where="policy.yaml")

    assert policy.spec.mode == "Recommend"
    validate(find(policy.spec.policy.name).parameters, policy.spec.policy.parameters, where="policy.yaml")


def test_the_dashboards_travel_under_a_stable_name_with_the_label_that_grafana_looks_for(base: Documents) -> None:
    dashboards = only(base, "ConfigMap", "slopewise-dashboards")

    assert dashboards["metadata"]["name"] == "slopewise-dashboards"
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboards["data"] == {
        file.name: file.read_text(encoding="utf-8") for file in (ROOT / "grafana/dashboards").glob("*.json")
    }


def test_the_image_is_that_of_this_version(container: dict[str, Any]) -> None:
    assert container["image"] == f"slopewise:{__version__}"


def test_an_overlay_changes_image_and_policy_and_the_changed_policy_rolls_the_pod(
    base: Documents, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text((BASE / "policy.yaml").read_text().replace("Recommend", "Auto"))
    overlay = {
        "bases": [os.path.relpath(BASE, tmp_path)],
        "images": [{"name": "slopewise", "newName": "registry.example.org/slopewise", "newTag": "9"}],
        "configMapGenerator": [{"name": "slopewise-policy", "behavior": "replace", "files": ["policy.yaml"]}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    rendered = render(tmp_path)

    pod = only(rendered, "Deployment")["spec"]["template"]["spec"]
    policy = only(rendered, "ConfigMap", "slopewise-policy")
    assert pod["containers"][0]["image"] == "registry.example.org/slopewise:9"
    assert policy["metadata"]["name"] != only(base, "ConfigMap", "slopewise-policy")["metadata"]["name"]
    assert policy["metadata"]["name"] in {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v}
