"""Helm is built by the first of these tests, once per machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helm import Helm, helm_program

BUILD_SECONDS = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Building it takes longer than any test may otherwise."""
    for item in items:
        item.add_marker(pytest.mark.timeout(BUILD_SECONDS))


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Without the settings, plugins and repositories of the user."""
    home: Path = tmp_path_factory.mktemp("helm")
    return Helm(helm_program(), home)
