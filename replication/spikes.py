"""What spikes do to the moving average, the level and the range, and what each way to keep them out costs.

`python -m replication.spikes` writes docs/spikes.md (under a minute, the same every time). Curves are exponentials,
power laws, late drops and stepwise ones with offsets of 0 to 30 ranges and with noise, the demo's recorded losses, and
for averages the minibatch losses of a small network that is really trained here.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from replication.spike_candidates import RANGES, Average, Growths, averages, never_forgets

PAGE = Path(__file__).resolve().parent.parent / "docs" / "spikes.md"
MEASURED = Path(__file__).with_name("measured.json")

SIZES = (20.0, 1e3, 1e6, 1e12)
"""In ranges of the curve."""

ALPHA = 0.05
"""FlowCon's, per interval: below it a job counts as converging."""

LOOKS = 40
STEPS = 1500


class Curve(NamedTuple):
    """Losses without spikes, and what they fall by."""

    name: str
    values: Sequence[float]
    span: float


def spiked(curve: Curve, begin: int, lasts: int, size: float) -> list[float]:
    """The curve with one value that is far off and stays for a while, as a step does that a gauge shows."""
    values = list(curve.values)
    values[begin : begin + lasts] = [curve.values[begin] + size * curve.span] * lasts
    return values


# --- curves ------------------------------------------------------------------------------------------------------

SHAPES: Mapping[str, Callable[[float], float]] = {
    "exponential, k = 2": lambda x: math.exp(-2 * x),
    "exponential, k = 8": lambda x: math.exp(-8 * x),
    "exponential, k = 30": lambda x: math.exp(-30 * x),
    "power law": lambda x: (1 + 100 * x) ** -0.5,
    "late drop": lambda x: 1 / (1 + math.exp(15 * (x - 0.5))),
    "two drops": lambda x: (
        1 - 0.6 * x if x < 1 / 3 else 0.4 - 0.3 * (x - 1 / 3) if x < 2 / 3 else 0.1 - 0.1 * (x - 2 / 3)
    ),
}


def curves(points: int, noises: Sequence[float]) -> Iterator[Curve]:
    """Every shape with every offset and noise, both in ranges."""
    rng = random.Random(5)  # noqa: S311 - noise that is the same every time
    for name, shape in SHAPES.items():
        for offset in (0.0, 0.5, 3.0, 30.0):
            for noise in noises:
                values = [offset + shape(point / points) + noise * rng.gauss(0, 1) for point in range(points + 1)]
                yield Curve(f"{name}, offset {offset:g}, noise {noise:g}", values, 1.0)


def recorded() -> Iterator[Curve]:
    """The demo's trainings, each alone: their smoothed loss every two seconds."""
    for job in json.loads(MEASURED.read_text(encoding="utf-8"))["alone"]:
        values = [loss for _, loss in job["loss"]][::2]
        if len(values) >= LOOKS // 4:
            yield Curve(f"recorded {job['name']}", values, max(values) - min(values))


def minibatch_losses(seed: int) -> Curve:
    """A network of one hidden layer on noisy labels, 16 samples a step: a heavy tail, as small batches have."""
    random_ = np.random.default_rng(seed)
    features = random_.normal(size=(512, 8))
    labels = np.sin(features[:, 0] * 2) + features[:, 1] * features[:, 2] + 0.3 * random_.normal(size=512)
    hidden, out = random_.normal(size=(8, 32)) / 3, random_.normal(size=32) / 6
    losses = []
    for _ in range(STEPS):
        batch = random_.integers(512, size=16)
        active = np.tanh(features[batch] @ hidden)
        error = active @ out - labels[batch]
        losses.append(float(np.mean(error**2)))
        slope = 2 * error / len(batch)
        hidden -= 0.1 * features[batch].T @ (np.outer(slope, out) * (1 - active**2))
        out -= 0.1 * active.T @ slope
    return Curve(f"minibatches, seed {seed}", losses, losses[0] - statistics.fmean(losses[-100:]))


# --- averages ----------------------------------------------------------------------------------------------------


def levels(average: Average, losses: Sequence[float]) -> list[float]:
    """The average after each step."""
    found = []
    for loss in losses:
        average.add(loss)
        found.append(math.nan if average.level is None else average.level)
    return found


def steps_off(name: str, curve: Curve, losses: Sequence[float], true: Sequence[float]) -> int:
    """Steps at which the average is more than a twentieth of the range away from what it should be."""
    found = levels(averages()[name], losses)
    return sum(abs(level - right) > 0.05 * curve.span for level, right in zip(found, true, strict=True))


