"""The moving average of the training loss: spikes are left out and counted, real changes are followed."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slopewise_exporter.average import RUN, RobustAverage

DECAY = 0.98
RANGE = 1.8
"""What the loss of `a_training` falls by."""


def a_training(steps: int = 2000, offset: float = 0.5, noise: float = 0.05, seed: int = 1) -> list[float]:
    """Losses that fall by an exponential, and jitter."""
    rng = random.Random(seed)
    return [offset + RANGE * math.exp(-step / 400) + noise * rng.gauss(0, 1) for step in range(steps)]


def averaged(losses: Iterable[float]) -> RobustAverage:
    average = RobustAverage(DECAY)
    for loss in losses:
        average.add(loss)
    return average


def plain(losses: Iterable[float]) -> float:
    total = weight = 0.0
    for loss in losses:
        total, weight = DECAY * total + (1 - DECAY) * loss, DECAY * weight + 1 - DECAY
    return total / weight


def with_spikes(losses: Sequence[float], steps: Iterable[int], size: float) -> list[float]:
    spiked = list(losses)
    for step in steps:
        spiked[step] += size
    return spiked


@pytest.mark.parametrize(("offset", "noise"), [(0.0, 0.01), (0.5, 0.0), (100.0, 0.3), (-7.0, 0.01)])
def test_without_spikes_it_is_the_plain_average(offset: float, noise: float) -> None:
    losses = a_training(offset=offset, noise=noise)
    average = averaged(losses)
    assert average.level == pytest.approx(plain(losses), rel=1e-9)
    assert average.outliers == 0


@pytest.mark.parametrize("size", [times * RANGE for times in (20.0, -1e6, 1e12)])
@pytest.mark.parametrize("step", [0, 1, 1500])
def test_a_spike_is_left_out_and_counted(size: float, step: int) -> None:
    losses = a_training()
    soon = step + RUN
    for steps in (soon, soon + 100, len(losses)):
        average, twin = averaged(with_spikes(losses, [step], size)[:steps]), averaged(losses[:steps])
        assert average.level == pytest.approx(twin.level, abs=0.02 * RANGE)
        assert average.outliers == 1


@pytest.mark.parametrize(
    ("steps", "size"),
    [(range(100, 105), -1e9), (range(50, 1900, 30), 100.0), ([0, 1, 2, 7], -1e9), ([*range(4), 30, 31, 500], 100.0)],
)
def test_several_spikes_are_left_out_as_well(steps: Sequence[int], size: float) -> None:
    losses = a_training()
    average = averaged(with_spikes(losses, steps, size))
    assert average.level == pytest.approx(averaged(losses).level, abs=0.02 * RANGE)
    assert average.outliers == len(steps)


@pytest.mark.parametrize("factor", [3.0, 0.2, 50.0])
def test_a_change_for_good_is_followed_within_some_steps_and_is_no_outlier(factor: float) -> None:
    """Other data, or a learning rate that was cut: sooner than a plain average follows."""
    before, after = a_training(1000), [factor * loss for loss in a_training(2000)[1000:]]
    average = averaged([*before, *after[: RUN + 5]])
    assert average.level == pytest.approx(after[RUN], rel=0.2)
    assert average.outliers == 0


def test_a_finite_divergence_is_seen() -> None:
    losses = a_training(500)
    diverging = [losses[-1] * 1.3**step for step in range(100)]
    average = averaged([*losses, *diverging])
    assert average.level is not None
    assert average.level > diverging[-RUN - 20]


def test_losses_of_which_many_are_unusual_are_all_usual_in_the_end() -> None:
    """A third of the batches are of another task, whose loss is a hundred times as large."""
    rng = random.Random(3)
    losses = [loss * (100 if rng.random() < 0.33 else 1) for loss in a_training(3000)]
    assert averaged(losses).level == pytest.approx(plain(losses), rel=0.05)


def test_the_heavy_tail_of_small_batches_is_not_left_out() -> None:
    rng = random.Random(4)
    losses = [loss * rng.lognormvariate(0.0, 0.8) for loss in a_training(3000)]
    average, levels = RobustAverage(DECAY), []
    for loss in losses:
        average.add(loss)
        levels.append(average.level or 0.0)
    assert average.outliers < 0.01 * len(losses)
    assert statistics.fmean(levels[1000:]) == pytest.approx(statistics.fmean(losses[1000:]), rel=0.05)


def test_a_constant_loss_that_changes_by_little_or_for_good_is_followed() -> None:
    assert averaged([2.0] * 100 + [2.01] * 300).level == pytest.approx(2.01, abs=1e-4)
    assert averaged([2.0] * 100 + [3.0] * (RUN + 1)).level == pytest.approx(3.0)
    assert averaged([0.0] * 100 + [1.0] * (RUN + 1)).level == pytest.approx(1.0)


def test_of_two_first_losses_nobody_can_tell_which_is_the_outlier() -> None:
    assert averaged([]).level is None
    assert averaged([1e12]).level == 1e12
    assert averaged([1e12, 2.0]).outliers == 0
    third = averaged([1e12, 2.0, 2.1])
    assert third.level == pytest.approx(2.05, abs=0.01)
    assert third.outliers == 1


def test_the_largest_floats_neither_overflow_it_nor_stop_it() -> None:
    huge = [1.79e308, -1.79e308] * 20
    assert math.isfinite(averaged(huge).level or 0.0)
    assert averaged([*huge, *a_training()]).level == pytest.approx(averaged(a_training()).level, abs=0.1)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60))
@example([1.6179238213760844e308, -1.7976931348623145e307]).via("make search")
def test_it_is_finite_and_within_what_it_has_seen_whatever_it_sees(losses: list[float]) -> None:
    average = averaged(losses)
    assert 0 <= average.outliers <= len(losses)
    if losses:
        assert average.level is not None
        room = 1e-9 * max(map(abs, losses))
        assert min(losses) - room <= average.level <= max(losses) + room
