"""Resizing and restoring real pods, and a real API server's own words for each way in which it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.accounts import api_of_account
from support.cluster import Kubectl, PodShape
from support.managed_pods import parsed
from support.waiting import wait_for

from slopewise.adapters.clock import SystemClock
from slopewise.adapters.kube.cache.records import ManagedPod
from slopewise.adapters.kube.cache.wire import cpu_millicores
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused, explain
from slopewise.adapters.kube.client.protocol import STRATEGIC_MERGE_PATCH
from slopewise.adapters.kube.resize.actuator import KubeActuator
from slopewise.config.quantities import cpu_quantity
from slopewise.config.training_policy import ResourceSettings
from slopewise.errors import UsageError
from slopewise.model import CpuAllocation, CpuControl, Decision, Outcome, Resize, Restored

LARGER_THAN_ANY_NODE = 2_000_000


def every_turn(node: str, namespace: str) -> str | None:
    return None


@dataclass
class Team:
    """A namespace's pods, read again each time, and an actuator that knows them by their names."""

    api: KubeApi
    kubectl: Kubectl
    namespace: str
    idle: PodShape
    settings: ResourceSettings = field(default_factory=ResourceSettings)
    originals: dict[str, CpuAllocation] = field(default_factory=dict)
    behind: ManagedPod | None = None
    """What `find` answers instead of the truth: an index that is behind."""

    def start(self, name: str, **shape: Any) -> None:
        self.kubectl.apply(replace(self.idle, **shape).pod(name), namespace=self.namespace)
        self.kubectl.wait_running(self.namespace, name)
        self.originals[name] = self.find(name).container.desired

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def find(self, name: str) -> ManagedPod:
        return self.behind or parsed(self.api.get(self.path(name)))

    def actuator(self) -> KubeActuator:
        return KubeActuator(self.api, self, self.settings, every_turn, SystemClock(), self.originals.__getitem__)

    def resize(self, name: str, to: int, control: CpuControl = "limits") -> Outcome[Decision]:
        return self.actuator().carry_out(Resize(name, "node", control, 0, to, "test"))

    def wait(self, name: str, done: Callable[[ManagedPod], object]) -> ManagedPod:
        return wait_for(name, lambda: self.find(name), done)

    def refusal(self, name: str, resources: dict[str, dict[str, str]], **metadata: str) -> Refused:
        """What it means that the API server refuses these resources."""
        body = {"metadata": metadata, "spec": {"containers": [{"name": "trainer", "resources": resources}]}}
        return refusal_of(self.api, f"{self.path(name)}/resize", body)


def refusal_of(api: KubeApi, path: str, body: dict[str, Any]) -> Refused:
    with pytest.raises(ApiError) as caught:
        api.patch(path, body, STRATEGIC_MERGE_PATCH)
    return explain(caught.value, "resize")


@pytest.fixture
def team(kubectl: Kubectl, kubeconfig: Path, namespace: str, idle: PodShape) -> Iterator[Team]:
    api = KubeApi.connect(kubeconfig=str(kubeconfig))
    yield Team(api, kubectl, namespace, idle)
    api.close()


def limits(cpu: str) -> dict[str, dict[str, str]]:
    return {"limits": {"cpu": cpu}}


def reported(limit: int | None, request: int) -> Callable[[ManagedPod], bool]:
    return lambda pod: pod.container.reported == CpuAllocation(limit, request)


