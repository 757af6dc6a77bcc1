"""Policies that lie in Git and are applied by Flux: modes, mistakes, drift, and their removal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from support.fault_stage import ORIGINAL, STORED, Stage
from support.flux import FIELD_MANAGER, Flux, of_the_page, running_flux
from support.git_server import GitServer

from slopewise.adapters.kube.cache.records import FINALIZER
from slopewise.adapters.kube.client.protocol import FIELD_MANAGER as OURS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

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
