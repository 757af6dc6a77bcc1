"""The custom resources on a real API server: what it refuses and in which words, what it fills in and what it keeps."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster import Kubectl
from support.waiting import wait_for

from slopewise.adapters.kube.state.training_policies import parse_policy
from slopewise.config.freeze import FreezeSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import validate
from slopewise.crds.schema.definitions import definitions, job_growths, training_policies
from slopewise.crds.schema.parameters import runnable_policies
from slopewise.errors import UsageError

API_VERSION = "slopewise.dev/v1alpha1"
_METADATA = {"name": "p", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture(scope="module", autouse=True)
def applied(kubectl: Kubectl) -> None:
    """The definitions as they are generated now; they stay, for other tests."""
    kubectl.apply(*definitions().values())
    for name in ("trainingpolicies", "jobgrowths", "freezes"):
        kubectl.run("wait", "--for=condition=Established", f"crd/{name}.slopewise.dev", "--timeout=30s")
    wait_for(
        "the kinds are served", lambda: kubectl.attempt("get", "growth,tp,freezes", "-A"), lambda it: it.returncode == 0
    )


@pytest.fixture
def policy_name(kubectl: Kubectl) -> Iterator[str]:
    """A policy's name that is this test's alone; it selects no pod of others."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    yield name
    kubectl.run("delete", "trainingpolicy", name, "--ignore-not-found")


def a_policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    no_pods = {"pods": {"matchLabels": {"slopewise.dev/test": name}}}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingPolicy",
        "metadata": {"name": name},
        "spec": {"selector": no_pods, **spec},
    }


def refusal(kubectl: Kubectl, spec: dict[str, Any]) -> str:
    """What kubectl says when it is to apply a policy with this spec; only tried, never stored."""
    body = json.dumps(a_policy("refused", spec))
    done = kubectl.attempt("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=body)
    assert done.returncode != 0, f"it was accepted: {done.stdout}"
    return done.stderr


ORACLE = (
    "policy srpt-oracle: it must know how much work each job has left, which only the simulator does; "
    "use `slopewise simulate`, or another policy"
)
KUBE_DEFAULT = (
    "policy kube-default: it is a baseline of the simulator, and Kubernetes itself places alike; "
    "write fair, and no placement"
)
OUR_SENTENCES = [
    (
        {"resources": {"cpu": {"min": "250x"}}},
        "'250x' is not a CPU quantity; write millicores as 250m or cores as 0.25",
    ),
    ({"resources": {"cpu": {"min": "0"}}}, "'0' is less than the smallest CPU quantity; write at least 1m"),
    ({"resources": {"cpu": {"min": "3", "max": "2"}}}, "min 3 is above max 2; swap them"),
    ({"resources": {"cpu": {"min": 100}}}, "min 100 is above max 64; did you mean 100m?"),
    ({"resources": {"cpu": {"min": "250", "max": "100m"}}}, "min 250 is above max 100m; swap them"),
    (
        {"behaviour": {"maxStepRatio": 1.05}},
        "maxStepRatio allows no decrease as large as minChangeRatio asks for; raise the first or lower the second",
    ),
    (
        {"evaluation": {"metric": "loss} or up{"}},
        "'loss} or up{' is not a metric name; use letters, digits, _ and : (PromQL is not accepted)",
    ),
    (
        {"evaluation": {"labels": {"a=b": "c"}}},
        "a key is not a label name; use letters, digits and _ (PromQL is not accepted)",
    ),
    ({"policy": {"name": "flowkon"}}, "there is no policy 'flowkon'; use one of deadline, dqoes,"),
    ({"policy": {"name": "srpt_oracle"}}, ORACLE),
    ({"policy": {"name": "las"}}, "policy las: it is a baseline of the simulator; write fair or marginal"),
    ({"policy": {"name": "kube_default"}}, KUBE_DEFAULT),
    ({"placement": {"name": "kube-default"}}, KUBE_DEFAULT),
    (
        {"policy": {"name": "fair", "parameters": {"alpha": 0.1}}},
        "unknown key for policy fair, only dqoes, flowcon, flowcon2, specon have it; remove it",
    ),
    (
        {"policy": {"name": "dqoes", "parameters": {"alpha": 1}}},
        "must be greater than 0 and less than 1 for dqoes",
    ),
    (
        {"placement": {"name": "las"}},
        ("policy las chooses no nodes; use one that does: deadline, dqoes, draps, flowcon2, marginal, procon, specon"),
    ),
    (
        {"placement": {"name": "specon", "parameters": {"fullRatio": 0.5}}},
        "unknown key for policy specon, only draps has it; remove it",
    ),
    (
        {"policy": {"name": "specon"}, "placement": {"name": "procon"}},
        "policy specon only chooses nodes, which spec.placement does here; name one that decides CPU, or fair",
    ),
    (
        {"selector": {"pods": {"matchExpressions": [{"key": "a", "operator": "In"}]}}},
        "operator In needs values",
    ),
    (
        {"selector": {"pods": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}},
        "operator Exists takes no values",
    ),
]


@pytest.mark.parametrize(("spec", "sentence"), OUR_SENTENCES)
def test_what_a_file_may_not_say_the_api_server_refuses_with_our_sentence(
    kubectl: Kubectl, spec: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(kubectl, spec)
    record = parse_policy({"metadata": _METADATA, "spec": spec})
    assert record.invalid is not None, "a file may say it"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"mode": "auto"}, 'spec.mode: Unsupported value: "auto": supported values: "Observe", "Recommend"'),
        (
            {"behaviour": {"intervalSeconds": 0}},
            "spec.behaviour.intervalSeconds in body should be greater than or equal",
        ),
        ({"resources": {"cpu": {"min": 0.5}}}, "spec.resources.cpu.min in body must be of type integer,string"),
        ({"policy": {"name": "deadline", "parameters": {"endingScrapes": -1}}}, "should be greater than or equal to 0"),
        ({"behaviour": {"interval": 3}}, ".spec.behaviour.interval: field not declared in schema"),
        ({"policy": {"parameters": {"alfa": 0.1}}}, ".spec.policy.parameters.alfa: field not declared in schema"),
    ],
)
def test_what_a_schema_can_say_it_refuses_in_its_own_words(kubectl: Kubectl, spec: dict[str, Any], words: str) -> None:
    assert words in refusal(kubectl, spec)