class TestResizing:
    def test_a_limit_takes_effect_without_a_restart_and_comes_back(self, team: Team) -> None:
        team.start("a")
        assert team.resize("a", 900).result == "applied"
        resized = team.wait("a", reported(900, 250))
        assert team.kubectl.cpu_quota_microseconds(team.namespace, "a") == 90_000
        assert team.actuator().restore("a", team.originals["a"]).result == "accepted"
        back = team.wait("a", reported(500, 250))
        assert team.actuator().restore("a", team.originals["a"]) == Restored("applied")
        assert [each.container.restarts_total for each in (resized, back)] == [0, 0]
        assert back.pod.foreign_resizers == ()

    def test_a_request_goes_down_with_its_limit_and_comes_back(self, team: Team) -> None:
        team.settings = ResourceSettings(lower_requests=True)
        team.start("a")
        assert team.resize("a", 100).result == "applied"
        team.wait("a", reported(100, 100))
        assert restored(team, "a").result == "applied"
        team.wait("a", reported(500, 250))

    def test_a_guaranteed_pod_stays_guaranteed(self, team: Team) -> None:
        team.settings = ResourceSettings(lower_requests=True)
        same = {"cpu_request": "250m", "cpu_limit": "250m", "memory_request": "64Mi", "memory_limit": "64Mi"}
        team.start("a", **same)
        assert team.resize("a", 100).result == "applied"
        assert team.wait("a", reported(100, 100)).pod.qos_class == "Guaranteed"
        assert restored(team, "a").result == "applied"

    @pytest.mark.parametrize(
        ("control", "to", "lowers", "expected"),
        [
            ("limits", 250, False, CpuAllocation(251, 250)),
            ("limits", 250, True, CpuAllocation(250, 249)),
            ("requests", 500, False, CpuAllocation(500, 499)),
        ],
    )
    def test_a_burstable_pod_with_fixed_memory_stays_burstable(
        self, team: Team, control: CpuControl, to: int, lowers: bool, expected: CpuAllocation
    ) -> None:
        team.settings = ResourceSettings(lower_requests=lowers)
        team.start("a", memory_request="64Mi", memory_limit="64Mi")
        assert team.resize("a", to, control).result == "applied"
        assert team.find("a").container.desired == expected

    def test_a_limit_that_is_added_brings_no_request_and_stays(self, team: Team) -> None:
        team.settings = ResourceSettings(add_limits=True)
        team.start("a", cpu_request=None, cpu_limit=None, memory_request="64Mi")
        assert team.resize("a", 900).result == "applied"
        team.wait("a", reported(900, 0))
        assert team.actuator().restore("a", team.originals["a"]).result == "accepted"
        team.wait("a", reported(64_000, 0))
        answer = team.actuator().restore("a", team.originals["a"])
        assert (answer.result, "cannot be removed" in answer.detail) == ("applied", True)

    def test_somebody_elses_resize_is_stood_down_for(self, team: Team) -> None:
        team.start("a")
        team.behind = team.find("a")
        other = {"spec": {"containers": [{"name": "trainer", "resources": limits("600m")}]}}
        team.kubectl.patch("pod", "a", team.namespace, other, "--subresource=resize")
        assert team.resize("a", 900).detail == "kubectl-patch has resized it; it is left to that"


def restored(team: Team, name: str) -> Restored:
    """Restoring, as it ends when it is asked for again and again."""
    actuator = team.actuator()
    return wait_for(
        f"{name} is restored",
        lambda: actuator.restore(name, team.originals[name]),
        lambda answer: answer.result not in ("accepted", "deferred"),
        seconds=15,
    )


