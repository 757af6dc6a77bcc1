"""The component `alerts`: the token reaches the controller, and the rights are those of the webhook."""

from __future__ import annotations

from pathlib import Path

from support.rendering import MANIFESTS, mounted, only, render, render_mine

COMPONENT = "slopewise/manifests/components/alerts"


def test_the_token_is_where_the_controller_reads_it(tmp_path: Path) -> None:
    documents = render_mine(tmp_path, "minimal", components=[COMPONENT])
    container, mount, volume = mounted(documents, "alerts")

    assert f"--alert-token-file={mount['mountPath']}/token" in container["args"]
    assert (mount["readOnly"], "subPath" in mount) == (True, False)
    assert volume["secret"] == {"secretName": "slopewise-alerts"}


def test_it_adds_the_rights_to_freezes_and_nothing_else(tmp_path: Path) -> None:
    documents = render_mine(tmp_path, "minimal", components=[COMPONENT])
    minimal = render(MANIFESTS / "overlays/minimal")
    kinds = ("Role", "ClusterRole")
    before = {d["metadata"]["name"]: d["rules"] for d in minimal if d["kind"] in kinds}
    after = {d["metadata"]["name"]: d["rules"] for d in documents if d["kind"] in kinds}

    assert after == before | {
        "slopewise-alerts": [
            {"apiGroups": ["slopewise.dev"], "resources": ["freezes"], "verbs": ["get", "create", "patch", "delete"]}
        ]
    }


def test_its_service_leads_to_replicas_that_are_ready(tmp_path: Path) -> None:
    documents = render_mine(tmp_path, "minimal", components=[COMPONENT])
    service = only(documents, "Service", "slopewise-alerts")["spec"]
    pod = only(documents, "Deployment")["spec"]["template"]

    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == pod["spec"]["containers"][0]["ports"][0]["name"]
    assert "publishNotReadyAddresses" not in service
