"""The component `policies`: files of the user's in the controller's pod, and a definition that admits them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.own_policy import a_file
from support.rendering import Documents, mounted, only, render_in

from slopewise.crds.schema.definitions import training_policies
from slopewise.own_policies.catalogue import FOLDERS_VARIABLE


def rendered(folder: Path, overlay: str, text: str | None = None) -> Documents:
    """An overlay of the user's with a policy of theirs beside it."""
    a_file(folder, text, name="newest-first")
    namespace = "training" if overlay == "namespaced" else "slopewise-system"
    return render_in(
        folder,
        {
            "resources": [f"slopewise/manifests/overlays/{overlay}"],
            "components": ["slopewise/manifests/components/policies"],
            "configMapGenerator": [
                {"name": "slopewise-policies", "namespace": namespace, "files": ["newest_first.py"]}
            ],
        },
    )


@pytest.mark.parametrize("overlay", ["minimal", "namespaced"])
def test_the_files_are_mounted_where_the_controller_looks_for_policies(tmp_path: Path, overlay: str) -> None:
    documents = rendered(tmp_path, overlay)
    config = only(documents, "ConfigMap", "slopewise-policies")
    container, mount, volume = mounted(documents, "policies")

    assert list(config["data"]) == ["newest_first.py"]
    assert config["metadata"]["namespace"] == only(documents, "Deployment")["metadata"]["namespace"]
    assert {"name": FOLDERS_VARIABLE, "value": mount["mountPath"]} in container["env"]
    assert mount["readOnly"] is True
    assert volume["configMap"] == {"name": config["metadata"]["name"], "optional": True}


def test_a_changed_file_rolls_the_deployment(tmp_path: Path) -> None:
    names = []
    for number, text in enumerate((None, "# another text")):
        folder = tmp_path / str(number)
        folder.mkdir()
        documents = rendered(folder, "minimal", text)
        names.append(only(documents, "ConfigMap", "slopewise-policies")["metadata"]["name"])
        _, _, volume = mounted(documents, "policies")
        assert volume["configMap"]["name"] == names[-1]
    assert names[0] != names[1]


def test_the_definition_is_the_one_that_admits_others(tmp_path: Path) -> None:
    documents = rendered(tmp_path, "minimal")
    patched = only(documents, "CustomResourceDefinition", "trainingpolicies")
    assert patched["spec"] == training_policies(others=True)["spec"]
