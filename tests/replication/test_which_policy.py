"""docs/which-policy.md, as committed: every policy has its purpose there, and figures that its commands give."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from replication.which_policy import (
    KEPT,
    PAGE,
    REAL_RUNS,
    ROOT,
    WANTS,
    kept_of,
    page,
    real_figures,
    scenarios_of,
)
from slopewise.policies import names
from slopewise.simulator.scenario.scenario import load_scenario
from slopewise.simulator.sweep import simulate

BASELINES = {"fair", "kube-default", "las", "srpt-oracle"}
"""Policies that others are compared with; no user chooses them."""

TEXT = PAGE.read_text(encoding="utf-8")
RUNS = REAL_RUNS.read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
AGAIN = "run `make which-policy`"
FIGURES = json.loads(KEPT.read_text(encoding="utf-8"))


def section(policy: str) -> str:
    _, _, after = TEXT.partition(f"\n## {policy}\n")
    assert after, f"there is no section {policy!r}: {AGAIN}"
    return after.partition("\n## ")[0]


def test_every_policy_but_the_baselines_is_used_for_something() -> None:
    assert {want.policy for want in WANTS} == {name.replace("_", "-") for name in names()} - BASELINES
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == [want.policy for want in WANTS], AGAIN


@pytest.mark.parametrize(("scenario", "policies"), scenarios_of(WANTS).items())
def test_figures_are_those_that_the_command_gives(scenario: str, policies: Sequence[str]) -> None:
    """By the first seed: all of them take minutes."""
    result = simulate(load_scenario(scenario), range(1, 2), 1, policies=policies)
    for policy, figures in kept_of(result, policies)["firstSeed"].items():
        kept = FIGURES[scenario]["firstSeed"][policy]
        assert kept == pytest.approx(figures, rel=1e-3), f"{policy}: {AGAIN}"


def test_the_page_is_written_from_the_kept_figures() -> None:
    assert page(FIGURES, RUNS) == TEXT, AGAIN


def test_a_figure_that_that_page_no_longer_has_is_not_written() -> None:
    (dqoes,) = [want for want in WANTS if want.policy == "dqoes"]
    assert real_figures(dqoes.real, RUNS) == "of 4 objectives, met 2 → 4"
    with pytest.raises(ValueError, match=r"real-runs\.md has under 'Policies' 0 rows"):
        real_figures(dqoes.real, RUNS.replace("| `dqoes` | objectives met, of 4 |", "| `dqoes` | other |"))


def test_the_figures_of_the_readme_are_those_that_are_kept() -> None:
    rows = [line for line in README.splitlines() if "`slopewise simulate " in line]
    assert rows
    for row in rows:
        figures = re.findall(r"×[\d.]+ \[[\d., ]+\]", row)
        assert figures
        assert [each for each in figures if each not in section("marginal")] == [], AGAIN
