"""The published settings: each can be run as it is written, and none hides another."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.settings import PolicyChoice, policy_parameters
from controller.simulator.scenario import load_scenario, shipped
from controller.simulator.workload import draw
from replication.claims import Setting
from replication.page import anchor
from replication.plots import GANTT_SETTING, SWEEPS, Sweep, points_of
from replication.run import SETTINGS, with_variant

every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def test_names_and_anchors_are_unique() -> None:
    settings = SETTINGS.values()
    assert len({setting.name for setting in settings}) == len(settings)
    assert len({anchor(setting.title) for setting in settings}) == len(settings)


@every_setting
def test_every_setting_names_a_shipped_scenario(setting: Setting) -> None:
    assert setting.scenario in shipped()


@every_setting
def test_every_candidate_is_a_policy_with_parameters_that_it_knows(setting: Setting) -> None:
    candidates = [setting.baseline, *(claim.candidate for claim in setting.claims if claim.candidate is not None)]
    for candidate in candidates:
        for variant in setting.variants:
            ours = candidate if candidate is setting.baseline else with_variant(candidate, variant)
            choice = PolicyChoice(name=ours.policy, parameters=dict(ours.parameters))
            assert policy_parameters(choice, where=setting.name)
            assert ours.interval_seconds >= 1


@every_setting
def test_no_figure_of_a_setting_stands_twice(setting: Setting) -> None:
    assert {what for what, times in Counter(claim.what for claim in setting.claims).items() if times > 1} == set()


@every_setting
def test_what_is_judged_is_printed_and_what_is_printed_names_its_unit(setting: Setting) -> None:
    for claim in setting.claims:
        if claim.printed_value is not None:
            assert any(letter.isdigit() for letter in claim.printed) or claim.printed == "all"
            assert claim.unit == "jobs" or claim.unit in claim.printed


@every_setting
def test_a_table_that_counts_jobs_names_as_many_as_there_are(setting: Setting) -> None:
    jobs = len(draw(load_scenario(setting.scenario), 1).jobs)
    for claim in setting.claims:
        if " of " in claim.what and claim.unit == "jobs":
            assert f" of {jobs}" in claim.what
            assert claim.neutral in (None, jobs / 2)


SWEPT = {
    "flowcon-fixed-makespan.svg": [20, 30, 40, 50, 60],
    "flowcon-fixed-itval.svg": [20, 30, 40, 50, 60],
    "flowcon-fixed-alpha.svg": [1, 3, 5, 10, 15],
    "specon-20-vae-random-interval.svg": [20, 25, 30],
}


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.file)
def test_a_picture_of_a_sweep_has_every_printed_point_once(sweep: Sweep) -> None:
    assert [x for x, _, _ in points_of(SETTINGS[sweep.setting], sweep)] == pytest.approx(SWEPT[sweep.file])


def test_the_gantt_chart_is_of_a_setting_that_there_is() -> None:
    assert GANTT_SETTING in SETTINGS
