"""docs/which-policy.md, as committed: every policy has its purpose there, and figures that its commands give."""

from __future__ import annotations

import re

import pytest

from replication.which_policy import PAGE, ROOT, WANTS, Want, real_figures, run_scenario, scenarios_of, shown
from slopewise.policies import names

TEXT = PAGE.read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
AGAIN = "run `make which-policy`"
CHEAP = {"qoe-scarce": "dqoes", "tradl": "tradl"}
"""Scenarios whose 24 seeds take a second or two."""


def section(policy: str) -> str:
    _, _, after = TEXT.partition(f"\n## {policy}\n")
    assert after, f"there is no section {policy!r}: {AGAIN}"
    return after.partition("\n## ")[0]


def test_every_policy_is_used_for_something_and_fair_is_what_all_are_compared_with() -> None:
    assert {want.policy for want in WANTS} == {name.replace("_", "-") for name in names()} - {"fair"}
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == [want.policy for want in WANTS], AGAIN


@pytest.mark.parametrize("want", WANTS, ids=lambda want: want.policy)
def test_each_thing_that_one_may_want_has_its_row_and_its_commands(want: Want) -> None:
    assert f"| {want.want} | [`{want.policy}`](#{want.policy}) |" in TEXT, AGAIN
    for scenario in want.scenarios:
        assert f"`slopewise simulate {scenario} --policy {want.policy}`" in section(want.policy), AGAIN
    if want.real is not None:
        assert f"**Real**: `{want.real.command}`" in section(want.policy), AGAIN


@pytest.mark.parametrize(("scenario", "policy"), CHEAP.items())
def test_figures_are_those_that_the_command_gives(scenario: str, policy: str) -> None:
    result = run_scenario(scenario, scenarios_of(WANTS)[scenario], 1)
    (want,) = [each for each in WANTS if each.policy == policy]
    for figure in want.scenarios[scenario]:
        assert f"  - {figure.label}: {shown(figure, result, policy)}\n" in section(policy), AGAIN


@pytest.mark.parametrize("want", [want for want in WANTS if want.real], ids=lambda want: want.policy)
def test_figures_of_real_runs_are_those_of_the_readme(want: Want) -> None:
    assert want.real is not None
    assert f"- **Real**: `{want.real.command}`; {real_figures(want.real, README)}\n" in section(want.policy), AGAIN


def test_a_figure_that_the_readme_no_longer_has_is_not_written() -> None:
    (dqoes,) = [want for want in WANTS if want.policy == "dqoes"]
    assert real_figures(dqoes.real, README) == "of 4 objectives, met 2 → 4"
    with pytest.raises(ValueError, match=r"README\.md has under 'Policies' 0 rows"):
        real_figures(dqoes.real, README.replace("| `dqoes` | objectives met, of 4 |", "| `dqoes` | other |"))
