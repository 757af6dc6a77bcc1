"""The page of marginal's figures: what it says of a result, and that its settings can be run."""

from __future__ import annotations

import re

import pytest

from replication.marginal import PAGE, SETTINGS, TUNING_SEEDS, Setting, page, run_setting
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs

AGAIN = "run `python -m replication.marginal`"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.title)
def test_every_setting_can_be_run_and_is_on_the_page(setting: Setting) -> None:
    scenario = load_scenario(setting.scenario, setting.overrides)
    assert [each.label for each in policy_runs(scenario, setting.policies)][1:] == list(setting.policies)
    assert f"\n## {setting.title[0].upper()}{setting.title[1:]}\n" in PAGE.read_text(encoding="utf-8"), AGAIN


def test_figures_are_those_that_the_simulator_gives_and_those_that_miss_their_aim_are_marked() -> None:
    setting = SETTINGS[0]
    seeds = range(1, 4)
    result = run_setting(setting, seeds, 1)
    text = page([(setting, result)], seeds)
    jct = result.ratio_to_fair()["marginal"]["jct_mean_seconds"].mean
    assert jct is not None
    (row,) = re.findall(r"^\| `marginal` \| (.*) \|$", text, re.MULTILINE)
    assert f"{jct:.2f}" in row.split(" | ")[0]
    aims = [setting.aim.jct, setting.aim.makespan, setting.aim.t90, setting.aim.t99, setting.aim.worst]
    for cell, aim in zip(row.split(" | "), aims, strict=True):
        figure = float(cell.strip("*").split(" ")[0])
        assert cell.startswith("*") == (aim is not None and figure > aim)


def test_no_figure_is_from_a_seed_that_was_tuned_on() -> None:
    (first, last) = map(int, re.findall(r"over seeds (\d+) to (\d+)", PAGE.read_text(encoding="utf-8"))[0])
    assert not set(range(first, last + 1)) & set(TUNING_SEEDS)
