"""A change of any decision shows here as a readable difference; `make accept` takes it as intended."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _gate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gate", Path(__file__).with_name("gate.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gate"] = module
    spec.loader.exec_module(module)
    return module


gate = _gate()
CASES = gate.cases()


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_decision_is_the_committed_one(name: str) -> None:
    committed = gate.EXPECTED / f"{name}.txt"
    expected = committed.read_text(encoding="utf-8") if committed.exists() else ""
    now = gate.told(CASES[name])
    difference = "".join(
        difflib.unified_diff(expected.splitlines(True), now.splitlines(True), f"committed {name}", f"today {name}")
    )
    assert not difference, f"\n{difference}\nIf this is what was meant: make accept, and commit."


def test_no_file_is_left_of_a_policy_that_is_gone() -> None:
    assert {path.stem for path in gate.EXPECTED.glob("*.txt")} == set(CASES)


def test_the_scenario_makes_policies_differ_from_fair_sharing() -> None:
    ends = {name: (gate.EXPECTED / f"{name}.txt").read_text(encoding="utf-8").split("\n\n")[0] for name in CASES}
    assert len(set(ends.values())) > len(ends) / 2
