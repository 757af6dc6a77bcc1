"""Policies and Jobs that lie in Git and are applied by Flux: mistakes, drift, moves, and the order of pruning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.fault_stage import ORIGINAL, STORED, Stage
from support.flux import FIELD_MANAGER, Flux, of_the_page, running_flux
from support.git_server import GitServer
from support.moving_stage import HERE, THERE, MovingStage
from support.waiting import wait_for

from slopewise.adapters.kube.cache.records import FINALIZER
from slopewise.adapters.kube.client.protocol import FIELD_MANAGER as OURS

pytestmark = pytest.mark.faults

POLICY_FILE = "policies/policy.yaml"
EMPTY = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: []\n"
RECONCILIATIONS_SECONDS = 25
"""Two and a half intervals of a Kustomization."""

Json = dict[str, Any]


@pytest.fixture
def git(stage: Stage) -> Iterator[GitServer]:
    """The platform's repository."""
    folder = stage.folder / "git"
    folder.mkdir()
    with GitServer(folder) as server:
        yield server


@pytest.fixture
def flux(stage: Stage, git: GitServer) -> Iterator[Flux]:
    """Follows that repository; what it has applied is pruned while a controller of the stage still runs."""
    folder = stage.folder / "flux"
    folder.mkdir()
    with running_flux(stage.kubectl, stage.namespace, folder) as made:
        yield made


def test_a_policy_in_git_from_recommend_to_auto_over_two_mistakes_to_its_removal(
    stage: Stage, git: GitServer, flux: Flux
) -> None:
    def policy(**spec: Any) -> dict[str, str | None]:
        return {POLICY_FILE: yaml.safe_dump(stage.policy_document(**spec))}

    stage.pods("a", "b")
    controller = stage.controller()
    revision = git.commit("Recommend", policy(mode="Recommend"))
    flux.follow(git.url)
    flux.kustomization("policies", "./policies", **of_the_page())
    flux.wait_applied("policies", revision)
    assert stage.condition("policy", "Ready")["reason"] == "ModeRecommend"
    assert stage.limits() == {"a": 300, "b": 300}

    flux.wait_applied("policies", git.commit("Auto", policy()))
    stage.wait_for_limits({"a": 1000, "b": 1000})
    assert stage.condition("policy", "Ready")["reason"] == "ModeAuto"
    generation = _policy(stage)["metadata"]["generation"]

    refused = flux.wait_refused("policies", git.commit("PromQL", policy(evaluation={"metric": "sum(up)"})))
    assert "PromQL is not accepted" in refused
    assert _policy(stage)["metadata"]["generation"] == generation
    assert stage.condition("policy", "Ready")["reason"] == "ModeAuto"
    flux.wait_applied("policies", git.revert())

    begin = time.monotonic()
    refused = flux.wait_refused("policies", git.commit("Hurry", policy(behaviour={"intervalSeconds": 2})))
    assert time.monotonic() - begin < 45, "it does not wait for the timeout of 60 s"
    assert f"TrainingPolicy/{stage.name('policy')} status: 'Failed'" in refused
    found = stage.condition("policy", "Ready")
    assert (found["status"], found["reason"]) == ("False", "InvalidSpec")
    assert "spec.behaviour.intervalSeconds: 2 s is less than 4 scrapes of 1 s" in found["message"]
    assert stage.limits() == {"a": 1000, "b": 1000}
    flux.wait_applied("policies", git.revert())
    assert stage.condition("policy", "Ready")["reason"] == "ModeAuto"

    _check_that_neither_side_changes_anything(stage, flux)
    assert stage.originals() == {"a": STORED, "b": STORED}
    resized = sum(stage.resized.values())
    controller.wait_for_passes(2)
    assert sum(stage.resized.values()) == resized

    git.commit("Without a policy", {POLICY_FILE: None, "policies/kustomization.yaml": EMPTY})
    stage.wait_for_no_policy()
    assert stage.cpu() == {"a": ORIGINAL, "b": ORIGINAL}


def _policy(stage: Stage) -> Json:
    return dict(stage.kubectl.get("trainingpolicy", stage.name("policy"), "--show-managed-fields"))


def _check_that_neither_side_changes_anything(stage: Stage, flux: Flux) -> None:
    before, events = _policy(stage), len(flux.events("policies"))
    time.sleep(RECONCILIATIONS_SECONDS)
    after = _policy(stage)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert not [note for _, note in flux.events("policies")[events:] if "configured" in note]
    # Each has fields of its own: Flux the spec, the controller the finalizer and the status.
    fields = {
        (one["manager"], one.get("subresource", "")): one["fieldsV1"] for one in after["metadata"]["managedFields"]
    }
    assert fields.keys() == {(FIELD_MANAGER, ""), (OURS, ""), (OURS, "status")}
    assert "f:spec" in fields[FIELD_MANAGER, ""]
    assert "f:status" not in fields[FIELD_MANAGER, ""]
    assert fields[OURS, ""].keys() == {"f:metadata"}
    assert fields[OURS, ""]["f:metadata"]["f:finalizers"].keys() == {".", f'v:"{FINALIZER}"'}


EITHER_NODE = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [HERE, THERE]}]}
"""What an owner may require; a move puts its pin into each such term, which Flux takes for its own."""


def _requiring(job: Json) -> Json:
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [EITHER_NODE]}
    return job


@pytest.mark.usefixtures("needs_suspending")
def test_a_job_in_git_is_moved_and_flux_leaves_it_where_it_is(moves: MovingStage, git: GitServer, flux: Flux) -> None:
    trainings = moves.trainings
    jobs = {
        "preferring": trainings.job("preferring"),
        "annotated": _requiring(trainings.job("annotated")),
        "requiring": _requiring(trainings.job("requiring")),
    }
    for job in jobs.values():
        job["metadata"]["namespace"] = moves.stage.namespace
    jobs["annotated"]["metadata"]["annotations"] = {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
    revision = git.commit("Jobs", {f"{name}/job.yaml": yaml.safe_dump(job) for name, job in jobs.items()})
    flux.follow(git.url)
    for name in jobs:
        flux.kustomization(name, f"./{name}", wait=False)  # a Job is ready for Flux when it has completed
    for name in jobs:
        flux.wait_applied(name, revision)
        trainings.wait_for_steps(name, 3)

    flux.kustomization(
        "requiring", "./requiring", wait=False, suspend=True
    )  # or it may write in the middle of the move
    moves.controller()
    for name in jobs:
        moves.wait_moved(name)
        moves.wait_until_pinned(name)
    flux.kustomization("requiring", "./requiring", wait=False, suspend=False)

    message = wait_for(
        "Flux cannot write over the pin of the one that requires nodes and has no annotation",
        lambda: flux.ready("requiring"),
        lambda condition: condition.get("status") == "False",
        60,
    )["message"]
    assert "field is immutable" in message
    time.sleep(RECONCILIATIONS_SECONDS)
    assert {name: flux.ready(name)["status"] for name in ("preferring", "annotated")} == {
        "preferring": "True",
        "annotated": "True",
    }
    for name in jobs:
        moves.wait_until_pinned(name)
        assert len(trainings.diary(name).lives) == 2
