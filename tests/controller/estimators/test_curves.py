"""Curves fitted to raw points: against drawn curves, a plain least-squares fit, and losses that fit nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.searching import examples

from slopewise.estimators import curves
from slopewise.model import CurveFit

Singles = NDArray[np.float32]
RATES = curves.grid_rates()


def drawn(
    work: float = 250.0, kappa: float = 10.0, until: float = 0.5, count: int = 100, noise: float = 0.0, family: int = 0
) -> Singles:
    """A loss of 2.3 that falls to 0.3, over so much of its work."""
    s = np.linspace(0.0, until * work, count + 1)[1:]
    levels = 0.3 + 2.0 * curves.phi(family, kappa * s / work) + noise * np.random.default_rng(3).normal(size=count)
    return np.stack([s, levels], axis=1).astype(np.float32)


def best_kappa(fit: CurveFit) -> float:
    """By the scores alone, for a job that needs what the grid was laid by."""
    return float(RATES[np.frombuffer(fit.scores, "<f4").argmax()])


def outlook_of(fit: CurveFit, done: float, sigma: float = 0.15) -> curves.Outlook:
    scores, family, scale = curves.unpacked([fit])
    return curves.outlook(scores, family, scale, np.array([sigma]), np.array([done]))


class TestFit:
    @pytest.mark.parametrize("kappa", [2.0, 5.0, 10.0, 40.0, 100.0])
    def test_finds_the_rate_of_a_drawn_exponential(self, kappa: float) -> None:
        (fit,) = curves.fit([drawn(kappa=kappa, noise=0.01)], [1.0], [250.0])
        assert best_kappa(fit) == pytest.approx(kappa, rel=0.16)
        assert fit.family == curves.EXPONENTIAL

    @pytest.mark.parametrize("family", [curves.POWER, curves.INVERSE])
    def test_another_family_wins_where_it_predicts_better(self, family: int) -> None:
        (fit,) = curves.fit([drawn(kappa=60.0, until=0.9, family=family)], [1.0], [250.0])
        assert fit.family == family
        assert not fit.is_poor

    def test_a_metric_that_rises_is_fitted_as_its_negative(self) -> None:
        points = drawn()
        rising = points * np.array([1, -1], np.float32)
        down, up = curves.fit([points, rising], [1.0, -1.0], [250.0, 250.0])
        assert down == up

    def test_is_that_of_a_plain_least_squares_fit_of_each_rate(self) -> None:
        points = drawn(noise=0.1).astype(np.float64)
        (fit,) = curves.fit([points.astype(np.float32)], [1.0], [250.0])
        errors = []
        for rate in RATES:
            columns = np.stack([np.ones(len(points)), np.exp(-rate * points[:, 0] / 250.0)], axis=1)
            found = np.linalg.lstsq(columns, points[:, 1], rcond=None)
            errors.append(float(found[1][0]))
        scores = np.frombuffer(fit.scores, "<f4")
        variance = (min(errors) / 4.0 + 2 * 0.02**2) / (len(points) - 1)  # of a range of 2, roughly
        expected = -(np.array(errors) - min(errors)) / 4.0 / (2 * variance)
        assert int(scores.argmax()) == int(np.argmin(errors))
        near = expected > -20
        assert scores[near] == pytest.approx(expected[near], rel=0.35, abs=0.3)

    def test_jobs_are_fitted_alike_alone_and_together(self) -> None:
        many = [drawn(kappa=3.0 + k, count=10 + 17 * k % 120, noise=0.02) for k in range(150)]
        together = curves.fit(many, [1.0] * 150, [250.0] * 150)
        for index in (0, 63, 64, 149):
            (alone,) = curves.fit([many[index]], [1.0], [250.0])
            assert together[index].family == alone.family
            assert np.frombuffer(together[index].scores, "<f4") == pytest.approx(
                np.frombuffer(alone.scores, "<f4"), rel=1e-2, abs=1e-2
            )

    def test_few_points_and_constant_or_rising_losses_say_nothing(self) -> None:
        flat = np.stack([np.arange(1, 50), np.full(49, 0.7)], axis=1).astype(np.float32)
        rising = np.stack([np.arange(1, 50), np.arange(1, 50)], axis=1).astype(np.float32)
        for fit in curves.fit([drawn(count=3), flat, rising, drawn(count=1)[:0]], [1.0] * 4, [250.0] * 4):
            assert np.ptp(np.frombuffer(fit.scores, "<f4")) == 0.0

    def test_a_loss_that_drops_in_the_end_is_predicted_poorly(self) -> None:
        points = drawn(count=100, noise=0.005)
        points[80:, 1] -= 1.0
        (fit,) = curves.fit([points], [1.0], [250.0])
        assert not fit.is_poor  # the level before is no better
        points[:, 1] = np.where(np.arange(100) < 75, 2.0 - np.arange(100) / 50, 0.5)
        (fit,) = curves.fit([points], [1.0], [250.0])
        assert fit.is_poor

    @examples(60)
    @given(
        levels=st.lists(st.floats(min_value=-(2.0**66), max_value=2.0**66, width=32), min_size=0, max_size=40),
        scale=st.floats(min_value=1e-3, max_value=1e9),
        done=st.floats(min_value=0.0, max_value=1e9),
    )
    def test_any_losses_give_finite_estimates_in_order(self, levels: list[float], scale: float, done: float) -> None:
        works = np.linspace(0, max(done, 1e-6), len(levels) + 1)[1:]
        points = np.stack([works, np.array(levels)], axis=1).astype(np.float32)
        (fit,) = curves.fit([points], [1.0], [scale])
        found = outlook_of(fit, done)
        for figure in (found.total, found.low, found.high, found.rate):
            assert np.all(np.isfinite(figure))
        assert done <= found.low[0] <= found.high[0]
        assert found.total[0] >= done
        assert found.rate[0] > 0


class TestOutlook:
    def test_a_plan_is_trusted_less_where_the_curve_speaks_against_it(self) -> None:
        (fit,) = curves.fit([drawn(kappa=10.0, noise=0.01)], [1.0], [250.0])
        (longer,) = curves.fit([drawn(work=500.0, kappa=10.0, noise=0.01, until=0.4)], [1.0], [250.0])
        assert outlook_of(fit, 100.0, sigma=0.3).total[0] == pytest.approx(250.0, rel=0.1)
        assert outlook_of(longer, 100.0, sigma=0.3).total[0] > 1.1 * 250.0

    def test_work_that_is_done_is_not_left(self) -> None:
        found = outlook_of(curves.unknown(100.0), 130.0)
        assert found.total[0] > 130.0
        assert found.low[0] >= 130.0

    def test_a_plan_that_is_long_over_has_a_twentieth_left(self) -> None:
        found = outlook_of(curves.unknown(100.0), 1000.0)
        assert found.total[0] == pytest.approx(1050.0)

    def test_without_points_it_is_the_prior(self) -> None:
        found = outlook_of(curves.unknown(100.0), 0.0, sigma=0.3)
        assert found.total[0] == pytest.approx(100.0, rel=0.02)
        assert found.rate[0] * 100.0 == pytest.approx(10.0, rel=0.05)
        assert found.low[0] == pytest.approx(100.0 * np.exp(-1.28 * 0.3), rel=0.1)

    def test_improvement_is_0_at_first_and_1_in_the_end(self) -> None:
        s = np.array([0.0, 50.0, 250.0])
        y = curves.improvement(0, np.full(3, 0.04), s, np.full(3, 250.0))
        assert y == pytest.approx([0.0, (1 - np.exp(-2)) / (1 - np.exp(-10)), 1.0])


class TestRefit:
    def test_is_due_as_points_grow_and_when_the_plan_changes(self) -> None:
        known = CurveFit(40, 100.0, 0, curves.FLAT)
        assert curves.is_due(None, 0, 100.0)
        assert not curves.is_due(known, 45, 100.0)
        assert curves.is_due(known, 60, 100.0)
        assert curves.is_due(known, 45, 120.0)
        assert curves.is_due(known, 20, 100.0)
