"""Policies of the user's on a cluster: obeyed by name, and one that fails changes nothing and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.own_policy import a_file, failing
from support.replicas import ORIGINAL, Town, wait_for

from slopewise.manager.replica import log_own_policies
from slopewise.own_policies.catalogue import forget


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is mounted into the controller's pod."""
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    return tmp_path


def obey(town: Town, name: str, **parameters: Any) -> None:
    behaviour = {"intervalSeconds": 2, "cooldownSeconds": 0, "maxStepRatio": 100, "minChangeRatio": 0.01}
    town.policy(policy={"name": name, "parameters": parameters}, behaviour=behaviour)


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("broken", {}, "spec.policy.name: {folder}/broken.py: cannot be loaded: NameError"),
        ("mine", {"floorRatio": 7}, "spec.policy.parameters.floorRatio: must be less than or equal to 1, not 7"),
    ],
)
def test_what_the_api_server_cannot_know_the_condition_says(
    folder: Path, town: Town, name: str, parameters: dict[str, Any], sentence: str
) -> None:
    a_file(folder, failing("oops"), name="broken")
    a_file(folder, name="mine")
    obey(town, name, **parameters)
    with town.replica():
        wait_for(lambda: town.condition("Ready").get("reason") == "InvalidSpec", "the condition says so", town)
    assert sentence.format(folder=folder) in town.condition("Ready")["message"]
    assert town.limit() == ORIGINAL


def test_at_its_start_the_controller_logs_its_policies_and_those_it_cannot_use(folder: Path, town: Town) -> None:
    forget()
    path = a_file(folder, name="mine")
    a_file(folder, failing("oops"), name="broken")
    log_own_policies()
    (found,), (refused,) = town.lines("policy file loaded"), town.lines("policy file rejected")
    assert (found["name"], found["origin"]) == ("mine", str(path))
    assert (refused["name"], refused["level"]) == ("broken", "warning")
    assert "NameError: name 'oops' is not defined (line 1)" in refused["reason"]
