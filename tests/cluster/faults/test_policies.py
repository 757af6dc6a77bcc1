"""What people do with policies: overlapping ones, another policy, a canary, a controller that is gone.

And what happens to pods meanwhile: they crash, they are killed for memory, they leave the selector.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.fault_stage import ORIGINAL, STORED, Stage
from support.waiting import wait_for

from slopewise.model import in_canary

ENDS_WHEN_TOLD = ("sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 3")
EATS_WHEN_TOLD = (
    "python3",
    "-c",
    "import os, time\nwhile not os.path.exists('/tmp/end'): time.sleep(0.1)\nfood = bytearray(512 << 20)",
)


def test_of_two_policies_the_older_wins_and_the_younger_takes_over_with_true_originals(stage: Stage) -> None:
    stage.pods("a", "b")
    stage.policy("older")
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    _wait_for_another_second(stage, "older")
    younger = stage.policy("younger", resources={"cpu": {"min": "100m", "max": "500m"}})
    condition = stage.wait_for_condition("Conflict", "OlderPolicyWins", "younger")
    assert f"2 pods are managed by the older policy {stage.name('older')}" in condition["message"]
    stage.wait_for_event(younger, "Conflict", f"2 pods are managed by {stage.name('older')}")
    controller.wait_for_passes(2)
    assert stage.limits() == {"a": 1000, "b": 1000}
    stage.delete_policy("older")
    stage.wait_for_limits({"a": 500, "b": 500})
    assert stage.originals() == {"a": STORED, "b": STORED}
    stage.wait_for_condition("Conflict", "NoConflict", "younger")
    stage.delete_policy("younger")
    assert stage.cpu() == {"a": ORIGINAL, "b": ORIGINAL}


def _wait_for_another_second(stage: Stage, policy: str) -> None:
    """Creation times are whole seconds, and of two policies of one second the name decides."""
    made = stage.kubectl.get("trainingpolicy", stage.name(policy))["metadata"]["creationTimestamp"]
    now = ("create", "configmap", "clock", "-n", stage.namespace, "--dry-run=server", "-o", "json")
    wait_for(
        "a second has passed",
        lambda: json.loads(stage.kubectl.run(*now))["metadata"]["creationTimestamp"],
        lambda seen: seen > made,
    )


def test_a_policy_that_decides_no_cpu_restores_what_the_one_before_it_changed(stage: Stage) -> None:
    stage.pods("a", "b")
    stage.policy()
    stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    stage.policy(policy={"name": "fair"})
    stage.wait_for_limits({"a": 300, "b": 300})
    assert stage.cpu() == {"a": ORIGINAL, "b": ORIGINAL}
    stage.delete_policy()


def test_restore_all_gives_everything_back_when_no_controller_runs(stage: Stage) -> None:
    stage.pods("a", "b")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    assert controller.stop() == 0
    kubeconfig = stage.write_kubeconfig("restore", stage.gateway())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "slopewise", "restore", "--all", "--output", "json"),
            *("--kubeconfig", str(kubeconfig), "--lease-namespace", stage.namespace),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    assert printed["complete"]
    assert set(printed["restored"]) == {f"pod {stage.namespace}/a", f"pod {stage.namespace}/b"}
    assert printed["finalizersRemoved"] == [stage.name("policy")]
    assert stage.cpu() == {"a": ORIGINAL, "b": ORIGINAL}
    stage.delete_policy()


def test_a_canary_is_changed_alone_until_a_person_promotes_it(stage: Stage) -> None:
    names = [f"p{number}" for number in range(6)]
    stage.pods(*names, cpu_request="50m")
    everybody = dict.fromkeys(names, 333)
    in_share = {name: in_canary(f"{stage.pod(name)['metadata']['uid']}:0", 0.5) for name in names}
    canaries = {name: 333 if in_share[name] else 300 for name in names}
    stage.policy(mode="Canary", behaviour={"canaryRatio": 0.5, "minChangeRatio": 0.05})
    controller = stage.controller()
    stage.wait_for_limits(canaries)
    for name in (each for each in names if not in_share[each]):
        stage.wait_for_growth(name, "Managed", "NotInCanary")
    controller.wait_for_passes(1)
    assert stage.limits() == canaries
    if not all(in_share.values()):
        assert controller.metric("slopewise_withheld_total", guard="canary") >= 1
    stage.policy(mode="Auto", behaviour={"minChangeRatio": 0.05})
    stage.wait_for_limits(everybody)
    stage.policy(mode="Canary", behaviour={"canaryRatio": 0.5, "minChangeRatio": 0.05})
    stage.wait_for_limits(canaries)


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
