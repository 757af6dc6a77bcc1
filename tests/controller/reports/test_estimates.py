"""What a ratio to a baseline says in one word, with and without an interval."""

from __future__ import annotations

import pytest

from slopewise.reports.estimates import Estimate, estimate, verdict


def once(ratio: float) -> Estimate:
    return estimate([ratio])


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.94, "better"),
        (0.95, "better"),
        (0.951, "unclear"),
        (0.991, "same"),
        (1.0, "same"),
        (1.01, "unclear"),
        (1.05, "worse"),
    ],
)
def test_a_single_repetition_shows_only_what_is_beyond_its_own_error(ratio: float, text: str) -> None:
    assert verdict("less", once(ratio), single_ratio=0.05) == text


def test_an_interval_needs_no_further_error() -> None:
    ratio = Estimate(0.97, 0.96, 0.98, 3)
    assert verdict("less", ratio, single_ratio=0.05) == "better"
    assert verdict("more", ratio, single_ratio=0.05) == "worse"


def test_what_is_not_known_says_nothing() -> None:
    assert verdict("less", estimate([])) is None
    assert (estimate([]).half, estimate([1.0]).half) == (None, None)
    assert estimate([1.0, 2.0, 3.0]).half == pytest.approx(2.484, abs=1e-3)
