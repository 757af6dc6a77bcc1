"""What `slopewise policies` tells: every policy under the name by which it is chosen, and what runs only simulated."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from controller.errors import UsageError
from controller.policies import names
from controller.policy_listing import describe, listing


def printed(name: str | None) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(listing(describe(name), whole=name is not None))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_policy_is_listed_by_the_name_by_which_it_is_chosen() -> None:
    listed = [policy["name"] for policy in describe(None)]
    assert listed == [name.replace("_", "-") for name in names()]
    assert "kube-default" in listed


@pytest.mark.parametrize("name", ["srpt-oracle", "srpt_oracle"])
def test_a_policy_that_needs_an_oracle_says_that_it_runs_in_the_simulator_only(name: str) -> None:
    (described,) = describe(name)
    assert (described["name"], described["simulator_only"]) == ("srpt-oracle", True)
    assert printed(name).startswith("srpt-oracle (in the simulator only)\n")
    assert "fair (in" not in printed(None)


def test_one_policy_is_told_with_its_readings_and_each_parameter_with_unit_bounds_and_source() -> None:
    told = printed("kube-default")
    assert "What is not the scheduler's" in told
    assert "requests = pods" in told
    assert "unit: pods or none; source: kube-scheduler" in told
    assert "beta = 2.0 (≥ 1, ≤ 1000)" in printed("flowcon")


def test_a_policy_without_parameters_says_so() -> None:
    assert "No parameters." in printed("procon")


def test_a_policy_that_there_is_not_is_a_mistake_of_the_user() -> None:
    with pytest.raises(UsageError, match="there is no policy 'nope'; use one of"):
        describe("nope")
