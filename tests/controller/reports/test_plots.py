"""Shapes in the units of their axes, and where each of them is on the page."""

from __future__ import annotations

import math

import pytest

from slopewise.reports.plots import MAX_POINTS, Area, Axis, Line, Plot, stacked, thinned, ticks

TIME = Axis(0.0, 100.0)
UP = Axis(0.0, 2.0)


@pytest.mark.parametrize(
    ("low", "high", "count", "values"),
    [
        (0, 87, 6, [0, 20, 40, 60, 80]),
        (0, 2.24, 4, [0, 1, 2]),
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3, 3, 3, [-2, 0, 2]),
        (0, 0.003, 3, [0, 0.001, 0.002, 0.003]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, count: int, values: list[float]) -> None:
    assert [value for value, _ in ticks(low, high, count)] == pytest.approx(values)


def test_ticks_are_reported_with_their_unit_and_without_the_rounding_of_floats() -> None:
    assert [text for _, text in ticks(0, 0.7, 7, " s")][3] == "0.3 s"
    assert ticks(5, 5) == ((5, "5"),)


def test_along_x_places_are_percentages_and_along_y_pixels_from_the_top() -> None:
    plot = Plot(TIME, UP, 200)
    assert plot.percent(25.0) == "25.00%"
    assert (plot.pixel(2.0), plot.pixel(0.5)) == ("0", "150")
    assert Plot(TIME, Axis(2.5, -0.5), 300).pixel(0.0) == "50"


def test_a_curve_is_stretched_to_the_width_of_the_chart() -> None:
    line = Line("a", [(0.0, 0.0), (50.0, 1.0), (100.0, 2.0)], "#000")
    assert Plot(TIME, UP, 200, lines=(line,)).curve(line) == "M0 200L500 100L1000 0"
    assert Plot(TIME, UP, 200).curve(Line("none", [], "#000")) == ""


def test_an_area_goes_along_its_upper_edge_and_back_along_the_lower() -> None:
    at = [0.0, 100.0]
    (first, second) = (Area("a", at, low, high, "#000") for low, high in stacked(at, [[1.0, 0.5], [1.0, 1.0]]))
    plot = Plot(TIME, UP, 200, areas=(first, second))
    assert plot.outline(first) == "M0 100L1000 100L1000 150L1000 150L1000 200L0 200Z"
    assert plot.outline(second) == "M0 0L1000 0L1000 50L1000 50L1000 150L1000 150L1000 100L0 100Z"
    assert (first.values, second.values) == ([1.0, 0.5], [1.0, 1.0])


def test_an_area_holds_each_value_until_the_next() -> None:
    area = Area("a", [0.0, 50.0, 100.0], [0.0] * 3, [1.0, 1.0, 2.0], "#000")
    assert Plot(TIME, UP, 200, areas=(area,)).outline(area) == "M0 100L1000 100L1000 0L1000 0L1000 200L0 200Z"


def test_a_long_curve_is_thinned_and_keeps_its_peaks() -> None:
    points = [(float(at), math.sin(at / 500)) for at in range(20_000)]
    points[7_777] = (7_777.0, 9.0)
    points[12_345] = (12_345.0, -9.0)
    kept = thinned(points)
    assert len(kept) <= MAX_POINTS
    assert {(7_777.0, 9.0), (12_345.0, -9.0)} <= set(kept)
    assert kept == sorted(kept)
    assert thinned(points[:MAX_POINTS]) == points[:MAX_POINTS]


def test_what_is_reported_under_the_mouse_is_what_was_measured_and_not_its_height() -> None:
    line = Line("a", [(0.0, 1.0), (9.0, 0.0)], "#111", 0, [2.30251, 0.1])
    reported = Plot(TIME, UP, 200, lines=(line,), unit=" cores").hover()
    assert reported == {
        "low": 0.0,
        "high": 100.0,
        "unit": " cores",
        "series": [{"name": "a", "colour": "#111", "place": 0, "at": [0.0, 9.0], "values": [2.303, 0.1]}],
    }
