"""Policies of the user's on a cluster: the controller logs those that it found, and those that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.own_policy import a_file, failing
from support.replicas import Town

from slopewise.manager.replica import log_own_policies
from slopewise.own_policies.catalogue import forget


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is mounted into the controller's pod."""
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    return tmp_path


def test_at_its_start_the_controller_logs_its_policies_and_those_it_cannot_use(folder: Path, town: Town) -> None:
    forget()
    path = a_file(folder, name="mine")
    a_file(folder, failing("oops"), name="broken")
    log_own_policies()
    (found,), (refused,) = town.lines("policy file loaded"), town.lines("policy file rejected")
    assert (found["name"], found["origin"]) == ("mine", str(path))
    assert (refused["name"], refused["level"]) == ("broken", "warning")
    assert "NameError: name 'oops' is not defined (line 1)" in refused["reason"]
