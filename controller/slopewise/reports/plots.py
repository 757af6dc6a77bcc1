"""Charts as shapes in the units of their axes, which `plot.html.j2` draws as SVG.

The page holds the SVG itself, so that a chart needs neither a script nor the network. A chart is as wide as its place:
positions along x are percentages, along y pixels, and curves are stretched while their strokes and all text are not.

Foreign text (names, titles) is kept as it is: the template escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

CURVE_WIDTH = 1000
"""Units of the drawing that is stretched to the chart's width."""

MAX_POINTS = 600
"""Of one curve: a chart is at most 1,300 pixels wide, and its extremes are kept."""

# At least 3:1 against white and against the dark page (#161b22), so that one palette serves both.
COLOURS = ("#3b7dd8", "#e0732a", "#2e9e5b", "#9a5fd0", "#d9485f", "#1a9aa0", "#a98a12", "#c85aa8")
"""Of jobs, policies or models; the ninth has the first colour again, dashed or hatched."""

_DASHES = ("", "7 4", "2 3", "7 3 2 3")
_SYMBOLS = {
    "triangle-right": "M6 0L-5 6V-6Z",
    "dot": "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0Z",
    "diamond": "M0-6L6 0L0 6L-6 0Z",
}

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, which may be the smaller one; `ticks` are values with their text."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()
    title: str = ""

    def share(self, value: float) -> float:
        """How far along the axis a value is, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve. `shown`: the values under the mouse, where they differ from the heights."""

    name: str
    points: Points
    colour: str
    place: int | None = None
    """Of its job: the page's buttons find it by that. None: it belongs to no job."""
    shown: Sequence[float] | None = None

    @property
    def dash(self) -> str:
        """Jobs beyond the palette have a colour again, with another dash."""
        return _DASHES[_round_of(self.place)]


@dataclass(frozen=True, slots=True)
class Area:
    """What one of several stacked curves adds to those below it; each value holds until the next."""

    name: str
    at: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    colour: str
    place: int | None = None

    @property
    def values(self) -> list[float]:
        """Its own height at each moment."""
        return [round(high - low, 3) for low, high in zip(self.low, self.high, strict=True)]

    @property
    def hatch(self) -> int:
        """0: plain; jobs beyond the palette are hatched."""
        return _round_of(self.place)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; `title` shows under the mouse, `text` inside."""

    left: float
    right: float
    top: float
    bottom: float
    fill: str
    stroke: str = "none"
    title: str = ""
    text: str = ""
    hatched: bool = False
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A symbol at a point."""

    x: float
    y: float
    symbol: str
    title: str = ""
    colour: str = ""
    """Empty: white with a dark rim, to be seen on any bar."""
    place: int | None = None

    @property
    def path(self) -> str:
        """About 12 pixels wide, around 0."""
        return _SYMBOLS[self.symbol]


@dataclass(frozen=True, slots=True)
class Text:
    """A word beside a point."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line."""

    left: float
    right: float
    top: float
    bottom: float
    dashed: bool = False
    colour: str = "#8a94a0"