def test_an_unknown_key_is_refused_by_kubectl_apply_without_server_side_too(kubectl: Kubectl) -> None:
    body = json.dumps(a_policy("refused", {"behaviour": {"interval": 3}}))
    done = kubectl.attempt("create", "--dry-run=server", "-f", "-", stdin=body)
    assert 'unknown field "spec.behaviour.interval"' in done.stderr


def test_defaults_are_filled_in_and_mean_what_an_empty_file_means(kubectl: Kubectl, policy_name: str) -> None:
    kubectl.apply(a_policy(policy_name, {}))
    stored = kubectl.get("trainingpolicy", policy_name)
    assert stored["spec"]["mode"] == "Recommend"
    assert stored["spec"]["resources"]["cpu"] == {"min": "100m", "max": "64"}
    del stored["spec"]["selector"]
    record = parse_policy(stored)
    assert record.document is not None
    assert record.document.spec == TrainingPolicy().spec


def test_every_policy_with_all_its_defaults_is_accepted(kubectl: Kubectl, policy_name: str) -> None:
    """One after the other on one object: a change of policy takes the former one's parameters away."""
    for policy in runnable_policies():
        parameters = policy.parameters().model_dump(by_alias=True)
        kubectl.apply(a_policy(policy_name, {"policy": {"name": policy.name, "parameters": parameters}}))


