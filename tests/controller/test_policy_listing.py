"""What `slopewise policies` prints: a line a policy with what it is for, and one policy in full."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from support.own_policy import a_file, a_name, failing

from slopewise.errors import UsageError
from slopewise.own_policies.check import CheckResult, Finding
from slopewise.policies import names
from slopewise.policy_listing import checked, describe, listing, page

TERMINAL_COLUMNS = 80


def printed(shown: RenderableType, columns: int = 200) -> str:
    console = Console(file=io.StringIO(), width=columns)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def page_of(name: str) -> str:
    return printed(page(describe(name)[0]))


def test_every_policy_is_a_line_that_says_what_it_is_for() -> None:
    lines = printed(listing(describe(None)), TERMINAL_COLUMNS).splitlines()
    assert [line.split()[0] for line in lines] == [name.replace("_", "-") for name in names()]
    assert len(lines) == 13
    assert lines[4].split(maxsplit=1)[1].strip() == "trainings of which nothing is known but their loss"
    assert lines[11].strip().endswith("(simulated)")


def test_every_policy_says_for_what_one_would_choose_it_in_words_of_its_own() -> None:
    purposes = [policy["purpose"] for policy in describe(None)]
    assert len(set(purposes)) == len(purposes)
    assert all(policy["purpose"] != policy["summary"] for policy in describe(None))


@pytest.mark.parametrize("name", ["srpt-oracle", "srpt_oracle"])
def test_a_policy_that_needs_an_oracle_says_that_it_runs_in_the_simulator_only(name: str) -> None:
    (described,) = describe(name)
    assert (described["name"], described["simulator_only"]) == ("srpt-oracle", True)
    assert page_of(name).startswith("srpt-oracle (in the simulator only)\n")
    assert "simulator only" not in page_of("fair")


def test_one_policy_is_reported_with_its_readings_and_each_parameter_with_unit_bounds_and_source() -> None:
    assert "What is not the scheduler's" in page_of("kube-default")
    assert "requests = pods" in page_of("kube-default")
    assert "unit: pods or none; source: kube-scheduler" in page_of("kube-default")
    assert "beta = 2.0 (≥ 1, ≤ 1000)" in page_of("flowcon")
    assert "No parameters." in page_of("procon")
    with pytest.raises(UsageError, match="there is no policy 'nope'; use one of"):
        describe("nope")


def test_policies_of_the_users_follow_with_where_they_are_and_those_with_a_mistake_say_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = a_name(), a_name()
    path = a_file(tmp_path, name=good)
    a_file(tmp_path, failing("1 / 0"), name=bad)
    monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
    lines = printed(listing(describe(None))).splitlines()
    assert lines[13].split(maxsplit=1)[1].strip() == f"an example: the newest job is served first (from {path})"
    assert lines[14].startswith(bad)
    assert "cannot be used: " in lines[14]
    assert "ZeroDivisionError" in lines[14]
    assert [(each["name"], each["mistake"] is None) for each in describe(None)[13:]] == [(good, True), (bad, False)]
    assert f"from {path}" in page_of(str(path))
    assert "floorRatio = 0.05 (> 0, ≤ 1)" in page_of(str(path))


def test_what_a_check_found_is_a_line_each_and_the_world_at_the_end() -> None:
    findings = (Finding("ordinary worlds"), Finding("3 random worlds", "failed: KeyError: 'x'", "MemoryState()"))
    lines = [line.rstrip() for line in printed(checked(CheckResult("mine", "mine.py", findings))).splitlines()]
    assert lines == [
        "ok  ordinary worlds",
        "no  3 random worlds  failed: KeyError: 'x'",
        "The smallest world in which this happens (3 random worlds):",
        "MemoryState()",
        "mine does not keep to the contract.",
    ]
