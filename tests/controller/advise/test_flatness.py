"""When a loss is flat: of flat ones with noise and few points, of ones that still fall, within a plan and after it."""

from __future__ import annotations

import numpy as np
import pytest
from support.past_jobs import Curve, constant, fast, straight

from slopewise.advise.flatness import MIN_POINTS, flatness


def state_of(curve: Curve, points: int = 200, noise: float = 0.0, plan: float | None = None) -> str | None:
    x = np.linspace(0.0, 1.0, points)
    values = np.array([curve(each) for each in x]) + noise * np.random.default_rng(1).standard_normal(points)
    found = flatness(np.column_stack((x, values)), plan)
    return None if found is None else found.state


def at_once(part: float) -> float:
    """Flat after its first tenth."""
    return 2.0 + 8 * float(np.exp(-100 * part))


def half(part: float) -> float:
    """Falls in a line for a half."""
    return 0.3 + 2 * max(0.0, 1 - 2 * part)


@pytest.mark.parametrize(
    ("curve", "points", "noise", "state"),
    [
        *((half, points, noise, "flat") for points, noise in ((MIN_POINTS, 0.0), (30, 0.005), (500, 0.02))),
        *((at_once, points, noise, "flat") for points, noise in ((30, 0.0), (500, 0.02))),
        (lambda part: max(0.0, 1 - 4 * part), 200, 0.0, "flat"),  # exactly zero
        (fast, 30, 0.1, "unclear"),  # noise that hides a fall
        (lambda part: half(part) + max(0.0, part - 0.5), 200, 0.0, "rises"),
        (constant, 200, 0.0, "stalled"),
        (straight, 200, 0.0, "falls"),
        (fast, MIN_POINTS - 1, 0.0, None),
    ],
)
def test_a_loss_that_is_flat_at_its_end_is_told_from_others(
    curve: Curve, points: int, noise: float, state: str | None
) -> None:
    assert state_of(curve, points, noise) == state


@pytest.mark.parametrize("exponent", [0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("points", [30, 500])
def test_a_power_law_still_falls_at_its_end(exponent: float, offset: float, points: int) -> None:
    assert state_of(lambda part: offset + (1 + 100 * part) ** -exponent, points) == "falls"


@pytest.mark.parametrize("at", [0.7, 0.8, 0.9, 0.95])
def test_a_late_fall_is_none_of_a_flat_loss(at: float) -> None:
    assert state_of(lambda part: fast(part) - 0.1 * (part > at)) == "falls"


@pytest.mark.parametrize(("plan", "state"), [(None, "flat"), (0.6, "planned"), (0.95, "converged"), (2.0, "converged")])
def test_only_a_plan_that_is_done_makes_it_converged(plan: float | None, state: str) -> None:
    assert state_of(fast, plan=plan) == state


def test_too_few_points_say_nothing() -> None:
    gap = np.column_stack((np.append(np.arange(30.0), 1000.0), np.linspace(2, 1, 31)))
    assert flatness(gap) is None
    assert flatness(np.ones((30, 2))) is None


def test_a_unit_changes_nothing() -> None:
    x = np.linspace(0.0, 1.0, 100)
    for curve in (fast, half, at_once, straight):
        values = np.array([curve(each) for each in x])
        states = {flatness(np.column_stack((a * x + b, c * values))).state for a, b, c in [(1, 0, 1), (60, 1e9, 1e-6)]}  # type: ignore[union-attr]
        assert len(states) == 1
