"""Which figures of a training are used: reporters are untrusted tenants, and one of them must not end a pass.

Worked example: 1e160 planned steps are a plan of 1e160 core-seconds, whose square is no float. The pass over all jobs
would end in an OverflowError.
"""

from __future__ import annotations

SMALLEST_FIGURE, LARGEST_FIGURE = 1e-9, 1e15
"""Of steps, counts, seconds and times, but for 0. A step a nanosecond makes 1e15 steps in twelve days."""

LARGEST_LEVEL = 1e30
"""A larger loss is taken as NaN is: a 32-bit float ends at 3e38, and differences of larger ones at infinity."""


def is_figure(value: float) -> bool:
    """Whether a number of steps, a count, a duration or a time is used; NaN is not."""
    return value == 0 or SMALLEST_FIGURE <= abs(value) <= LARGEST_FIGURE


def is_level(value: float) -> bool:
    """Whether a loss, or another evaluation, counts as finite."""
    return abs(value) < LARGEST_LEVEL
