"""Validates the kinds of curves that a user may write, and reads those that are files.

Recorded losses are shipped in `recorded/`, by name, or a user's own. Such a file has comments with what was trained,
then a table: `done_ratio`, the fraction of the steps, and a column for each stage of `training_loss`.
`python -m replication.recording` writes those that are shipped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from slopewise.config.validation import Document, OneOf
from slopewise.simulator import curves
from slopewise.simulator.scenario import csv_tables
from slopewise.simulator.world.model import Curve
from slopewise.text import unknown_name

_SHIPPED = files("slopewise.simulator") / "recorded"


def shipped() -> list[str]:
    """The names of the losses that come with Slopewise."""
    return sorted(each.name.removesuffix(".csv") for each in _SHIPPED.iterdir() if each.name.endswith(".csv"))


def _is_file(name: str) -> bool:
    """True for a path rather than a name of a shipped one."""
    return "/" in name or name.endswith(".csv")


@cache
def recorded_loss(name: str, stage: str) -> curves.Recorded:
    """The curve of one stage of a recorded training; ValueError says what is wrong, without a full stop."""
    if not _is_file(name) and name not in shipped():
        more = ", or a path such as ./my-loss.csv"
        raise ValueError(unknown_name("recorded loss", name, shipped(), more).removesuffix("."))
    text = None if _is_file(name) else (_SHIPPED / f"{name}.csv").read_text(encoding="utf-8")
    return curves.recorded(csv_tables.numbers(name, ("done_ratio", stage), text))


def _beside(file: str, info: ValidationInfo) -> str:
    """A relative path is taken from the folder of its scenario, where that is known."""
    return str(info.context / file) if info.context else file


def _found(name: str, info: ValidationInfo) -> str:
    return _beside(name, info) if _is_file(name) else name


class _Source(Document, ABC):
    """A curve that is read from what its first key names; a text alone stands for that key."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        return {next(iter(cls.model_fields)): value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_read(self, info: ValidationInfo) -> Self:
        if info.context or not self.in_file:
            self.build()
        return self

    @property
    def in_file(self) -> bool:
        """Whether it can be read only once the folder of its scenario is known."""
        return True

    @abstractmethod
    def build(self) -> Curve:
        """The curve; ValueError when the file cannot be used."""


class RecordedSettings(_Source):
    """A recorded loss, by its name or its file."""

    name: Annotated[str, Field(min_length=1), AfterValidator(_found)]
    stage: str = Field("train_ema", min_length=1)

    @property
    def in_file(self) -> bool:
        """Not where it is shipped."""
        return _is_file(self.name)

    def build(self) -> curves.Recorded:
        """The curve."""
        return recorded_loss(self.name, self.stage)


class CsvSettings(_Source):
    """A measured curve from a CSV file, straight between its rows."""

    file: Annotated[str, Field(min_length=1), AfterValidator(_beside)]
    x: str = Field("done_ratio", min_length=1)
    y: str = Field("loss", min_length=1)
    better: Literal["less", "more"] = "less"

    def build(self) -> curves.Points:
        """The curve."""
        return _measured(self.file, self.x, self.y, self.better)


@cache
def _measured(file: str, x: str, y: str, better: Literal["less", "more"]) -> curves.Points:
    """`x` may be in any unit, such as iterations: the last row is the end of the work."""
    rows = csv_tables.numbers(file, (x, y))
    if not rows or not 0.0 <= rows[0][0] <= rows[-1][0] < math.inf or rows[-1][0] == 0.0:
        raise ValueError(f"{file}: {x} must begin at 0 or above, increase, and end above 0")
    sign = 1.0 if better == "less" else -1.0
    measured = [(at / rows[-1][0], sign * value) for at, value in rows]
    before = [(0.0, measured[0][1])] if measured[0][0] > 0 else []
    try:
        return curves.points([*before, *measured])
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


class CurveSettings(OneOf):
    """Exactly one kind of curve."""

    exponential: curves.Exponential | None = None
    power: curves.Power | None = None
    inverse: curves.Inverse | None = None
    sigmoid: curves.Sigmoid | None = None
    steps: curves.Steps | None = None
    overfit: curves.Overfit | None = None
    diverging: curves.Diverging | None = None
    points: list[tuple[float, float]] | None = None
    csv: CsvSettings | None = None
    recorded: RecordedSettings | None = None

    @field_validator("points")
    @classmethod
    def _checked(cls, value: list[tuple[float, float]] | None) -> list[tuple[float, float]] | None:
        if value is not None:
            curves.points(value)
        return value

    def build(self) -> Curve:
        """The curve that is described."""
        (given,) = (kind for _, kind in self if kind is not None)
        if isinstance(given, list):
            return curves.points(given)
        shape: Curve = given.build() if isinstance(given, _Source) else given
        return shape
