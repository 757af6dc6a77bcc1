"""How many examples a property test tries: the same ones with `make test`, and many random ones with `make search`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

USUAL_EXAMPLES = 100
"""Hypothesis' own number."""

FIXED, SEARCH = "fixed", "search"
"""The two profiles; `--hypothesis-profile=search` chooses the second."""

_UNTIMED = [HealthCheck.too_slow, HealthCheck.data_too_large]
"""A busy machine draws slowly, and a world of many jobs is large: neither is a fault of what is tested."""


def register_profiles() -> None:
    """Register both profiles, and choose the one whose examples are the same in every run.

    A gate that fails now and then is no gate. What the search finds becomes a fixed example: each failure prints it.
    """
    times = int(os.environ.get("SEARCH_TIMES", "10"))
    settings.register_profile(FIXED, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
    settings.register_profile(
        SEARCH,
        derandomize=False,
        deadline=None,
        suppress_health_check=_UNTIMED,
        max_examples=USUAL_EXAMPLES * times,
        print_blob=True,
    )
    settings.load_profile(FIXED)


def examples(usual: int) -> settings:
    """So many examples with `make test`, and as many times more as the search tries of everything."""
    return settings(max_examples=usual * settings().max_examples // USUAL_EXAMPLES)
