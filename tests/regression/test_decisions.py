"""A change of any decision shows here as a readable difference; `make accept` takes it as intended."""

from __future__ import annotations

import difflib

import pytest
from regression import gate

CASES = gate.cases()


def summary(name: str) -> str:
    return gate.committed(name).read_text(encoding="utf-8").split("\n\n")[0]


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_decision_is_the_committed_one(name: str) -> None:
    file = gate.committed(name)
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    now = gate.text_of(CASES[name])
    difference = "".join(
        difflib.unified_diff(expected.splitlines(True), now.splitlines(True), f"committed {name}", f"today {name}")
    )
    assert not difference, f"\n{difference}\nIf this is what was meant: make accept, and commit."


def test_no_file_is_left_of_a_policy_that_is_gone() -> None:
    files = [path for path in gate.EXPECTED.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(gate.committed(name) for name in CASES)


@pytest.mark.parametrize("scenario", gate.SCENARIOS)
def test_a_scenario_makes_policies_differ_from_one_another(scenario: str) -> None:
    found = [summary(name) for name in CASES if name.startswith(f"{scenario}/")]
    assert len(set(found)) > len(found) / 2


@pytest.mark.parametrize("came", ["migrated", "rebalanced"])
def test_running_jobs_are_moved_in_both_ways(came: str) -> None:
    assert any(f"({came})" in summary(name) for name in CASES)
