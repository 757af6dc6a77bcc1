"""docs/which-policy.md, as committed: every policy has its purpose there, and figures that its commands give."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from replication.which_policy import (
    BASELINES,
    KEPT,
    PAGE,
    REAL_RUNS,
    ROOT,
    WANTS,
    Want,
    first_seed,
    page,
    real_figures,
    scenarios_of,
)
from slopewise.policies import names

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


@pytest.mark.parametrize("want", WANTS, ids=lambda want: want.policy)
def test_each_thing_that_one_may_want_has_its_row_and_its_commands(want: Want) -> None:
    assert f"| {want.want} | [`{want.policy}`](#{want.policy}) |" in TEXT, AGAIN
    for scenario in want.scenarios:
        assert f"`slopewise simulate {scenario} --policy {want.policy}`" in section(want.policy), AGAIN
    assert f"**Real**: `{want.real.command}`" in section(want.policy), AGAIN


@pytest.mark.parametrize(("scenario", "policies"), scenarios_of(WANTS).items())
def test_figures_are_those_that_the_command_gives(scenario: str, policies: Sequence[str]) -> None:
    """By the first seed: all of them take minutes."""
    for policy, figures in first_seed(scenario, policies).items():
        kept = FIGURES[scenario]["firstSeed"][policy]
        assert kept == pytest.approx(figures, rel=1e-3), f"{policy}: {AGAIN}"


def test_the_page_is_written_from_the_kept_figures() -> None:
    assert page(FIGURES, RUNS) == TEXT, AGAIN


def test_seconds_that_one_run_does_not_resolve_are_no_gain() -> None:
    (specon,) = [want for want in WANTS if want.policy == "specon"]
    row = specon.real.row
    near = f"\n## {specon.real.under}\n{row} 144 s | 139 s |\n"
    far = f"\n## {specon.real.under}\n{row} 144 s | 127 s |\n"
    assert real_figures(specon.real, near).endswith("144 s → 139 s, which one run does not resolve")
    assert real_figures(specon.real, far).endswith("144 s → 127 s")


@pytest.mark.parametrize("want", WANTS, ids=lambda want: want.policy)
def test_figures_of_real_runs_are_those_of_the_page_of_real_runs(want: Want) -> None:
    assert f"- **Real**: `{want.real.command}`; {real_figures(want.real, RUNS)}\n" in section(want.policy), AGAIN


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
