"""The components: what each mounts is where the controller looks for it, and what it adds is that and no more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml
from support.own_policy import a_file
from support.rendering import MANIFESTS, ROOT, Documents, mounted, only, render, render_mine

from slopewise.adapters.http.config import load_http_config
from slopewise.adapters.kube.cache.records import MANAGED_LABEL
from slopewise.crds.schema.definitions import training_policies
from slopewise.own_policies.catalogue import FOLDERS_VARIABLE
from slopewise_exporter.threads.at_start import VARIABLE, waiting

OPTED_IN = {"matchLabels": {MANAGED_LABEL: "true"}}


def with_component(folder: Path, component: str, overlay: str = "minimal", **customisation: object) -> Documents:
    components = [f"slopewise/manifests/components/{component}"]
    return render_mine(folder, overlay, components=components, **customisation)


@pytest.mark.parametrize(
    ("component", "overlay", "name", "argument"),
    [
        ("alerts", "minimal", "alerts", "--alert-token-file={}/token"),
        *(("prometheus-credentials", overlay, "prometheus", "--prometheus-config={}/http_config.yaml")
          for overlay in ("minimal", "namespaced")),
    ],
)  # fmt: skip
def test_a_secret_is_mounted_where_the_controller_reads_it(
    tmp_path: Path, component: str, overlay: str, name: str, argument: str
) -> None:
    container, mount, volume = mounted(with_component(tmp_path, component, overlay), name)

    assert argument.format(mount["mountPath"]) in container["args"]
    assert (mount["readOnly"], "subPath" in mount) == (True, False)
    assert volume["secret"] == {"secretName": f"slopewise-{name}"}


@pytest.mark.parametrize("overlay", ["minimal", "namespaced"])
def test_records_are_written_into_a_volume_that_is_large_enough(overlay: str, tmp_path: Path) -> None:
    container, mount, volume = mounted(with_component(tmp_path, "decision-record", overlay), "records")
    mebibytes = next(
        int(found[1]) for arg in container["args"] if (found := re.fullmatch(r"--record-max-mib=(\d+)", arg))
    )

    assert f"--record={mount['mountPath']}" in container["args"]
    assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi")) > 7 * mebibytes


def test_alerts_add_the_rights_to_freezes_alone_and_a_service_of_replicas_that_are_ready(
    tmp_path: Path, minimal: Documents
) -> None:
    documents = with_component(tmp_path, "alerts")
    before, after = (
        {d["metadata"]["name"]: d["rules"] for d in each if d["kind"] in ("Role", "ClusterRole")}
        for each in (minimal, documents)
    )
    freezes = {"apiGroups": ["slopewise.dev"], "resources": ["freezes"], "verbs": ["get", "create", "patch", "delete"]}
    service = only(documents, "Service", "slopewise-alerts")["spec"]
    pod = only(documents, "Deployment")["spec"]["template"]

    assert after == before | {"slopewise-alerts": [freezes]}
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == pod["spec"]["containers"][0]["ports"][0]["name"]
    assert "publishNotReadyAddresses" not in service


class TestPrometheusCredentials:
    def test_a_generated_secret_rolls_the_deployment(self, tmp_path: Path) -> None:
        secret = {"name": "slopewise-prometheus", "namespace": "slopewise-system", "literals": ["http_config.yaml={}"]}
        documents = with_component(tmp_path, "prometheus-credentials", secretGenerator=[secret])
        _, _, volume = mounted(documents, "prometheus")

        assert re.fullmatch(r"slopewise-prometheus-[a-z0-9]{10}", volume["secret"]["secretName"])

    def test_what_the_page_says_to_write_is_an_http_config(self, tmp_path: Path) -> None:
        file = tmp_path / "http_config.yaml"
        page = (ROOT / "docs/prometheus.md").read_text(encoding="utf-8")
        section = page.partition("## Credentials")[2].partition("\n## ")[0]
        blocks = re.findall(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        whole = [code for code in blocks if "kind:" not in code]
        keys = r"(?:authorization|tls_config|http_headers|proxy_url|proxy_from_environment)"
        inline = re.findall(rf"`({keys}: [^`]*)`", section)

        assert (len(whole), len(inline)) == (1, 7)
        for content in (*whole, *inline):
            file.write_text(content)
            assert load_http_config(file), content
            assert yaml.safe_load(content)


def with_a_policy(folder: Path, overlay: str = "minimal", text: str | None = None) -> Documents:
    """An overlay of the user's with a policy of theirs beside it."""
    a_file(folder, text, name="newest-first")
    namespace = "training" if overlay == "namespaced" else "slopewise-system"
    files = {"name": "slopewise-policies", "namespace": namespace, "files": ["newest_first.py"]}
    return with_component(folder, "policies", overlay, configMapGenerator=[files])