def test_people_see_a_policy_in_one_line(kubectl: Kubectl, policy_name: str) -> None:
    kubectl.apply(a_policy(policy_name, {"mode": "Observe"}))
    status = {
        "jobs": {"total": 3},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "ModeObserve",
                "message": "jobs are measured",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    patch = json.dumps({"status": status})
    kubectl.run("patch", "tp", policy_name, "--subresource=status", "--type=merge", "-p", patch)
    lines = [line.split() for line in kubectl.run("get", "tp", policy_name).splitlines()]
    assert lines[0] == ["NAME", "MODE", "POLICY", "JOBS", "READY", "REASON", "AGE"]
    assert lines[1][:6] == [policy_name, "Observe", "marginal", "3", "True", "ModeObserve"]
    kubectl.run("wait", "--for=condition=Ready", f"trainingpolicy/{policy_name}", "--timeout=5s")


def test_upgrading_the_definitions_keeps_what_is_stored(kubectl: Kubectl, namespace: str, policy_name: str) -> None:
    growth = {
        "apiVersion": API_VERSION,
        "kind": "JobGrowth",
        "metadata": {"name": "train"},
        "spec": {"workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}},
    }
    remembered = {
        "state": "Training",
        "pods": [{"slot": "0", "original": {"cpuRequest": "1"}, "memory": '{"streak":3}'}],
    }
    kubectl.apply(a_policy(policy_name, {"resources": {"cpu": {"max": 8}}}))
    kubectl.apply(growth, namespace=namespace)
    patch = json.dumps({"status": remembered})
    kubectl.run("patch", "jg", "train", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    before = kubectl.get("tp", policy_name)["spec"]
    try:
        kubectl.apply(*(_with_a_new_field(each) for each in definitions().values()))
        upgraded = wait_for(
            "the new field has its default",
            lambda: kubectl.get("tp", policy_name)["spec"],
            lambda spec: spec.get("fromTheFuture") == "yes",
        )
        assert {key: value for key, value in upgraded.items() if key != "fromTheFuture"} == before
    finally:
        kubectl.apply(training_policies(), job_growths())
    assert kubectl.get("jg", "train", "-n", namespace)["status"] == remembered
    assert kubectl.get("tp", policy_name)["spec"]["resources"]["cpu"]["max"] == 8


def _with_a_new_field(definition: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(definition)
    spec = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["fromTheFuture"] = {"type": "string", "default": "yes"}
    if "default" in spec:
        spec["default"]["fromTheFuture"] = "yes"
    return changed


def test_a_jobgrowth_stays_that_of_its_workload(kubectl: Kubectl, namespace: str) -> None:
    workload = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}
    growth = {"apiVersion": API_VERSION, "kind": "JobGrowth", "metadata": {"name": "train"}}
    kubectl.apply({**growth, "spec": {"workload": workload}}, namespace=namespace)
    patch = json.dumps({"spec": {"workload": {"uid": "another"}}})
    done = kubectl.attempt("patch", "jg", "train", "-n", namespace, "--type=merge", "-p", patch)
    assert "a JobGrowth stays that of its workload; delete it instead" in done.stderr


def a_freeze(spec: dict[str, Any], name: str = "refused") -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Freeze", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"scope": "all", "name": "a"}, "scope all takes no name"),
        ({"scope": "node"}, "scope node needs the name of what is frozen"),
        ({"scope": "pod", "name": "a"}, 'spec.scope: Unsupported value: "pod"'),
        ({"scope": "node", "name": "a b"}, "spec.name in body should match"),
        ({"scope": "all", "effect": "recommend"}, 'spec.effect: Unsupported value: "recommend"'),
        ({"scope": "all", "until": "soon"}, "spec.until in body must be of type date-time"),
        ({"scope": "all", "untill": "x"}, ".spec.untill: field not declared in schema"),
        ({}, "spec.scope: Required value"),
    ],
)
def test_a_freeze_that_cannot_be_read_is_refused(kubectl: Kubectl, spec: dict[str, Any], words: str) -> None:
    body = json.dumps(a_freeze(spec))
    done = kubectl.attempt("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=body)
    assert (done.returncode != 0, words in done.stderr) == (True, True), done.stderr
    with pytest.raises(UsageError):
        validate(FreezeSpec, spec, where="freeze")


def test_freezes_in_force_are_found_among_many_that_have_ended(kubectl: Kubectl) -> None:
    names = {f"test-{uuid.uuid4().hex[:8]}": state for state in ("Ended", "InForce")}
    try:
        for name, state in names.items():
            made = {"apiVersion": API_VERSION, "kind": "Freeze", "metadata": {"name": name}, "spec": {"scope": "all"}}
            kubectl.apply(made)
            status = json.dumps({"status": {"state": state}})
            kubectl.run("patch", "freeze", name, "--subresource=status", "--type=merge", "-p", status)
        found = kubectl.run("get", "freezes", "--field-selector", "status.state=InForce", "-o", "name")
        assert {name for name in names if name in found} == {
            name for name, state in names.items() if state == "InForce"
        }
    finally:
        kubectl.run("delete", "freeze", *names, "--ignore-not-found")
