"""Validates curves as a user writes them, e.g. `curve: {exponential: {k: 8}}`, and builds those of `curves.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from slopewise.config.validation import Document, OneOf
from slopewise.simulator import curves
from slopewise.simulator.scenario import csv_tables, recorded_losses
from slopewise.simulator.world.model import Curve

FLATTEST = 1e-6
"""A power law or a sigmoid that is flatter has no fall left in a float that could be scaled to 1."""

STEEPEST = 30.0
"""Above it a float hardly distinguishes the end of an exponential from its limit."""

MAX_POWER, MAX_INVERSE = 10.0, 1e6

Rate = Annotated[float, Field(ge=FLATTEST, le=STEEPEST)]
"""Steepness over the whole work."""

Inner = Annotated[float, Field(gt=0.0, lt=1.0)]
"""A fraction that is neither the start nor the end."""


class ShapeSettings(Document):
    """A curve of figures alone, which are those of its `shape` in order."""

    shape: ClassVar[Callable[..., Curve]]

    def build(self) -> Curve:
        """The curve."""
        return type(self).shape(*(tuple(each) if isinstance(each, list) else each for _, each in self))


class ExponentialSettings(ShapeSettings):
    """`e^(-kx)`."""

    shape = curves.Exponential
    k: Rate


class PowerSettings(ShapeSettings):
    """`(1 + 100x)^(-b)`."""

    shape = curves.Power
    b: float = Field(ge=FLATTEST, le=MAX_POWER)


class InverseSettings(ShapeSettings):
    """`1 / (1 + ax)`."""

    shape = curves.Inverse
    a: float = Field(gt=0.0, le=MAX_INVERSE)


class SigmoidSettings(ShapeSettings):
    """A late drop around `center`."""

    shape = curves.Sigmoid
    center: Inner
    k: Rate


class StepsSettings(ShapeSettings):
    """Drops at these fractions of the work to these levels."""

    shape = curves.Steps
    at: list[Inner] = Field(min_length=1)
    to: list[Inner] = Field(min_length=1)

    @model_validator(mode="after")
    def _only_falls(self) -> StepsSettings:
        if len(self.at) != len(self.to):
            raise ValueError(f"at has {len(self.at)} values and to has {len(self.to)}; give one level for each drop")
        if sorted(set(self.at)) != self.at or sorted(set(self.to), reverse=True) != self.to:
            raise ValueError("at must increase and to must decrease from drop to drop; sort them")
        return self


class OverfitSettings(ShapeSettings):
    """Falls until `turn`, then rises by `rise` times what it fell."""

    shape = curves.Overfit
    k: Rate = 5.0
    turn: Inner
    rise: float = Field(gt=0.0, le=100.0)


class DivergingSettings(ShapeSettings):
    """Falls as an exponential and is NaN from `at` on."""

    shape = curves.Diverging
    at: Inner
    k: Rate = 8.0


class RecordedSettings(Document):
    """A recorded loss, by its name or its file; the text alone stands for its name."""

    name: str = Field(min_length=1)
    stage: str = Field("train_ema", min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _shipped(self) -> RecordedSettings:
        if not recorded_losses.is_file(self.name):  # a file is read once its scenario's folder is known
            self.build()
        return self

    def beside(self, folder: Path) -> RecordedSettings:
        """The same with a relative path taken from this folder; ValueError when the file cannot be used."""
        if not recorded_losses.is_file(self.name):
            return self
        found = self.model_copy(update={"name": str(folder / self.name)})
        found.build()
        return found

    def build(self) -> curves.Recorded:
        """The curve."""
        return recorded_losses.recorded_loss(self.name, self.stage)


class CsvSettings(Document):
    """A measured curve from a CSV file, straight between its rows; the text alone stands for its file."""

    file: str = Field(min_length=1)
    x: str = Field("done_ratio", min_length=1)
    y: str = Field("loss", min_length=1)
    better: Literal["less", "more"] = "less"

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        return {"file": value} if isinstance(value, str) else value

    def beside(self, folder: Path) -> CsvSettings:
        """The same with a relative path taken from this folder; ValueError when the file cannot be used."""
        found = self.model_copy(update={"file": str(folder / self.file)})
        found.build()
        return found

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

    exponential: ExponentialSettings | None = None
    power: PowerSettings | None = None
    inverse: InverseSettings | None = None
    sigmoid: SigmoidSettings | None = None
    steps: StepsSettings | None = None
    overfit: OverfitSettings | None = None
    diverging: DivergingSettings | None = None
    points: list[tuple[float, float]] | None = None
    csv: CsvSettings | None = None
    recorded: RecordedSettings | None = None

    @field_validator("points")
    @classmethod
    def _checked(cls, value: list[tuple[float, float]] | None) -> list[tuple[float, float]] | None:
        if value is not None:
            curves.points(value)
        return value

    def beside(self, folder: Path) -> CurveSettings:
        """The same with its file, if it has one, taken from this folder; ValueError (`csv: …`) when it is of no use."""
        for name, source in (("recorded", self.recorded), ("csv", self.csv)):
            if source is not None:
                try:
                    return self.model_copy(update={name: source.beside(folder)})
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
        return self

    def build(self) -> Curve:
        """The curve that is described."""
        if self.points is not None:
            return curves.points(self.points)
        kinds = (
            self.exponential, self.power, self.inverse, self.sigmoid, self.steps, self.overfit, self.diverging,
            self.csv, self.recorded,
        )  # fmt: skip
        return next(kind for kind in kinds if kind is not None).build()
