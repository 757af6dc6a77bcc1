"""What happens to pods meanwhile: somebody else resizes them, they go, they crash, they are killed for memory."""

from __future__ import annotations

from typing import Any

import pytest
from support.fault_stage import ORIGINAL, Stage
from support.gateway import Request
from support.waiting import wait_for

ENDS_WHEN_TOLD = ("sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 3")
EATS_WHEN_TOLD = (
    "python3",
    "-c",
    "import os, time\nwhile not os.path.exists('/tmp/end'): time.sleep(0.1)\nfood = bytearray(512 << 20)",
)


def test_somebody_elses_resize_is_left_alone_and_reported(stage: Stage) -> None:
    stage.pods("a", "b")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    other = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "777m"}}}]}}
    resize = ("--subresource=resize", "--field-manager=autopilot")
    stage.kubectl.patch("pod", "a", stage.namespace, other, *resize)
    stage.wait_for_growth("a", "Managed", "Ineligible")
    stage.wait_for_event("a", "ResizeWithheld", "autopilot resizes it too")
    listed = wait_for(
        "kubectl get growth says so",
        lambda: stage.kubectl.run("get", "growth", "a", "-n", stage.namespace),
        lambda text: "autopilot resizes it too" in text,
    )
    assert "Training" in listed or "Starting" in listed
    assert controller.metric("slopewise_withheld_total", guard="ineligible") >= 1
    controller.wait_for_passes(2)
    assert stage.limits() == {"a": 777, "b": 1000}
    stage.delete_policy()
    assert stage.limits() == {"a": 777, "b": 300}
    stage.wait_for_event("a", "RestoreFailed", "it keeps what that gave")


@pytest.mark.parametrize("replaced", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["gone", "replaced"])
def test_a_pod_that_goes_between_decision_and_patch_gets_nothing(stage: Stage, replaced: bool) -> None:
    gateway = stage.gateway()
    taken: list[str] = []

    def take_away(request: Request) -> None:
        if request.kind == "patch pods/resize" and request.path.endswith("/a/resize") and not taken:
            taken.append(stage.pod("a")["metadata"]["uid"])
            stage.kubectl.run("delete", "pod", "a", "-n", stage.namespace, "--grace-period=0", "--force")
            if replaced:
                stage.pods("a", running=False, cpu_limit="400m")

    gateway.before = take_away
    stage.pods("a", "b")
    stage.policy()
    controller = stage.controller(gateway)
    line = controller.wait_for_line("pass completed")
    assert line["failed"] == 1
    assert "its pod is gone" in str(line["changes"]) or "its pod was replaced" in str(line["changes"])
    assert controller.metric("slopewise_resizes_total", outcome="failed") == 1
    if not replaced:
        stage.wait_for_limits({"b": 2000})
        return
    stage.kubectl.wait_running(stage.namespace, "a")
    assert stage.pod("a")["metadata"]["uid"] != taken[0]
    stage.wait_for_limits({"a": 1000, "b": 1000})
    originals = wait_for("all are stored", stage.originals, lambda seen: {"a", "b"} <= seen.keys())
    assert originals["a"]["cpuLimit"] == "400m"
    stage.delete_policy()
    assert stage.limits() == {"a": 400, "b": 300}


@pytest.mark.parametrize(
    ("command", "memory", "harm"),
    [
        pytest.param(ENDS_WHEN_TOLD, None, "restarted", id="crashes"),
        pytest.param(EATS_WHEN_TOLD, "64Mi", "OOM-killed", id="out-of-memory"),
    ],
)
def test_a_container_that_ends_after_a_change_gets_its_cpu_back_and_is_left_alone(
    stage: Stage, command: tuple[str, ...], memory: str | None, harm: str
) -> None:
    stage.pods("a", command=command, memory_limit=memory)
    stage.pods("b")
    stage.policy(behaviour={"intervalSeconds": 10})
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    controller.wait_for_passes(1)
    stage.kubectl.run("exec", "a", "-n", stage.namespace, "--", "touch", "/tmp/end")
    stage.wait_for_event("a", "Regressed", harm)
    stage.wait_for_limits({"a": 300})
    status = stage.wait_for_growth("a", "Managed", "BackingOff")
    message = next(each["message"] for each in status["conditions"] if each["type"] == "Managed")
    assert message.startswith(f"{harm} after its CPU went from 300m to 1000m")
    stage.pods("c")  # another share for everybody
    stage.wait_for_limits({"b": 667, "c": 667})
    stage.wait_for_event("a", "ResizeWithheld", "backoff: ")
    assert controller.metric("slopewise_withheld_total", guard="backoff") >= 1
    assert stage.cpu("a") == {"a": ORIGINAL}
    stage.delete_policy()
    assert stage.limits() == {"a": 300, "b": 300, "c": 300}


@pytest.mark.faults
def test_a_container_that_crashes_again_and_again_is_changed_once_and_given_back_once(stage: Stage) -> None:
    stage.pods("a", command=("sh", "-c", "sleep 4; exit 1"))
    stage.pods("b")
    stage.policy()
    stage.controller()
    stage.wait_for_event("a", "Regressed", "restarted")
    stage.wait_for_limits({"a": 300})
    wait_for("it crashes on", lambda: _restarts(stage.pod("a")), lambda seen: seen >= 3)
    assert stage.resized["a"] == 2
    assert stage.limits("a") == {"a": 300}


def _restarts(pod: dict[str, Any]) -> int:
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


@pytest.mark.faults
def test_a_pod_that_leaves_the_selector_gets_its_cpu_back(stage: Stage) -> None:
    stage.pods("a", "b")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    stage.policy(pods={"matchExpressions": [{"key": "leave", "operator": "DoesNotExist"}]})
    stage.kubectl.run("label", "pod", "a", "leave=true", "-n", stage.namespace)
    stage.wait_for_limits({"a": 300, "b": 2000})
    stage.kubectl.wait_gone("jobgrowth", "a", stage.namespace)
    controller.wait_for_metric("slopewise_restores_total", lambda seen: seen == 1, outcome="restored")
