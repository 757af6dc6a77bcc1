"""What happens to pods meanwhile: they crash, they are killed for memory, they leave the selector."""

from __future__ import annotations

import pytest
from support.fault_stage import ORIGINAL, Stage

ENDS_WHEN_TOLD = ("sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 3")
EATS_WHEN_TOLD = (
    "python3",
    "-c",
    "import os, time\nwhile not os.path.exists('/tmp/end'): time.sleep(0.1)\nfood = bytearray(512 << 20)",
)


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
