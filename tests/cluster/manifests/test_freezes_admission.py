"""What the admission policy `slopewise-freezes` leaves of the rights that the component `alerts` gives."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from support.accounts import GROUP, refusal
from support.cluster import Kubectl
from support.rendering import MANIFESTS
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, Json
from slopewise.adapters.kube.state.freezes import ALERT, MADE_BY_LABEL

FREEZES = f"{GROUP}/freezes"
ROLE = MANIFESTS / "components/alerts/controller-role.yaml"
OF_ALERTS = "makes, changes and deletes only Freezes of alerts"
ENDS = {"spec": {"until": "2026-01-01T00:00:00Z"}}
OF_AN_ALERT = {MADE_BY_LABEL: ALERT}
_NONE = f"{FREEZES}/none"


@pytest.fixture
def may_write(installed: Kubectl, controller: KubeApi) -> Iterator[KubeApi]:
    """The controller's account with the rights of the component."""
    installed.run("apply", "--server-side", "-f", str(ROLE))
    try:
        wait_for("it may", lambda: refusal(lambda: controller.delete(_NONE)), lambda said: "not found" in said)
        yield controller
    finally:
        installed.run("delete", "--ignore-not-found", "-f", str(ROLE))


def a_freeze(name: str, **metadata: object) -> Json:
    spec = {"scope": "namespace", "name": "no-such-namespace"}
    return {"apiVersion": API_VERSION, "kind": "Freeze", "metadata": {"name": name, **metadata}, "spec": spec}


@pytest.fixture
def of_a_person(installed: Kubectl) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    installed.apply(a_freeze(name))
    yield name
    installed.run("delete", "freeze", name, "--ignore-not-found")


def test_the_controller_touches_no_freeze_of_a_person(may_write: KubeApi, of_a_person: str) -> None:
    path = f"{FREEZES}/{of_a_person}"

    assert OF_ALERTS in refusal(lambda: may_write.delete(path))
    assert OF_ALERTS in refusal(lambda: may_write.patch(path, ENDS, MERGE_PATCH))
    taken = {"metadata": {"labels": OF_AN_ALERT}, **ENDS}
    assert OF_ALERTS in refusal(lambda: may_write.patch(path, taken, MERGE_PATCH))
    assert OF_ALERTS in refusal(lambda: may_write.create(FREEZES, a_freeze(f"{of_a_person}-b")))
    assert OF_ALERTS in refusal(lambda: may_write.create(FREEZES, a_freeze("mine", labels=OF_AN_ALERT)))


def test_the_controller_writes_its_status(may_write: KubeApi, of_a_person: str) -> None:
    state = {"status": {"state": "InForce"}, **ENDS}
    written = may_write.patch(f"{FREEZES}/{of_a_person}/status", state, MERGE_PATCH)

    assert written["status"] == {"state": "InForce"}
    assert "until" not in written["spec"]


def test_the_controller_makes_changes_and_deletes_those_of_alerts(may_write: KubeApi, of_a_person: str) -> None:
    name = f"alert-{of_a_person}"
    stays = a_freeze(name, labels=OF_AN_ALERT, finalizers=["example.org/stay"])
    assert "not metadata.finalizers" in refusal(lambda: may_write.create(FREEZES, stays))
    owned = a_freeze(name, labels=OF_AN_ALERT, ownerReferences=[_OWNER])
    assert "not metadata.ownerReferences" in refusal(lambda: may_write.create(FREEZES, owned))

    may_write.create(FREEZES, a_freeze(name, labels=OF_AN_ALERT))
    assert OF_ALERTS in refusal(
        lambda: may_write.patch(f"{FREEZES}/{name}", {"metadata": {"labels": None}}, MERGE_PATCH)
    )
    may_write.patch(f"{FREEZES}/{name}", ENDS, MERGE_PATCH)
    may_write.delete(f"{FREEZES}/{name}")


_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}