class TestOwnPolicies:
    @pytest.mark.parametrize("overlay", ["minimal", "namespaced"])
    def test_the_files_are_mounted_where_the_controller_looks_for_policies(self, tmp_path: Path, overlay: str) -> None:
        documents = with_a_policy(tmp_path, overlay)
        config = only(documents, "ConfigMap", "slopewise-policies")
        container, mount, volume = mounted(documents, "policies")

        assert list(config["data"]) == ["newest_first.py"]
        assert config["metadata"]["namespace"] == only(documents, "Deployment")["metadata"]["namespace"]
        assert {"name": FOLDERS_VARIABLE, "value": mount["mountPath"]} in container["env"]
        assert mount["readOnly"] is True
        assert volume["configMap"] == {"name": config["metadata"]["name"], "optional": True}

    def test_a_changed_file_rolls_the_deployment_and_the_definition_admits_others(self, tmp_path: Path) -> None:
        names = []
        for number, text in enumerate((None, "# another text")):
            folder = tmp_path / str(number)
            folder.mkdir()
            documents = with_a_policy(folder, text=text)
            names.append(mounted(documents, "policies")[2]["configMap"]["name"])
        assert names[0] != names[1]
        patched = only(documents, "CustomResourceDefinition", "trainingpolicies")
        assert patched["spec"] == training_policies(others=True)["spec"]


class TestThreads:
    """It sets what the exporter sets, in pods that opt in."""

    @pytest.fixture
    def added(self) -> Documents:
        return render(MANIFESTS / "components/threads")

    def test_the_variables_and_what_switches_them_off_are_those_of_the_exporter(self, added: Documents) -> None:
        spec = only(added, "MutatingAdmissionPolicy")["spec"]
        (variable,), (mutation,) = spec["variables"], spec["mutations"]
        page = (ROOT / "docs/exporters-threads.md").read_text(encoding="utf-8")

        assert dict(ast.literal_eval(variable["expression"])) == waiting({})
        assert [name for name, value in waiting({}).items() if f"`{name}={value}`" not in page] == []
        assert waiting({VARIABLE: "off"}) == {}
        assert f"given.name == '{VARIABLE}'" in mutation["applyConfiguration"]["expression"]

    def test_it_reaches_new_pods_of_managed_trainings_where_a_namespace_opts_in_and_refuses_none(
        self, added: Documents
    ) -> None:
        policy, binding = (only(added, f"MutatingAdmissionPolicy{what}") for what in ("", "Binding"))
        pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}

        assert policy["spec"]["matchConstraints"] == {"objectSelector": OPTED_IN, "resourceRules": [pods]}
        assert policy["spec"]["failurePolicy"] == "Ignore"
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert binding["spec"]["matchResources"] == {"namespaceSelector": OPTED_IN}

    def test_it_adds_the_policy_and_its_binding_and_changes_nothing_else(
        self, tmp_path: Path, added: Documents, minimal: Documents
    ) -> None:
        documents = with_component(tmp_path, "threads")
        ours = {"app.kubernetes.io/name": "slopewise", "app.kubernetes.io/part-of": "slopewise"}

        assert [d for d in documents if d not in minimal] == added
        assert len(documents) == len(minimal) + 2
        assert all(d["metadata"]["labels"] == ours for d in added)
