"""The published settings: each can be run as it is written, and none hides another."""

from __future__ import annotations

from collections import Counter

import pytest

from replication.claims import NOT_PRINTED, Setting
from replication.page import anchor
from replication.plots import SWEEPS, Sweep, points_of
from replication.run import SETTINGS, with_variant
from replication.settings_causes import SETTINGS as CAUSES
from replication.settings_causes import again
from replication.settings_grids import GRIDS, INTERVALS_SECONDS, Grid, places
from slopewise.config.training_policy import PolicyChoice, policy_parameters
from slopewise.simulator.scenario.scenario import load_scenario, shipped
from slopewise.simulator.workload import draw

every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def test_names_and_anchors_are_unique() -> None:
    settings = SETTINGS.values()
    assert len({setting.name for setting in settings}) == len(settings)
    assert len({anchor(setting.title) for setting in settings}) == len(settings)


@every_setting
def test_a_setting_is_of_a_shipped_scenario_of_policies_that_know_its_parameters_and_of_worlds_that_can_be_drawn(
    setting: Setting,
) -> None:
    assert setting.scenario in shipped()
    for claim_of in [setting.baseline, *(claim.candidate for claim in setting.claims if claim.candidate is not None)]:
        for variant in setting.variants:
            ours = claim_of if claim_of is setting.baseline else with_variant(claim_of, variant)
            choice = PolicyChoice(name=ours.policy, parameters=dict(ours.parameters))
            assert policy_parameters(choice, where=setting.name)
            assert ours.interval_seconds >= 1
    worlds = {repr(variant.scenario): variant.scenario for variant in setting.variants}
    (jobs,) = {len(draw(load_scenario(setting.scenario, spec), 1).jobs) for spec in worlds.values()}
    for claim in setting.claims:
        if " of " in claim.what and claim.unit == "jobs":
            assert f" of {jobs}" in claim.what
            assert claim.neutral in (None, jobs / 2)


@every_setting
def test_what_is_judged_is_printed_once_and_what_is_printed_names_its_unit(setting: Setting) -> None:
    assert {what for what, times in Counter(claim.what for claim in setting.claims).items() if times > 1} == set()
    for claim in setting.claims:
        if claim.printed_value == "a gain":
            assert claim.printed != NOT_PRINTED[0]
            assert claim.neutral is not None
        elif claim.printed_value is not None:
            assert any(letter.isdigit() for letter in claim.printed) or claim.printed == "all"
            assert claim.unit == "jobs" or claim.unit in claim.printed


def test_a_row_that_a_cause_is_tried_on_must_exist() -> None:
    with pytest.raises(ValueError, match="flowcon-fixed has no row 'nothing'"):
        again(SETTINGS["flowcon-fixed"], "a", "A", ["makespan, NA", "nothing"], [])


def test_what_is_tried_again_is_judged_where_it_is_published() -> None:
    assert {claim.printed_value for setting in CAUSES for claim in setting.claims} == {None}


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.setting.name)
def test_a_grid_has_a_row_for_every_alpha_and_figure_and_a_column_for_every_interval(grid: Grid) -> None:
    rows = [place for figure in grid.figures for _, place in places(grid, figure)]
    assert sorted(rows) == list(range(len(grid.setting.claims)))
    assert [variant.interval_seconds for variant in grid.setting.variants] == list(INTERVALS_SECONDS)


SWEPT = {
    "flowcon-fixed-makespan.svg": [20, 30, 40, 50, 60],
    "flowcon-fixed-itval.svg": [20, 30, 40, 50, 60],
    "flowcon-fixed-alpha.svg": [1, 3, 5, 10, 15],
    "specon-20-vae-random-interval.svg": [20, 25, 30],
}


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.file)
def test_a_picture_of_a_sweep_has_every_printed_point_once(sweep: Sweep) -> None:
    assert [x for x, _, _ in points_of(SETTINGS[sweep.setting], sweep)] == pytest.approx(SWEPT[sweep.file])
