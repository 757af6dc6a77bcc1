"""Policies of the user's on a cluster: obeyed by name, and one that fails changes nothing and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.own_policy import a_file, deciding, failing
from support.replicas import ORIGINAL, Town, wait_for

from slopewise.manager.replica import log_own_policies
from slopewise.own_policies.catalogue import forget

HALVES = """\
resizes = tuple(
            Resize(job.uid, job.node, "limits", has, 500, "half a core for everybody")
            for job in snapshot.jobs
            if not job.state.ended and (has := job.allocation.limit_millicores) not in (None, 500)
        )
        return replace(fair, resizes=resizes)"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is mounted into the controller's pod."""
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    return tmp_path


def obey(town: Town, name: str, **parameters: Any) -> None:
    behaviour = {"intervalSeconds": 2, "cooldownSeconds": 0, "maxStepRatio": 100, "minChangeRatio": 0.01}
    town.policy(policy={"name": name, "parameters": parameters}, behaviour=behaviour)


def test_a_policy_of_the_users_is_obeyed_by_its_name(folder: Path, town: Town) -> None:
    a_file(folder, deciding(HALVES), name="halves")
    obey(town, "halves")
    with town.replica():
        wait_for(lambda: town.limit() == "500m", "its wish is carried out", town)
        wait_for(lambda: town.condition("Ready").get("status") == "True", "the policy is obeyed", town)


def test_one_that_raises_holds_every_pass_says_why_and_the_controller_goes_on(folder: Path, town: Town) -> None:
    a_file(folder, deciding("return 1 / 0"), name="raises")
    obey(town, "raises")
    with town.replica() as replica:
        wait_for(lambda: town.condition("Ready").get("reason") == "PolicyFailed", "the condition says so", town)
        wait_for(lambda: (replica.metric("slopewise_passes_total", result="held") or 0) >= 2, "it is asked again", town)
        assert replica.get("/healthz").status_code == 200
    ready = town.condition("Ready")
    assert ready["status"] == "False"
    assert ready["message"].startswith("policy raises failed: ZeroDivisionError: division by zero (line ")
    assert town.limit() == ORIGINAL
    assert {line["reason"] for line in town.lines("pass held")} == {ready["message"]}


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


def test_at_its_start_the_controller_logs_which_policies_it_has_and_which_it_cannot_use(
    folder: Path, town: Town
) -> None:
    forget()
    path = a_file(folder, name="mine")
    a_file(folder, failing("oops"), name="broken")
    log_own_policies()
    (found,), (refused,) = town.lines("policy file loaded"), town.lines("policy file rejected")
    assert (found["name"], found["origin"]) == ("mine", str(path))
    assert (refused["name"], refused["level"]) == ("broken", "warning")
    assert "NameError: name 'oops' is not defined (line 1)" in refused["reason"]
