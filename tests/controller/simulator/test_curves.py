"""Curves: they fall from 1 to 0, and `reached` is the inverse of `at`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slopewise.simulator.curves import (
    FLATTEST,
    MAX_INVERSE,
    MAX_POWER,
    STEEPEST,
    Diverging,
    Exponential,
    Inverse,
    Overfit,
    Power,
    Sigmoid,
    Steps,
    points,
)
from slopewise.simulator.world.model import Curve

rates = st.floats(FLATTEST, STEEPEST)
inner = st.floats(0.05, 0.95)


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    count = draw(st.integers(1, 4))
    at = sorted(draw(st.lists(inner, min_size=count, max_size=count, unique_by=lambda x: round(x, 3))))
    to = sorted(draw(st.lists(inner, min_size=count, max_size=count, unique_by=lambda x: round(x, 3))), reverse=True)
    return Steps(at_ratios=tuple(at), to_levels=tuple(to))


@st.composite
def recorded(draw: st.DrawFn) -> Curve:
    xs = draw(st.lists(inner, max_size=6, unique_by=lambda x: round(x, 3)))
    ys = draw(st.lists(st.floats(0.5, 9), min_size=len(xs), max_size=len(xs)))
    return points([(0.0, 10.0), *zip(sorted(xs), sorted(ys, reverse=True), strict=True), (1.0, 0.25)])


falling = st.one_of(
    st.builds(Exponential, k=rates),
    st.builds(Power, b=st.floats(FLATTEST, MAX_POWER)),
    st.builds(Inverse, a=st.floats(0.01, MAX_INVERSE)),
    st.builds(Sigmoid, center=inner, k=rates),
    steps(),
    recorded(),
)


@given(curve=falling, x=st.floats(0, 1), further=st.floats(0, 1), improvement=st.floats(0, 1))
def test_every_curve_falls_from_1_to_0_and_has_reached_an_improvement_where_it_says_and_not_before(
    curve: Curve, x: float, further: float, improvement: float
) -> None:
    assert [curve.at(0.0), curve.at(1.0)] == pytest.approx([1.0, 0.0], abs=1e-9)
    assert curve.at(min(1.0, x + further)) <= curve.at(x) + 1e-12
    reached = curve.reached(improvement)
    assert reached is not None
    assert 0 <= reached <= 1
    assert curve.at(reached) <= 1 - improvement + 1e-6
    # A hair before, it is above: a drop or a flat part is entered at its beginning.
    assert curve.at(max(0.0, reached - 1e-3)) >= 1 - improvement - 1e-6


@pytest.mark.parametrize(
    "curve",
    [
        Exponential(k=7),  # found by the property above: 1.0000000000000067
        Exponential(k=FLATTEST),
        Exponential(k=STEEPEST),
        Power(b=0.05),
        Power(b=0.8690707296228953),
        Power(b=MAX_POWER),  # 101^-10 added to 1 is 1: its last value was 0, and could not be taken to a power
        Inverse(a=MAX_INVERSE),
        Sigmoid(center=0.95, k=STEEPEST),
        Steps(at_ratios=(0.33, 0.66), to_levels=(0.5, 0.2)),
        Steps(at_ratios=(0.1,), to_levels=(0.5,)),
    ],
    ids=repr,
)
def test_the_whole_improvement_is_reached_at_the_end_and_not_after_it(curve: Curve) -> None:
    whole = curve.reached(1.0)
    assert whole is not None
    assert 1 - 1e-2 < whole <= 1
    assert curve.reached(0.0) == pytest.approx(0, abs=1e-4)


def test_steps_drop_where_they_say_and_fall_smoothly_half_of_the_way_in_between() -> None:
    curve = Steps(at_ratios=(0.33, 0.66), to_levels=(0.5, 0.2))
    assert curve.at(0.33 - 1e-9) == pytest.approx(0.75)
    assert curve.at(0.33) == pytest.approx(0.5)
    assert curve.at(0.66 - 1e-9) == pytest.approx(0.35)
    assert curve.at(0.66) == pytest.approx(0.2)
    assert curve.reached(0.4) == pytest.approx(0.33)  # 0.6 is jumped over


def test_an_overfitting_curve_is_best_at_its_turn_and_rises_after_it() -> None:
    curve = Overfit(k=5, turn=0.4, rise=0.3)
    assert [curve.at(x) for x in (0.0, 0.4, 0.7, 1.0)] == pytest.approx([1.0, 0.0, 0.15, 0.3], abs=1e-12)
    assert curve.reached(0.5) == pytest.approx(0.4 * Exponential(k=5).reached(0.5))  # type: ignore[operator]
    for turn in (0.1, 0.3, 0.4, 0.7):
        reached = Overfit(k=7, turn=turn, rise=0.3).reached(1.0)
        assert reached is not None
        assert reached <= turn


def test_a_diverging_curve_is_nan_from_its_point_on_and_never_reaches_what_comes_after() -> None:
    curve = Diverging(k=8, diverges_at=0.4)
    assert curve.at(0.39) == Exponential(k=8).at(0.39)
    assert math.isnan(curve.at(0.4))
    assert curve.reached(0.9) == Exponential(k=8).reached(0.9)
    assert curve.reached(0.99) is None


def test_points_may_rise_and_count_from_the_first_to_the_lowest_at_the_first_place_that_gets_there() -> None:
    curve = points([(0, 2.0), (0.25, 3.0), (0.5, 1.0), (0.75, 2.0), (0.875, 1.0), (1, 1.5)])
    assert [curve.at(x) for x in (0, 0.25, 0.5, 0.75, 0.875, 1)] == pytest.approx([1, 2, 0, 1, 0, 0.5])
    assert curve.reached(0.0) == 0.0
    assert curve.reached(0.5) == pytest.approx(0.4375)  # of the second stretch, not of the last but one
    assert curve.reached(1.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 1), (0.5, 2), (1, 1)], "the curve never falls below 1, its first value; one of its values must be below"),
        ([(0, 1), (0.5, 0.4), (0.5, 0.2), (1, 0)], "x must increase, and 0.5 follows 0.5"),
        ([(0.1, 1), (1, 0)], "must begin at x = 0 and end at x = 1"),
        ([], "must begin at x = 0 and end at x = 1"),
        ([(0, 1), (1, math.nan)], "a value is not finite"),
        ([(0, 1e308), (1, -1e308)], "the curve goes from 1e[+]308 to -1e[+]308, which is too far; divide its values"),
    ],
)
def test_points_that_are_no_curve_are_refused(pairs: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        points(pairs)