def steps_to_follow(name: str, before: Sequence[float], after: Sequence[float]) -> int:
    """Steps until the average has gone half of the way of a change for good."""
    found = levels(averages()[name], [*before, *after])
    start, end = found[len(before) - 1], statistics.fmean(after)
    half = [(level - start) / (end - start) >= 0.5 for level in found[len(before) :]]
    return half.index(True) + 1 if True in half else len(after)


def average_rows() -> Iterator[Sequence[str]]:
    """One row a candidate: without spikes, with them, and with changes that are real."""
    every = [*curves(STEPS, (0.02, 0.2)), *(minibatch_losses(seed) for seed in range(4))]
    for name in averages():
        calm, once, five = [], [], []
        for curve in every:
            true = levels(averages()["plain, as it was"], curve.values)
            calm.append(steps_off(name, curve, curve.values, true))
            for size in (*SIZES, *(-size for size in SIZES)):
                once += [steps_off(name, curve, spiked(curve, begin, 1, size), true) for begin in (0, 20, 700)]
                five.append(steps_off(name, curve, spiked(curve, 300, 5, size), true))
        follow = [
            [steps_to_follow(name, half, [factor * loss for loss in half][:200]) for half in _halves(every)]
            for factor in (3.0, 0.1, 1e3)
        ]
        yield (name, *map(_figure, (calm, once, five)), *map(_figure, follow))