@dataclass(frozen=True, slots=True)
class Plot:
    """One chart."""

    x: Axis
    y: Axis
    height_px: int
    """Of what is inside the axes."""
    lines: tuple[Line, ...] = ()
    areas: tuple[Area, ...] = ()
    boxes: tuple[Box, ...] = ()
    marks: tuple[Mark, ...] = ()
    texts: tuple[Text, ...] = ()
    rules: tuple[Rule, ...] = ()
    key: tuple[tuple[str, str], ...] = ()
    """Names with their colours, above the chart."""
    left_px: int = 56
    unit: str = ""
    """The unit of the values under the mouse."""
    ticks_above: bool = False
    """Along x, where a chart is so tall that its lower end is out of sight."""

    def percent(self, value: float) -> str:
        """Where a value is along x."""
        return f"{100 * self.x.share(value):.2f}%"

    def span(self, left: float, right: float) -> str:
        """How wide two values are apart along x; never too thin to be seen."""
        return f"{max(0.05, 100 * (self.x.share(right) - self.x.share(left))):.2f}%"

    def pixel(self, value: float) -> str:
        """Where a value is along y, from the top."""
        return _short((1 - self.y.share(value)) * self.height_px)

    def tall(self, top: float, bottom: float) -> str:
        """How high two values are apart."""
        return _short(abs(self.y.share(top) - self.y.share(bottom)) * self.height_px)

    def curve(self, line: Line) -> str:
        """A line's path."""
        points = thinned(line.points)
        return "M" + "L".join(self._point(at, value) for at, value in points) if points else ""

    def outline(self, area: Area) -> str:
        """An area's path: along its upper edge and back along the lower one."""
        at, low, high = area.at, area.low, area.high
        if not at:
            return ""
        upper, lower = self._edge(at, high), self._edge(at, low)
        return f"M{'L'.join([*upper, *reversed(lower)])}Z"

    def hover(self) -> dict[str, Any]:
        """The data of the page's script for the moment under the mouse."""
        series = [
            _series(
                line.name,
                line.colour,
                line.place,
                [at for at, _ in line.points],
                [value for _, value in line.points] if line.shown is None else line.shown,
            )
            for line in self.lines
        ]
        series += [_series(area.name, area.colour, area.place, area.at, area.values) for area in self.areas]
        return {"low": self.x.low, "high": self.x.high, "unit": self.unit, "series": series}

    def _point(self, at: float, value: float) -> str:
        return f"{_short(self.x.share(at) * CURVE_WIDTH)} {self.pixel(value)}"

    def _edge(self, at: Sequence[float], values: Sequence[float]) -> list[str]:
        found = [self._point(at[0], values[0])]
        for moment, before, value in zip(at[1:], values, values[1:], strict=False):
            found += [self._point(moment, before), self._point(moment, value)] if value != before else []
        return [*found, self._point(at[-1], values[-1])]


def colour(place: int) -> str:
    """The colour of what stands at `place` among the jobs, policies or models that are shown."""
    return COLOURS[place % len(COLOURS)]


def ticks(low: float, high: float, count: int = 6, unit: str = "") -> tuple[tuple[float, str], ...]:
    """About so many round values from `low` to `high`: steps of 1, 2 or 5 times a power of ten.

    Worked example: 0 to 87 with a count of 6 are 0, 20, 40, 60 and 80.
    """
    if not high > low:
        return ((low, f"{low:g}{unit}"),)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple((number * step, f"{number * step:.6g}{unit}") for number in range(first, last + 1))


def stacked(at: Sequence[float], values: Iterable[Sequence[float]]) -> list[tuple[list[float], list[float]]]:
    """(lower, upper) edges of curves on top of one another."""
    edges = []
    below = [0.0] * len(at)
    for of_one in values:
        above = [low + value for low, value in zip(below, of_one, strict=True)]
        edges.append((below, above))
        below = above
    return edges


def thinned(points: Points, max_points: int = MAX_POINTS) -> Points:
    """At most so many of the points, in order: the lowest and the highest of each stretch."""
    if len(points) <= max_points:
        return points
    stretches = max(1, max_points // 2)
    edges = [len(points) * number // stretches for number in range(stretches + 1)]
    kept: list[tuple[float, float]] = []
    for start, end in pairwise(edges):
        part = points[start:end]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def _series(name: str, colour: str, place: int | None, at: Sequence[float], values: Sequence[float]) -> dict[str, Any]:
    """Thinned alike, and short: 4 significant digits."""
    every = max(1, math.ceil(len(at) / MAX_POINTS))
    return {
        "name": name,
        "colour": colour,
        "place": place,
        "at": [round(moment, 2) for moment in at[::every]],
        "values": [float(f"{value:.4g}") for value in values[::every]],
    }


def _round_of(place: int | None) -> int:
    """How often the palette was gone through before this job; past the last dash it begins again."""
    return 0 if place is None else place // len(COLOURS) % len(_DASHES)


def _short(number: float) -> str:
    """One decimal, and none where it is 0."""
    text = f"{number:.1f}"
    return text.removesuffix(".0")
