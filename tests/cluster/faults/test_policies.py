"""What people do with policies: invalid ones, overlapping ones, another mode, deletion, a controller that is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.cluster import KubectlError
from support.fault_stage import ORIGINAL, SCRAPE_SECONDS, STORED, Stage
from support.trainers import CONVERGED, FALLING, Trainers
from support.waiting import wait_for

from slopewise.model import in_canary


def test_the_api_server_refuses_an_invalid_policy_in_our_words(stage: Stage) -> None:
    with pytest.raises(KubectlError, match="maxStepRatio allows no decrease as large as minChangeRatio asks for"):
        stage.policy(behaviour={"maxStepRatio": 1.05, "minChangeRatio": 0.5})
    with pytest.raises(KubectlError, match="PromQL is not accepted"):
        stage.policy(evaluation={"metric": "sum(up)"})
    assert "NotFound" in stage.kubectl.attempt("get", "trainingpolicy", stage.name("policy")).stderr


def test_what_no_schema_can_see_is_said_by_the_policy_itself(stage: Stage) -> None:
    stage.pods("a")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 2000})
    stage.policy(behaviour={"intervalSeconds": 2})
    found = stage.wait_for_condition("Ready", "InvalidSpec")
    assert found["status"] == "False"
    assert "spec.behaviour.intervalSeconds: 2 s is less than 4 scrapes of 1 s" in found["message"]
    assert stage.wait_for_event(stage.name("policy"), "InvalidSpec", "write 4 or more")
    controller.wait_for_metric("slopewise_policies", lambda seen: seen == 1, condition="refused")
    stage.pods("b")  # no policy manages it
    assert stage.limits() == {"a": 2000, "b": 300}
    stage.policy()
    stage.wait_for_condition("Ready", "ModeAuto")
    stage.wait_for_limits({"a": 1000, "b": 1000})
    assert stage.originals() == {"a": STORED, "b": STORED}
    stage.policy(behaviour={"intervalSeconds": 2})
    stage.wait_for_condition("Ready", "InvalidSpec")
    stage.delete_policy()
    assert stage.cpu() == {"a": ORIGINAL, "b": ORIGINAL}


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


def test_leaving_auto_gives_everything_back_and_lets_the_policy_go(stage: Stage) -> None:
    stage.pods("a", "b")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    stage.policy(mode="Recommend")
    stage.wait_for_limits({"a": 300, "b": 300})
    stage.wait_for_event("a", "Restored")
    stage.wait_for_condition("Ready", "ModeRecommend")
    wait_for("nothing is kept", stage.originals, lambda seen: seen == {})
    controller.wait_for_metric("slopewise_restores_total", lambda seen: seen == 2, outcome="restored")
    finalizers = ("get", "trainingpolicy", stage.name("policy"), "-o", "jsonpath={.metadata.finalizers}")
    wait_for("it can go without us", lambda: stage.kubectl.run(*finalizers), lambda seen: not seen)
    controller.kill()
    stage.delete_policy()
    assert stage.cpu() == {"a": ORIGINAL, "b": ORIGINAL}


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
    "away", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["controller-there", "controller-away"]
)
def test_a_policy_goes_when_its_pods_have_gone(stage: Stage, away: bool) -> None:
    stage.pods("a", "b")
    stage.policy()
    controller = stage.controller()
    stage.wait_for_limits({"a": 1000, "b": 1000})
    if away:
        controller.kill()
    stage.delete_pods("a", "b")
    stage.kubectl.run("delete", "trainingpolicy", stage.name("policy"), "--wait=false")
    if away:
        stage.controller()
    stage.wait_for_no_policy()
    wait_for("nothing is kept", stage.originals, lambda seen: seen == {})


@pytest.mark.faults
def test_a_restarted_controller_remembers_everything(stage: Stage, trainers: Trainers) -> None:
    shape: dict[str, Any] = {"node": "node-a", "cpu_request": "100m", "cpu_limit": "300m"}
    stage.kubectl.apply(
        trainers.pod("falling", FALLING, **shape),
        trainers.pod("converged", CONVERGED, **shape),
        namespace=stage.namespace,
    )
    stage.kubectl.wait_running(stage.namespace, "falling", "converged")
    stage.policy(policy={"name": "flowcon"}, behaviour={"intervalSeconds": 20})
    controller = stage.controller(scrape_seconds=SCRAPE_SECONDS)
    names = ("falling", "converged")
    wait_for("both are measured", lambda: [stage.growth(name) for name in names], _have_growth)
    assert controller.stop() == 0
    before = {name: _remembered(stage, name) for name in names}
    again = stage.controller(scrape_seconds=SCRAPE_SECONDS)
    again.wait_for_passes(1)
    assert again.stop() == 0  # what it remembers is stored then, not only what the first one left
    after = {name: _remembered(stage, name) for name in names}
    assert {name: each["original"] for name, each in after.items()} == dict.fromkeys(names, STORED)
    for name in names:
        assert before[name]["levels"]["first"] == after[name]["levels"]["first"]
        assert before[name]["decided"]["job_class"] == after[name]["decided"]["job_class"]
        assert before[name]["levels"]["series"] == after[name]["levels"]["series"]
        # A controller that forgot it has none; one that closed an interval meanwhile has it as the one before.
        growths = (after[name].get("growth"), after[name].get("previous_growth"))
        assert before[name]["growth"] in growths


def _have_growth(statuses: list[dict[str, Any]]) -> bool:
    return all("growth" in status and "class" in status for status in statuses)


def _remembered(stage: Stage, name: str) -> dict[str, Any]:
    """What the JobGrowth stores of its one pod."""
    pod = stage.growth(name)["pods"][0]
    return {**json.loads(pod["memory"]), "original": pod["original"]}