class TestRoom:
    def free_millicores(self, team: Team, node: str) -> int:
        allocatable = team.kubectl.get("node", node)["status"]["allocatable"]["cpu"]
        pods = team.kubectl.get("pods", "-A", f"--field-selector=spec.nodeName={node},status.phase=Running")["items"]
        return cpu_millicores(allocatable) - sum(
            cpu_millicores(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
            for pod in pods
            for container in pod["spec"]["containers"]
        )

    def test_a_request_without_room_waits_and_its_restoring_takes_turns_with_others(self, team: Team) -> None:
        team.settings = ResourceSettings(lower_requests=True)
        team.start("a", cpu_request="20m")
        node = team.find("a").pod.node or ""
        half = int(0.6 * self.free_millicores(team, node))
        team.start("b", cpu_request=cpu_quantity(half), cpu_limit=None, node=node)
        original = team.originals["a"] = CpuAllocation(4000, half)

        actuator = team.actuator()
        assert actuator.restore("a", original).result == "accepted"
        pending = team.wait("a", lambda pod: pod.pod.pending).pod.pending
        assert pending is not None
        assert (pending.kind, pending.message.startswith("Node didn't have enough resource: cpu")) == ("Deferred", True)
        assert team.find("a").container.reported == CpuAllocation(500, 20)

        assert f"{node} has no room for its request of {half}m" in actuator.restore("a", original).detail
        team.wait("a", reported(4000, 20))
        assert team.find("a").pod.pending is None
        assert actuator.restore("a", original).result == "deferred"

        team.kubectl.run("delete", "pod", "b", "-n", team.namespace, "--grace-period=0", "--force", "--wait")
        assert restored(team, "a").result == "applied"
        team.wait("a", reported(4000, half))

    def test_a_request_larger_than_the_node_cannot_be(self, team: Team) -> None:
        team.start("a", cpu_limit=None)
        outcome = team.resize("a", LARGER_THAN_ANY_NODE, "requests")
        if outcome.result == "applied":  # before 1.36 the kubelet says it, and not the API server
            pending = team.wait("a", lambda pod: pod.pod.pending).pod.pending
            assert pending is not None
            assert pending.kind == "Infeasible"
        else:
            assert (outcome.result, outcome.detail.startswith("its node is too small; ")) == ("infeasible", True)


class TestRefusals:
    def test_what_the_spec_of_a_pod_does_not_allow(self, team: Team) -> None:
        team.start("a")
        said = [
            team.refusal("a", limits("100m")),
            team.refusal("a", {"limits": {"cpu": "500m", "nvidia.com/gpu": "1"}}),
            team.refusal("a", {"limits": {"cpu": None}}),  # type: ignore[dict-item]
        ]
        assert {each.result for each in said} == {"infeasible"}
        assert "must be less than or equal to cpu limit" in said[0].detail
        assert "cannot be removed" in said[2].detail

    def test_another_qos_class(self, team: Team) -> None:
        team.start("a", cpu_request=None, cpu_limit=None)
        said = team.refusal("a", limits("900m"))
        assert (said.result, "Pod QOS Class may not change" in said.detail) == ("infeasible", True)

    def test_another_pods_uid(self, team: Team) -> None:
        team.start("a")
        said = team.refusal("a", limits("900m"), uid="11111111-1111-1111-1111-111111111111")
        assert (said.result, said.gone) == ("failed", True)

    def test_a_limit_range(self, team: Team) -> None:
        team.start("a")
        bounds = {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "maxLimitRequestRatio": {"cpu": "3"}}
        team.kubectl.apply(
            {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r"}, "spec": {"limits": [bounds]}},
            namespace=team.namespace,
        )
        refused = [limits("1100m"), {"requests": {"cpu": "20m"}}, limits("900m")]
        for resources in refused:
            said = refused_with(partial(team.refusal, "a", resources), "LimitRange")
            assert said.result == "infeasible"

    def test_a_quota(self, team: Team) -> None:
        team.start("a")
        spec = {"hard": {"limits.cpu": "1", "requests.cpu": "500m"}}
        team.kubectl.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec},
            namespace=team.namespace,
        )
        used = partial(team.kubectl.get, "resourcequota", "q", "-n", team.namespace)
        # What is written before the quota has counted the pod is let through.
        wait_for(
            "the quota has counted the pod", used, lambda quota: "limits.cpu" in quota["status"].get("used", {}), 60
        )
        refused_with(lambda: team.refusal("a", limits("2")), "exceeded quota")
        outcome = team.resize("a", 1500)
        assert outcome.result == "deferred"
        assert outcome.detail.startswith("the ResourceQuota of its namespace has no room; ")
        assert team.resize("a", 900).result == "applied"

    def test_a_right_that_is_missing(self, team: Team, tmp_path: Path) -> None:
        team.start("a")
        api = api_of_account(team.kubectl, team.namespace, "default", tmp_path)
        body = {"spec": {"containers": [{"name": "trainer", "resources": limits("900m")}]}}
        said = refusal_of(api, f"{team.path('a')}/resize", body)
        assert (said.result, "grant it patch on pods/resize" in said.detail) == ("failed", True)

    def test_an_account_that_is_not_known(self, team: Team, tmp_path: Path) -> None:
        team.start("a")
        config = (team.kubectl.run("config", "view", "--raw", "--minify", "--flatten")).replace(
            "token: ", "token: not-"
        )
        if "token: not-" not in config:
            pytest.skip("this cluster's administrator has no token")
        path = tmp_path / "kubeconfig"
        path.write_text(config)
        try:
            api = KubeApi.connect(kubeconfig=str(path))
        except UsageError as error:
            pytest.skip(str(error))
        said = refusal_of(api, f"{team.path('a')}/resize", {"spec": {}})
        assert (said.result, "renew its token" in said.detail) == ("failed", True)

    def test_an_admission_policy(self, team: Team) -> None:
        team.start("a")
        name = f"deny-{team.namespace}"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]}
        here = {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}}
        kind = "admissionregistration.k8s.io/v1"
        policy = {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
            "validations": [{"expression": "false", "message": "no resizes here"}],
        }
        binding = {"policyName": name, "validationActions": ["Deny"]}
        try:
            team.kubectl.apply(
                {"apiVersion": kind, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy},
                {
                    "apiVersion": kind,
                    "kind": "ValidatingAdmissionPolicyBinding",
                    "metadata": {"name": name},
                    "spec": binding,
                },
            )
            said = refused_with(lambda: team.refusal("a", limits("900m")), "no resizes here")
            assert (said.result, said.detail.startswith("an admission policy denies it; ")) == ("infeasible", True)
        finally:
            for each in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
                team.kubectl.run("delete", each, name, "--ignore-not-found")


def refused_with(ask: Callable[[], Refused], words: str, seconds: float = 180) -> Refused:
    """Ask until the API server has taken notice of what was just made; until then it may also agree."""

    def answer() -> Refused | None:
        try:
            return ask()
        except pytest.fail.Exception:  # it did not refuse
            return None

    said = wait_for(repr(words), answer, lambda said: said is not None and words in said.detail, seconds)
    assert said is not None
    return said
