"""What tests of the adapters begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """A small API server without objects."""
    with ApiServer() as server:
        yield server