def _halves(every: Sequence[Curve]) -> list[Sequence[float]]:
    """The later halves of the curves, where little changes any more, of losses that are not near 0."""
    return [curve.values[STEPS // 2 : STEPS] for curve in every if min(curve.values[STEPS // 2 :]) > 0.1 * curve.span]


# --- levels ------------------------------------------------------------------------------------------------------


def level_rows() -> Iterator[Sequence[str]]:
    """How far the level of four scrapes is off, in ranges, with noise of 5 % of the range and 0 to 2 spikes."""
    rng = random.Random(2)  # noqa: S311 - noise that is the same every time
    windows = [[rng.gauss(0, 0.05) for _ in range(4)] for _ in range(5000)]
    for name, level in (("mean, as it was", statistics.fmean), ("median (taken)", statistics.median)):
        figures = [f"{statistics.pstdev(level(window) for window in windows):.3f}"]
        for spikes in (1, 2):
            for size in (20.0, 1e12):
                off = [abs(level([*window[spikes:], *[size] * spikes])) for window in windows]
                figures.append(f"{statistics.median(off):.2g}")
        yield (name, *figures)


# --- ranges ------------------------------------------------------------------------------------------------------


def misjudged(found: Growths, right: Growths) -> int:
    """Looks at which growth is on the other side of alpha, or off by more than a factor of two; of the last told."""
    wrong, told = 0, None
    for growth, true in zip(found, right, strict=True):
        told = told if growth is None else max(0.0, growth)
        if true is None:
            continue
        expected = max(0.0, true)
        wrong += told is None or _is_wrong(told, expected)
    return wrong


def _is_wrong(told: float, expected: float) -> bool:
    apart = abs(told - expected)
    if apart <= 0.02:
        return False
    return (told >= ALPHA) != (expected >= ALPHA) or apart > max(ALPHA, 0.5 * max(told, expected))


def range_rows(every: Sequence[Curve] | None = None) -> Iterator[Sequence[str]]:
    """One row a candidate: looks misjudged, mean and worst, over curves, sizes, signs and places."""
    every = [*curves(LOOKS, (0.0, 0.003, 0.02)), *recorded()] if every is None else every
    right = {curve.name: never_forgets(curve.values) for curve in every}
    for name, candidate in RANGES.items():
        calm = [misjudged(candidate(curve.values), right[curve.name]) for curve in every]
        cells = [calm]
        for begins, lasts, sizes in (
            ((0,), 1, SIZES),
            ((1, 2, 5, 12), 1, SIZES),
            ((1, 2, 5, 12), 1, (3.0,)),
            ((1, 2, 5, 12), 3, SIZES),
        ):
            cells.append(
                [
                    misjudged(candidate(spiked(curve, begin, lasts, sign * size)), right[curve.name])
                    for curve in every
                    for begin in begins
                    if begin + lasts + 2 < len(curve.values)
                    for size in sizes
                    for sign in (1, -1)
                ]
            )
        yield (name, *map(_figure, cells), *(_looks_to_follow(candidate, factor) for factor in (3.0, 1e4)))


def _looks_to_follow(candidate: Callable[[Sequence[float]], Growths], factor: float) -> str:
    """Looks until growth is below 0 after the loss has risen for good, on average."""
    found = []
    for curve in curves(LOOKS, (0.003,)):
        risen = [*curve.values[:20], *(factor * (abs(value) + 1.0) for value in curve.values[20:])]
        after = candidate(risen)[20:]
        found.append(next((look for look, growth in enumerate(after, 1) if growth is not None and growth < 0), LOOKS))
    return f"{statistics.fmean(found):.1f}"


def _figure(cell: Sequence[float]) -> str:
    return f"{statistics.fmean(cell):.1f} ({max(cell):g})"


# --- the page ----------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """A table of the page."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


AVERAGE_HEAD = (
    "moving average",
    "steps off without spikes",
    "after one spike",
    "after five in a row",
    "steps to follow ×3",
    "÷10",
    "×1,000",
)
LEVEL_HEAD = ("level of four scrapes", "noise", "1 of 4 is off by 20", "by 1e12", "2 of 4 by 20", "by 1e12")
RANGE_HEAD = (
    "range",
    "looks misjudged without spikes",
    "first look spiked",
    "one later look",
    "by 3 ranges only",
    "three looks, one slow step",
    "looks to see ×3",
    "×10,000",
)

TEXT = """\
# Spikes

Written by `python -m replication.spikes`; do not edit. A spike is one finite loss that is far off (mixed precision,
the first batch, a broken sample); spikes are common. Growth is a change of the loss over its range, so a spike in
either makes a training look converged, or all-important, for as long as the memory has it. Two equal trainings ran on
one core, and one of them showed a loss of 1e12 during its first 30 s: it took 600 s and its twin 476 s. Now both take
the same.

Three places keep spikes out; each handles what passes the one before.

## 1. The exporter's moving average

The average holds a loss back that is more than ten mean distances away. A usual loss after it shows that it was an
outlier, which is left out and counted in `training_outlier_loss_total`. Ten in a row are a change, and the average
starts again from them. The figures are means over the curves, with the worst in brackets; *off* is by more than a
twentieth of the range from the plain average of the losses without spikes.

{averages}

A clipped average starts from its first loss alone, and leaves the level when that one is the spike. The median covers
only the losses that it holds, and costs a sort. The taken average differs from a plain one only after a real drop,
which it follows sooner, and until the third loss; it costs 0.1 µs a step.

## 2. The level of a window

Other exporters show the loss of the last step. The level is the median of the window (`quantile_over_time(0.5, …)`),
no longer its mean: one spike among four scrapes does not change it. NaN and Inf still show as a divergence, by the
mean. The figures are in ranges, with noise of 0.05:

{levels}

## 3. The controller's range

A spike that passes a median lasts for half a window or longer: a slow step. A level more than ten ranges outside of
all before it is held back, and its interval continues. Another level as far outside a window later confirms it, and
so do five windows of the same value. The best level is one that two different levels in a row have reached, and the
first is settled by the first three. The rules are in `controller/slopewise/estimators/level_range.py`. The figures
count looks (of {looks}) at which growth falls on the other side of α, or is off by more than a factor of two, compared
with the range as it was on the same curve without the spike; mean, and the worst in brackets:

{ranges}

- The looks that are spiked count as well: at least one, or three, where growth was above α.
- The first look of a curve that falls steeply holds most of its range. That part of the range is lost when the first
  look is spiked, and growth is measured against the rest. This is the worst case of the second column.
- A first level that is off by a few ranges only cannot be distinguished from a loss that falls fast at the start.
- A rise of more than ten ranges is seen one look later, a smaller one at once. The controller evaluates again after a
  window of four scrapes, not after an interval.
- Quantiles and medians of levels shift with every curve, and a range that decays lets a converged job grow again: all
  of them misjudge looks of curves that have no spike at all.

One case remains: an exporter with a plain moving average of its own spreads a spike of its first steps over a
thousand more, which looks like a loss that falls by ten orders of magnitude. Report to our exporter, or report the
loss itself.

`slopewise simulate spikes` runs policies over such jobs ([simulator.md](simulator.md)).
"""


def page() -> str:
    """The whole page."""
    return TEXT.format(
        averages=table(AVERAGE_HEAD, average_rows()),
        levels=table(LEVEL_HEAD, level_rows()),
        ranges=table(RANGE_HEAD, range_rows()),
        looks=LOOKS,
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
