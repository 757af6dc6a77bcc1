"""A pause doubles with each failure in a row, up to its bound, however many there are."""

from __future__ import annotations

from slopewise.adapters.pauses import Doubling


def test_a_pause_doubles_up_to_its_bound() -> None:
    pauses = [Doubling(1.0, 60.0).after(failures) for failures in range(1, 9)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_thousands_of_failures_in_a_row_are_no_error() -> None:
    """2.0 ** 1024 would be one: a webhook that denied a resize for four days ended the pass."""
    assert Doubling(30.0, 300.0).after(5_000) == 300.0
