"""Thanos is built by the first of these tests, once per machine."""

from __future__ import annotations

import pytest

BUILD_SECONDS = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Building it takes longer than any test may otherwise."""
    for item in items:
        item.add_marker(pytest.mark.timeout(BUILD_SECONDS))
