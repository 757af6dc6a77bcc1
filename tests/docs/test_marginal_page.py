"""docs/marginal.md: what it says of `behaviour` and the floor is what the defaults come to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slopewise.config.pass_settings import MIN_INTERVAL_SECONDS, setting_of
from slopewise.config.training_policy import Behaviour
from slopewise.policies.marginal import Parameters

PAGE = (Path(__file__).parents[2] / "docs/marginal.md").read_text()
(BULLET,) = re.findall(r"^- A job is squeezed no deeper than(?:.|\n(?!- ))*", PAGE, re.MULTILINE)
FLOOR_RATIO = Parameters().floor_ratio


def squeeze_ratio(behaviour: Behaviour) -> float:
    return setting_of(behaviour, MIN_INTERVAL_SECONDS, "requests").squeeze_ratio


def test_the_defaults_allow_a_squeeze_down_to_the_floor_of_the_policy() -> None:
    default = Behaviour()
    assert f"(`maxStepRatio: {default.max_step_ratio:g}`," in BULLET
    assert f"`cooldownSeconds: {default.cooldown_seconds:g}`)" in BULLET
    assert f"the floor's factor of {1 / FLOOR_RATIO:g}" in BULLET
    assert squeeze_ratio(default) < 0.01 * FLOOR_RATIO


def test_gentler_settings_raise_the_floor_to_an_eighth() -> None:
    assert "`maxStepRatio: 2`, and a cooldown no longer than the interval, it is an eighth of an even share" in re.sub(
        r"\s+", " ", BULLET
    )
    for cooldown in (0.0, MIN_INTERVAL_SECONDS):
        ratio = squeeze_ratio(Behaviour(max_step_ratio=2.0, cooldown_seconds=cooldown))
        assert ratio == pytest.approx(1 / 8)
        assert ratio > FLOOR_RATIO
