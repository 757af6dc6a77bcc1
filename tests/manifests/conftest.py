"""What the tests of the manifests have rendered more than once, and where something is mounted."""

from __future__ import annotations

import pytest
from support.rendering import MANIFESTS, Documents, render


@pytest.fixture
def minimal() -> Documents:
    return render(MANIFESTS / "overlays/minimal")


@pytest.fixture
def moves() -> Documents:
    return render(MANIFESTS / "overlays/moves")
