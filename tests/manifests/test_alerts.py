"""The component `alerts`: the token reaches the controller, and the rights are those of the webhook."""

from __future__ import annotations

import pytest
from support.rendering import Documents, mounted, only, render_mine

COMPONENT = "slopewise/manifests/components/alerts"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    return render_mine(tmp_path_factory.mktemp("alerts"), "minimal", components=[COMPONENT])


def test_the_token_is_where_the_controller_reads_it(documents: Documents) -> None:
    container, mount, volume = mounted(documents, "alerts")

    assert f"--alert-token-file={mount['mountPath']}/token" in container["args"]
    assert (mount["readOnly"], "subPath" in mount) == (True, False)
    assert volume["secret"] == {"secretName": "slopewise-alerts"}


def test_it_adds_the_rights_to_freezes_and_nothing_else(documents: Documents, minimal: Documents) -> None:
    kinds = ("Role", "ClusterRole")
    before = {d["metadata"]["name"]: d["rules"] for d in minimal if d["kind"] in kinds}
    after = {d["metadata"]["name"]: d["rules"] for d in documents if d["kind"] in kinds}

    assert after == before | {
        "slopewise-alerts": [
            {"apiGroups": ["slopewise.dev"], "resources": ["freezes"], "verbs": ["get", "create", "patch", "delete"]}
        ]
    }


def test_its_service_leads_to_replicas_that_are_ready(documents: Documents) -> None:
    service = only(documents, "Service", "slopewise-alerts")["spec"]
    pod = only(documents, "Deployment")["spec"]["template"]

    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == pod["spec"]["containers"][0]["ports"][0]["name"]
    assert "publishNotReadyAddresses" not in service
